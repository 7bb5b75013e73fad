"""The lab: a fabric file's hosts, switches and cables as network namespaces on this machine."""

from genie.lab.failure import LabError
from genie.lab.faults import Change, Fault, change_of, changed, parse_change
from genie.lab.lab import Lab
from genie.lab.life import down, find, lab_named, names_of, up, up_for
from genie.lab.plan import Plan, plan_of

__all__ = [
    "Change",
    "Fault",
    "Lab",
    "LabError",
    "Plan",
    "change_of",
    "changed",
    "down",
    "find",
    "lab_named",
    "names_of",
    "parse_change",
    "plan_of",
    "up",
    "up_for",
]
