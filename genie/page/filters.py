"""The filter of a page: a form that chooses ranks, a group, links and an iteration for all figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def rank_text(ranks: Iterable[int]) -> str:
    """`0, 1, 2, 7` → `0-2,7`, as the filter's field has them."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def members_of(timeline: pl.DataFrame) -> dict[str, list[int]]:
    """Group → the ranks that take part in its collectives, in the order of groups' names."""
    import polars as pl

    played = timeline.filter(pl.col("kind") == "coll").group_by("group").agg(pl.col("rank").unique())
    found = {str(group): ranks for group, ranks in played.drop_nulls("group").iter_rows()}
    return {group: found[group] for group in sorted(found, key=lambda it: (len(it), it))}


def filter_data(
    ranks: Iterable[int], members: Mapping[str, Iterable[int]], iterations: Sequence[int], has_links: bool
) -> dict[str, Any]:
    """Data of the form and of view.js. `members`: group → its ranks; `has_links`: whether links have names here."""
    return {
        "ranks": rank_text(ranks),
        "members": {group: rank_text(own) for group, own in members.items()},
        "iterations": list(iterations),
        "links": has_links,
    }


def filters(data: Mapping[str, Any]) -> str:
    """The form, shown by view.js. A property with one value has no field."""
    members: Mapping[str, str] = data["members"]
    last = data["ranks"].rpartition(",")[2].rpartition("-")[2]
    fields = []
    if data["ranks"] != last:
        fields.append(
            f'<label>Ranks <input name="rank" size="10" placeholder="0-{escape(last)}" autocomplete="off" '
            'aria-describedby="view-help" spellcheck="false"></label>'
        )
    if len(members) > 1:
        fields.append(f"<label>Group {_choice('group', {name: name for name in members})}</label>")
    if data["links"]:
        fields.append(
            '<label>Link <input name="link" size="14" placeholder="part of a name" autocomplete="off" '
            'spellcheck="false"></label>'
        )
    if len(data["iterations"]) > 1:
        choices = {str(iteration): str(iteration) for iteration in data["iterations"]}
        fields.append(f"<label>Iteration {_choice('iteration', choices)}</label>")
    if not fields:
        return ""
    return (
        '<form id="view" aria-label="Filter of this page" hidden>'
        f'{"".join(fields)}<button type="reset">Reset</button><output id="view-said" role="status"></output>'
        '<span id="view-help" class="aside">Ranks: numbers and ranges, such as 0-7,12.</span></form>'
    )


def _choice(name: str, values: Mapping[str, str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(words)}</option>' for value, words in values.items())
    return f'<select name="{name}"><option value="">all</option>{options}</select>'
