"""AICB's workloads."""
