"""Collective algorithms as data: message templates from group size, bytes and channels."""

from genie.collectives.lower import ALGORITHMS, LoweringError, block_sizes, choose, lower
from genie.collectives.template import Action, Template

__all__ = ["ALGORITHMS", "Action", "LoweringError", "Template", "block_sizes", "choose", "lower"]
