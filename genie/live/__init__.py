"""The live world: rank worker, transports, clocks, launcher."""
