"""Chakra execution traces: the schema, and readers and writers for every variant."""
