"""A rank of a live run."""
