"""Playing a workload in the twin."""
