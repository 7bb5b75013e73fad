"""Shared arguments of the benchmarks, for argparse; wrong values are refused before any measurement."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNT_MAX = 10**9


def whole(least: int, most: int = COUNT_MAX) -> Callable[[str], int]:
    """Parser of an integer in a range."""

    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20 and least <= int(text) <= most):
            allowed = f"{least} or more" if most == COUNT_MAX else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"{text}: give {allowed}")
        return int(text)

    return parse


positive = whole(1)


def results_file(text: str) -> Path:
    """A path at which a file can be written after the measurements."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else f"has no folder {path.parent} to lie in"
        raise argparse.ArgumentTypeError(f"{path} {wrong}: give a file's name in a folder that is there")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} may not be written: give a file's name in a folder of your own")
    return path


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, as all benchmarks have it."""
    parser.add_argument("--json", type=results_file, metavar="FILE", help="write the results here too")


def list_of(parse_one: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Parser of a comma-separated list."""
    return lambda text: tuple(parse_one(word) for word in text.split(","))


def some_of(known: tuple[Any, ...]) -> Callable[[str], tuple[Any, ...]]:
    """Parser of a comma-separated choice."""

    def parse(text: str) -> tuple[Any, ...]:
        by_name = {str(value): value for value in known}
        if not text or not set(text.split(",")) <= set(by_name):
            raise argparse.ArgumentTypeError(f"{text}: give some of {', '.join(by_name)}")
        return tuple(by_name[name] for name in text.split(","))

    return parse


if __name__ == "__main__":
    print(f"{__doc__}\nNot a benchmark: run one that uses them.")
