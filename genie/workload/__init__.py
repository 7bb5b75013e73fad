"""The execution graph in memory: converters, generators and lint."""
