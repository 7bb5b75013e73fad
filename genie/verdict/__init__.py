"""The verdict: align two timelines, decompose, locate, gate, report."""
