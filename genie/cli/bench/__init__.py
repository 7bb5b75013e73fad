"""genie bench."""
