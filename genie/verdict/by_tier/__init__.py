"""Tiers of links, judged as a whole if single links cannot be."""
