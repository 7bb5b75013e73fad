"""Sweeps: a grid of parameters, played on all cores or under mpiexec, with one row a run."""
