"""Limits that options, files and NCCL's variables share."""

from __future__ import annotations

QUEUE_PAIRS_MAX = 128  # of a connection: NCCL_IB_QPS_PER_CONNECTION
