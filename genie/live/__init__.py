"""Live runs: rank process, transports, clocks, launcher."""
