"""What a run needs, resolved from options."""
