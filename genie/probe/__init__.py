"""Probes of links after a run: flows over chosen paths, for what the job's own traffic could not judge."""
