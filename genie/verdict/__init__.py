"""Verdict: compares the two worlds' timelines, splits wait, wire and excess, and says who is to blame."""

from genie.verdict.compatibility import VerdictError
from genie.verdict.judge import judge
from genie.verdict.model import Suspect, Verdict
from genie.verdict.options import Options

__all__ = ["Options", "Suspect", "Verdict", "VerdictError", "judge"]
