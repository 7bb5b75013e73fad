"""PyTorch traces as workloads."""
