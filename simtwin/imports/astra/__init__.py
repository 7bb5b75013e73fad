"""ASTRA-sim's files."""
