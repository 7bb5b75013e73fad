"""Workloads of PyTorch scripts: a script of its own records a rank on a CPU, and its places say what the others do."""
