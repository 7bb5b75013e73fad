"""The lab: a fabric file's hosts, switches and cables out of network namespaces on this machine."""

from hosts.lab.failure import LabError
from hosts.lab.faults import Change, Fault, change_of, changed, parse_change
from hosts.lab.lab import Lab
from hosts.lab.life import down, find, lab_named, names_of, up, up_for
from hosts.lab.plan import Plan, plan_of

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
