"""Genie: test the network of an ML training cluster without its GPUs."""

__version__ = "0.1.0"  # of the wheel too, and of the native code beside it
