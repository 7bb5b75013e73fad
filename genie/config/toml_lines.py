"""Lines of the keys in a TOML text, for error messages; tomllib does not report them."""

from __future__ import annotations

import re

Key = tuple[str | int, ...]  # ("topology", "link", 2, "rate"): the rate of the third [[topology.link]]

_NAME = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_NAMES = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_NAMES})[ \t]*\]")
_ASSIGNMENT = re.compile(rf"[ \t]*({_NAMES})[ \t]*=")
# Strings, which may contain brackets and hash signs, then brackets, then comments.
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[\[\]{}]|#[^\n]*|\n',
    re.DOTALL,
)


def key_lines(text: str) -> dict[Key, int]:
    """Line, from 1, of each table header and each assignment in a valid TOML text.

    Keys in inline tables and in arrays are not listed; use the line of the enclosing assignment for them.
    """
    lines: dict[Key, int] = {}
    counts: dict[Key, int] = {}  # number of elements seen of each array of tables
    table: Key = ()
    for position, line in _statements(text):
        if header := _HEADER.match(text, position):
            names = _split(header[2])
            table = _resolve(names[:-1], counts) + names[-1:]
            if header[1] == "[[":
                lines.setdefault(table, line)
                counts[table] = counts.get(table, 0) + 1
            table = _resolve(names, counts)
            lines[table] = line
        elif assignment := _ASSIGNMENT.match(text, position):
            names = _split(assignment[1])
            for n in range(1, len(names) + 1):
                lines.setdefault(table + names[:n], line)
    return lines


def _statements(text: str) -> list[tuple[int, int]]:
    """Offset and line number of each line that starts outside strings and brackets."""
    starts = [(0, 1)]
    depth, line = 0, 1
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        line += word.count("\n")
        if word == "\n" and depth == 0:
            starts.append((token.end(), line))
    return starts


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, names))


def _resolve(names: tuple[str, ...], counts: dict[Key, int]) -> Key:
    """The names of a header, with the index of the current element after each array of tables."""
    key: Key = ()
    for name in names:
        key += (name,)
        if key in counts:
            key += (counts[key] - 1,)
    return key


def table_span(text: str, table: Key) -> tuple[int, int] | None:
    """Offsets of a table's header and of the end of its last assignment's line; None if the table is absent.

    Comments and blank lines after the last assignment belong to the text that follows.
    """
    statements = _statements(text)
    start: int | None = None
    end = 0
    for n, (position, _) in enumerate(statements):
        after = statements[n + 1][0] if n + 1 < len(statements) else len(text)
        header = _HEADER.match(text, position)
        if start is not None and header:
            break
        if header and _split(header[2]) == table:
            start, end = position, after
        elif start is not None and _ASSIGNMENT.match(text, position):
            end = after
    return None if start is None else (start, end)
