"""Paths of flows through a fabric."""
