"""Genie: test the network of an ML training cluster without its GPUs."""
