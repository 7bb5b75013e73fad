"""The commands of `genie convert`."""
