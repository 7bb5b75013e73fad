"""Workloads of training jobs from a model's configuration and degrees of parallelism."""
