"""`python -m genie`: the `genie` command."""

from genie.cli import entry

entry()
