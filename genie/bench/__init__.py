"""`genie bench`: times of a collective between all ranks, and latency and bandwidth of paths between two ranks."""
