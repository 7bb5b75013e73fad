"""Everything that a run needs, resolved from options."""
