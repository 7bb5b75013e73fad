"""Where keys stand in a TOML text."""

from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from genie.config.toml_lines import key_lines, table_span

TEXT = '''\
# a comment with [brackets] and key = 1
top = "a # no comment ] here"

[table]   # header
a.b = 1
"quoted key" = """
[not.a.header]
x = 1
"""
list = [  # [
  1,
  { inner = 2 },
]
after = 3
[[items]]
name = 'one'
[items.sub]
deep = 1

  [[ items ]]
name = 'two # [x]'
[items.sub]
deep = 2
'''


def test_lines_of_keys() -> None:
    lines = key_lines(TEXT)
    assert tomllib.loads(TEXT)["items"][1]["sub"]["deep"] == 2
    assert lines == {
        ("top",): 2,
        ("table",): 4,
        ("table", "a"): 5,
        ("table", "a", "b"): 5,
        ("table", "quoted key"): 6,
        ("table", "list"): 10,
        ("table", "after"): 14,
        ("items",): 15,
        ("items", 0): 15,
        ("items", 0, "name"): 16,
        ("items", 0, "sub"): 17,
        ("items", 0, "sub", "deep"): 18,
        ("items", 1): 20,
        ("items", 1, "name"): 21,
        ("items", 1, "sub"): 22,
        ("items", 1, "sub", "deep"): 23,
    }


@settings(max_examples=100, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.text(" ab#[]{}=", max_size=8)), min_size=1, max_size=12))
def test_strings_and_comments_hide_nothing(parts: list[tuple[bool, str]]) -> None:
    """One assignment a line, its value or its comment full of brackets: line n holds key n."""
    text = "".join(
        f'k{n} = "{noise}"\n' if in_string else f"k{n} = 1 #{noise}\n" for n, (in_string, noise) in enumerate(parts)
    )
    tomllib.loads(text)
    assert key_lines(text) == {(f"k{n}",): n + 1 for n in range(len(parts))}


def test_the_span_of_a_table_ends_with_its_last_assignment() -> None:
    span = table_span(TEXT, ("table",))
    assert span is not None
    assert TEXT[span[0] :].startswith("[table]")
    assert TEXT[span[1] :].startswith("[[items]]")
    assert table_span(TEXT, ("not", "a", "header")) is None
