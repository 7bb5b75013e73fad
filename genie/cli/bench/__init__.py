"""The commands of `genie bench`."""
