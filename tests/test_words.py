"""Two rules for words: texts open with their subject (rule 1), and a sentence has 25 words at most (rule 4).

They hold for docstrings, comments and help in Python, for comments in C++, and for every Markdown file, whose lines
have 100 characters at most.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest
from words import (
    LINE_MAX,
    NATIVE_OPENERS,
    OPENERS,
    ROW_MAX,
    WORDS_MAX,
    Text,
    long_sentences,
    opening_problem,
    texts_of,
)

ROOT = Path(__file__).resolve().parent.parent


def written(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


NATIVE = [text for path in written("*.cpp", "*.hpp") for text in texts_of(path)]
TEXTS = [text for path in written("*.py", "*.pyi", "*.md") for text in texts_of(path)]


def bad_openings(texts: Iterable[Text], openers: Collection[str]) -> str:
    return "\n".join(
        f"{text.path.relative_to(ROOT)}:{text.line}: {text.kind} opens with {opener!r}: {text.text[:60]!r}"
        for text in texts
        if (opener := opening_problem(text.text, openers))
    )


def test_no_text_opens_with_what_or_who() -> None:
    assert not bad_openings(TEXTS, OPENERS)


def test_no_native_comment_opens_with_a_question_word() -> None:
    assert NATIVE
    assert not bad_openings(NATIVE, NATIVE_OPENERS)


def test_sentences_are_short() -> None:
    found = [
        f"{text.path.relative_to(ROOT)}:{text.line}: {count} words, at most {WORDS_MAX}: {sentence}"
        for text in (*TEXTS, *NATIVE)
        for count, sentence in long_sentences(text.text)
    ]
    assert not found, "\n".join(found)


def test_lines_of_documents_wrap() -> None:
    found = []
    for path in written("*.md"):
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            longest = ROW_MAX if line.lstrip().startswith("|") else LINE_MAX
            if len(line) > longest and not fenced and " " in line.strip():
                found.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} characters, at most {longest}")
            if line.startswith("%") and not fenced:
                found.append(f"{path.relative_to(ROOT)}:{number}: the site takes this line for a comment")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "opener"),
    [
        ("What a rank does.", "What"),
        ("# Who says so\n", "Who"),
        ("`Whose` turn it is", "Whose"),
        ("- What a rank does.", "What"),
        ("1. Who says so.", "Who"),
        ("A rank does it.", ""),
    ],
)
def test_openings_that_the_rule_forbids(text: str, opener: str) -> None:
    assert opening_problem(text) == opener


def test_native_comments_are_found(tmp_path: Path) -> None:
    path = tmp_path / "port.hpp"
    path.write_text(
        "// A port\n// of a NIC.\n//\n// Its time.\n"
        'const char* url = "http://nic";  // behind a string\n'
        "int rate = 100'000'000;  // behind a number\n"
    )
    assert [(text.line, text.text.strip()) for text in texts_of(path)] == [
        (1, "A port\nof a NIC."),
        (3, "Its time."),
        (5, "behind a string"),
        (6, "behind a number"),
    ]


def test_words_are_counted_by_sentence() -> None:
    short = "The walker starts a node, e.g. a send (of at most 64 KiB each, as NCCL has it). " * 5
    assert not list(long_sentences(short))
    assert [count for count, _ in long_sentences(" ".join(["word"] * 26) + ".")] == [26]
    assert not list(long_sentences("\n".join(f"- {' '.join(['word'] * 20)}" for _ in range(3))))
