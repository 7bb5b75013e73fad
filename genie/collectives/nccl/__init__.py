"""NCCL's messages."""
