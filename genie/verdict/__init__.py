"""Verdict: compare the timelines of the live run and its twin, split wait, wire and excess, and name suspects."""

from genie.verdict.compatibility import VerdictError
from genie.verdict.judge import judge
from genie.verdict.model import Suspect, Verdict
from genie.verdict.options import Options

__all__ = ["Options", "Suspect", "Verdict", "VerdictError", "judge"]
