"""Probes after a run, as evidence."""
