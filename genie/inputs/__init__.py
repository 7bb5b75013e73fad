"""What every reader of files shares: limits, text that is safe to print, and the last handler for faults of Genie."""
