"""MSCCL's algorithms."""
