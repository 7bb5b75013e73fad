"""Commands that make workloads."""
