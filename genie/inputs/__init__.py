"""The ground floor of all readers: limits, text that is safe to print, and the last handler for faults of Genie."""
