"""The twin: fabric files, topologies, levels and the runner of the packet simulator."""
