"""Text files of other simulators, word by word; each value knows its place in the file and its allowed range."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from genie.config.units import DURATION_MAX_PS, DURATION_UNITS_PS, RATE_MAX_BPS, Duration, Rate, parse_rate
from genie.errors import InputError
from genie.inputs.content import ContentError, read_text

PS_PER_US = 10**6
DURATION_MAX_US = DURATION_MAX_PS // PS_PER_US
DURATION_MAX_S = DURATION_MAX_PS // 10**12
SHOWN_CHARACTERS = 40

_WHOLE = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,4})?")
_DELAY = re.compile(rf"({_NUMBER.pattern})(ms|us|ns|ps|s)")


class ForeignFileError(InputError):
    """A file of another tool that the twin cannot play; one line that names file, line, key and the allowed values."""


@dataclass(frozen=True)
class Value:
    """The text of a key, with its place in the file."""

    path: Path
    line: int  # 0: not in the file, but the key's default
    key: str
    text: str

    def error(self, what: str) -> ForeignFileError:
        """Return an error with the value's place in the file."""
        if self.line == 0:
            return ForeignFileError(f"{self.path}: {self.key} {shown(self.text)}, its default: {what}")
        return ForeignFileError(f"{self.path}:{self.line}: {self.key} {shown(self.text) or '(nothing)'}: {what}")

    def note(self, what: str) -> str:
        """Return a warning with the value's place in the file."""
        return f"{self.path}:{self.line}: {shown(what, 100)}"

    def whole(self, least: int, most: int) -> int:
        if not _WHOLE.fullmatch(self.text) or not least <= int(self.text) <= most:
            raise self.error(f"give a whole number from {least} to {most}")
        return int(self.text)

    def number(self, least: float, most: float) -> float:
        if not _NUMBER.fullmatch(self.text) or not least <= float(self.text) <= most:
            raise self.error(f"give a number from {least:.10g} to {most:.10g}")
        return float(self.text)

    def share(self) -> float:
        """Return a number above 0, at most 1."""
        if not _NUMBER.fullmatch(self.text) or not 0 < float(self.text) <= 1:
            raise self.error("give a number above 0 and at most 1")
        return float(self.text)

    def flag(self) -> bool:
        return bool(self.whole(0, 1))

    def rate(self) -> Rate:
        try:
            rate = parse_rate(self.text)
        except ValueError:
            rate = Rate(0)
        if rate == 0:
            raise self.error(f'give a rate of 1 to {RATE_MAX_BPS} b/s with its unit, such as "100Gb/s"')
        return rate

    def delay(self) -> Duration:
        """Return a duration with its unit; "0.001ms" has more digits than a duration in ps may have, and is rounded."""
        match = _DELAY.fullmatch(self.text)
        delay_ps = float(match[1]) * DURATION_UNITS_PS[match[4]] if match else -1.0
        if not 0 <= delay_ps <= DURATION_MAX_PS:
            raise self.error(f'give 0 to {DURATION_MAX_S} s with its unit, such as "0.001ms" (ps, ns, us, ms or s)')
        return Duration(round(delay_ps))

    def micros(self) -> Duration:
        """Return a time given in us, with the resolution of that model: 1 ns."""
        return Duration(round(self.number(0.001, DURATION_MAX_US) * PS_PER_US))

    def by_rate(self, least: float, most: float) -> dict[int, float]:
        """Return a map's numbers by rate in b/s: the text has their count, then a rate and a number of each."""
        words = [Value(self.path, self.line, self.key, word) for word in self.text.split()]
        if not words or len(words) % 2 == 0 or words[0].text != str(len(words) // 2):
            raise self.error("give how many rates there are, then a rate in b/s and a number for each")
        rates = [word.whole(1, RATE_MAX_BPS) for word in words[1::2]]
        return dict(zip(rates, (word.number(least, most) for word in words[2::2]), strict=True))


class Configuration:
    """A file with one key a line, followed by its value. Raises ForeignFileError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, Value] = {}
        for number, line in enumerate(text_of(path).split("\n"), 1):
            if words := line.split(maxsplit=1):
                self._values[words[0]] = Value(path, number, words[0], words[1].strip() if len(words) > 1 else "")

    def value(self, key: str, default: str) -> Value:
        """Return the value of a key, or that model's default."""
        return self._values.get(key) or Value(self.path, 0, key, default)

    def check_kind(self, known: Collection[str]) -> None:
        """Raise ForeignFileError unless one of these keys is there."""
        if not self._values.keys() & set(known):
            raise ForeignFileError(
                f"{self.path}: is not a configuration of SimAI or ns-3: it has no known key; give a SimAI.conf"
            )

    def others(self, known: Collection[str]) -> list[Value]:
        """Return the values of keys that are not among these."""
        return [value for key, value in self._values.items() if key not in known]

    def file(self, key: str) -> Path:
        """Return the file that a key names, beside the configuration or in the folder above."""
        value = self._values.get(key)
        if value is None:
            raise ForeignFileError(f"{self.path}: {key} is missing: is this a configuration of ns-3's RDMA model?")
        name = Path(value.text).name
        for folder in (self.path.parent, self.path.parent.parent):
            if name and (folder / name).is_file():
                return folder / name
        raise value.error(f"is neither in {self.path.parent} nor in {self.path.parent.parent}: put the file there")


class Words:
    """A file's words in order, regardless of line breaks; words after the requested ones give a warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = enumerate(text_of(path).split("\n"), 1)
        self._words = [(number, word) for number, line in lines for word in line.split()]
        self._at = 0

    @property
    def left(self) -> list[Value]:
        """The first few words after the requested ones."""
        return [Value(self.path, line, "", text) for line, text in self._words[self._at : self._at + 8]]

    def row(self, keys: tuple[str, ...]) -> list[Value]:
        """Return the next words, as values with these names."""
        values = []
        for key in keys:
            if self._at == len(self._words):
                line = self._words[-1][0] if self._words else 1
                raise ForeignFileError(f"{self.path}:{line}: the file ends before the {key}: give it")
            line, text = self._words[self._at]
            values.append(Value(self.path, line, f"{key} =", text))
            self._at += 1
        return values

    def count(self, value: Value, rows: int, words_per_row: int) -> int:
        """Return `rows` after checking that the file has that many."""
        there = (len(self._words) - self._at) // words_per_row
        if rows > there:
            raise value.error(f"the file has {there}: give {there}, or add the missing ones")
        return rows


def shown(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """Return text from a file for a message: printable and shortened."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= characters else f"{printable[:characters]}..."


def text_of(path: Path) -> str:
    """Return a file's text. Raises ForeignFileError."""
    try:
        return read_text(path, encoding="utf-8-sig")
    except ContentError as wrong:
        raise ForeignFileError(f"{path}: {wrong}") from wrong
    except (OSError, UnicodeDecodeError) as wrong:
        reason = getattr(wrong, "strerror", None) or "it is not text"
        raise ForeignFileError(f"{path}: cannot be read: {reason}; give a text file") from wrong
