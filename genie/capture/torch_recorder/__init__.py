"""Recording of a PyTorch script's training step on a CPU, without data. It runs in the script's own environment.

It imports PyTorch and the standard library only. Genie imports nothing of it.
"""
