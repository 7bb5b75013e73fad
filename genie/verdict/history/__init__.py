"""Runs beside each other: a run against an earlier one, and the archive of runs."""
