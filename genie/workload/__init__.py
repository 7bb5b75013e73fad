"""Execution graphs in memory: readers, converters, generators and lint."""
