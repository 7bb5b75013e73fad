"""Verdict: compares the two worlds' timelines, splits wait, wire and excess, and says who is to blame."""

from genie.report.page import write_report
from genie.report.perfetto_trace import write_perfetto
from genie.verdict.judge import judge
from genie.verdict.kinship import VerdictError
from genie.verdict.model import Suspect, Verdict
from genie.verdict.options import Options

__all__ = ["Options", "Suspect", "Verdict", "VerdictError", "judge", "write_perfetto", "write_report"]
