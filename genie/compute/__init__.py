"""Compute times of operators on accelerators."""
