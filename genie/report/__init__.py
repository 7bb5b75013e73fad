"""A verdict's pages and files."""
