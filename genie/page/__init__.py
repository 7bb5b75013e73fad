"""Common parts of self-contained pages: style, figures, tooltips and swim lanes.

A page consists of HTML parts made in Python (`parts`), data for its figures, and scripts that draw them (`document`).
"""

from genie.page.document import PAGE_BYTES_MAX, Asset, document
from genie.page.filters import filter_data, filters, members_of, rank_text
from genie.page.parts import Keys, Linked, Quantity, as_table, facts, key, quantity, section, select, table
from genie.page.words import amount, count_of, duration, percent, rate, share, times, title_of

__all__ = [
    "PAGE_BYTES_MAX",
    "Asset",
    "Keys",
    "Linked",
    "Quantity",
    "amount",
    "as_table",
    "count_of",
    "document",
    "duration",
    "facts",
    "filter_data",
    "filters",
    "key",
    "members_of",
    "percent",
    "quantity",
    "rank_text",
    "rate",
    "section",
    "select",
    "share",
    "table",
    "times",
    "title_of",
]
