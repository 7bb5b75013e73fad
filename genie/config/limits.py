"""Limits shared by options, files and NCCL's variables."""

from __future__ import annotations

QUEUE_PAIRS_MAX = 128  # per connection: the limit of NCCL_IB_QPS_PER_CONNECTION
SPRAY_MAX = 64  # source ports of a queue pair, each of which is a socket of softroce
