"""`genie bench`: what a collective takes between all ranks, and what one path between two ranks carries."""
