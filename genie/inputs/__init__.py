"""Basics of all readers: size limits, text that is safe to print, and the last handler for internal errors."""
