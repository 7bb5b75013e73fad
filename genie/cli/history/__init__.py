"""Commands about several runs: compare and runs."""
