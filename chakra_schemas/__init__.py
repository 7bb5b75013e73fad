"""Chakra execution traces: the schema, and reading and writing of every variant."""
