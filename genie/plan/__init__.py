"""The plan: a workload and its lowered collectives as arrays for the walker, the same for both worlds."""
