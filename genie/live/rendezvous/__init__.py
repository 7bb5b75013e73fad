"""Ranks meet."""
