"""Levels of the twin: their names, and the closed forms of level `analytic`."""
