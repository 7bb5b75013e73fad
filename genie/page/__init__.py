"""Common parts of self-contained pages: style, figures, tooltips and swim lanes.

A page consists of HTML parts made in Python (`parts`), data for its figures, and scripts that draw them (`document`).
"""

from genie.page.document import Asset, document
from genie.page.parts import as_table, facts, key, section, select, table
from genie.page.words import amount, count_of, duration, percent, rate, share, times, title_of

__all__ = [
    "Asset",
    "amount",
    "as_table",
    "count_of",
    "document",
    "duration",
    "facts",
    "key",
    "percent",
    "rate",
    "section",
    "select",
    "share",
    "table",
    "times",
    "title_of",
]
