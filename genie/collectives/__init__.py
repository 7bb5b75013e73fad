"""Collective algorithms as data: group size, bytes and channels in, message templates out."""

from genie.collectives.lower import ALGORITHMS, LoweringError, block_sizes, choose, lower
from genie.collectives.template import Action, Template

__all__ = ["ALGORITHMS", "Action", "LoweringError", "Template", "block_sizes", "choose", "lower"]
