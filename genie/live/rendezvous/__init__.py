"""Rendezvous of the ranks of a run: how they find each other and agree."""
