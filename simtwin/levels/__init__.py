"""Levels of the twin."""
