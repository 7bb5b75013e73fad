"""Old names of a fabric file's keys, which are read for one release: each is reported once with its new name."""

from __future__ import annotations

from genie.config.strict_toml import Document, dotted
from genie.record import warn_of_old_name

OLD_KEYS: dict[tuple[str, ...], str] = {
    ("congestion_control",): "congestion",
    ("transport", "congestion_control"): "congestion",
}


def with_new_names(document: Document) -> Document:
    """The document with the new names in its tables. Raises the document's error where both names are given."""
    for old, new in OLD_KEYS.items():
        *tables, last = old
        table = document.data
        for name in tables:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict) or last not in table:
            continue
        if new in table:
            raise document.error(old, f" is the old name of {new}, which is given too: give {new} alone")
        warn_of_old_name(f"{document.name}:{document.line_of(old)}", dotted(old), dotted((*tables, new)))
        document.rename(old, new)
    return document


def new_key(dotted_key: str) -> str:
    """A dotted key of a change, such as "transport.congestion_control", by its new name."""
    for old, new in OLD_KEYS.items():
        old_text = dotted(old)
        if dotted_key == old_text or dotted_key.startswith(f"{old_text}."):
            new_text = dotted((*old[:-1], new)) + dotted_key[len(old_text) :]
            warn_of_old_name("", dotted_key, new_text)
            return new_text
    return dotted_key
