"""Text of the project and two rules for it: how it opens (rule 1) and how long its sentences are (rule 4)."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

WORDS_MAX = 25  # of a sentence
LINE_MAX = 100  # characters of a line of Markdown
ROW_MAX = 120  # of a table, which cannot wrap
OPENERS = {"what", "who", "whose", "whom", "whoever", "whatever", "somebody", "someone", "nobody", "anybody"}
NATIVE_OPENERS = OPENERS | {"which", "whichever", "whether", "how", "why"}
CODE = re.compile(r"`[^`]*`|<[^>\s]+>|\[\[?[a-z_. ]+\]\]?|https?://\S+|\([^()]*\)")
END = re.compile(r"[.!?](?=\s|$)|\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.)\s)")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|Fig|Eq|No|Sec|Ch)\.", re.IGNORECASE)
WORD = re.compile(r"[^\s/]*\w[^\s]*")
STRING_OR_COMMENT = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])'|//.*""")  # of C++, on one line
Comment = tuple[int, str, bool]  # line, words, true if the line has nothing else


@dataclass(frozen=True)
class Text:
    """A docstring, a block of comments, a string of help, or a paragraph of Markdown."""

    path: Path
    line: int
    text: str
    kind: str


def texts_of(path: Path) -> Iterator[Text]:
    """All texts of a Python, a Markdown or a C++ file."""
    if path.suffix == ".md":
        yield from _of_markdown(path)
    elif path.suffix in (".py", ".pyi"):
        source = path.read_text()
        yield from _docstrings(path, source)
        yield from _blocks(path, _comments(source))
        yield from _help(path, source)
    elif path.suffix in (".cpp", ".hpp"):
        yield from _blocks(path, _native_comments(path.read_text()))


def opening_problem(text: str, openers: Collection[str] = OPENERS) -> str:
    """The opener that rule 1 forbids, "" where the text opens well. The mark of a list's item is no part of it."""
    first = re.match(r"\s*(?:(?:[-*]|\d+\.)\s+)?[#*`\s\"']*([A-Za-z]+)", text)
    return first[1] if first and first[1].lower() in openers else ""


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences with more than WORDS_MAX words, and how many these have. Code, addresses and brackets are one word."""
    plain = ABBREVIATION.sub(lambda found: found[0].replace(".", ""), text)
    for sentence in END.split(CODE.sub(" it ", plain)):
        count = len(WORD.findall(sentence))
        if count > WORDS_MAX:
            yield count, " ".join(sentence.split())


def _docstrings(path: Path, source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                prose = re.sub(r"(?m)^ {4}.*$", "", inspect.cleandoc(first.value.value))  # without examples of code
                yield Text(path, first.lineno, prose, "docstring")


def _comments(source: str) -> Iterator[Comment]:
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            words = token.string.lstrip("#").strip()
            if not re.match(r"(type:|noqa|fmt:|pragma|!)", words):
                yield number, words, not lines[number - 1][:column].strip()


def _native_comments(source: str) -> Iterator[Comment]:
    for number, line in enumerate(source.splitlines(), start=1):
        for token in STRING_OR_COMMENT.finditer(line):
            if token[0].startswith("//"):
                yield number, token[0].lstrip("/").strip(), not line[: token.start()].strip()


def _blocks(path: Path, comments: Iterable[Comment]) -> Iterator[Text]:
    """Comments on lines of their own that follow each other are one text; one behind code is a text of its own.

    An empty comment ends a text, as between the paragraphs of a file's head.
    """
    block: list[str] = []
    start = last = 0
    for number, words, own_line in comments:
        if block and own_line and number == last + 1 and words:
            block.append(words)
        else:
            if block:
                yield Text(path, start, "\n".join(block), "comment")
            block, start = [words], number
        last = number if own_line else -1
    if block:
        yield Text(path, start, "\n".join(block), "comment")


def _help(path: Path, source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        is_help = isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant)
        if is_help and isinstance(node.value.value, str):
            yield Text(path, node.value.lineno, node.value.value, "help")


def _of_markdown(path: Path) -> Iterator[Text]:
    fenced, block, start = False, [], 0
    for number, line in enumerate([*path.read_text().splitlines(), ""], start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        is_item = bool(re.match(r"\s*(?:[-*]|\d+\.)\s|\s*\||#", line))
        if block and (fenced or not line.strip() or is_item):
            yield Text(path, start, "\n".join(block), "heading" if block[0].startswith("#") else "paragraph")
            block = []
        if not fenced and line.strip() and not line.lstrip().startswith("```"):
            for cell in line.strip().strip("|").split("|") if line.lstrip().startswith("|") else [line]:
                if line.lstrip().startswith("|"):
                    if cell.strip(" -:"):
                        yield Text(path, number, cell.strip(), "cell")
                    continue
                if not block:
                    start = number
                block.append(cell)
