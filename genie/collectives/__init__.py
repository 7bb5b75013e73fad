"""Collective algorithms as data: group size, bytes and channels in, message templates out."""
