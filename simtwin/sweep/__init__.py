"""Sweeps: a grid of parameters, played on all cores or under mpiexec, a row a run."""
