"""genie convert."""
