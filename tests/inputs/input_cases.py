"""One case: files in a folder of their own, the command in this process, and what may be wrong with its end."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

LINE_MAX = 2500  # of an error
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
KNOWN_CODES = (0, 1, 2, 3, 4)


@dataclass
class Outcome:
    """How a command ended, and what it said."""

    code: int
    output: str
    error: str
    seconds: float
    arguments: str = ""


def run_case(make: Callable[[Random], object], rng: Random, folder: Path, *, keep: bool = False) -> Outcome:
    """Make the files of a case, and run its command on them."""
    folder.mkdir()
    before = Path.cwd()
    os.chdir(folder)
    try:
        command = make(rng)
        began = time.monotonic()
        with _captured(folder.with_suffix(".out"), folder.with_suffix(".err")) as read:
            code = _run(command)
            output, error = read()
        shown = " ".join(command) if isinstance(command, list) else "a reader alone"
        return Outcome(code, output[-3000:], error[-6000:], time.monotonic() - began, shown)
    finally:
        os.chdir(before)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
            for suffix in (".out", ".err"):
                folder.with_suffix(suffix).unlink(missing_ok=True)


def judge(outcome: Outcome) -> str:
    """The fault in the way a command ended; "" when there is none."""
    said = outcome.output + outcome.error
    if "Traceback (most recent call last)" in said or "panicked at" in said:
        return "a traceback"
    if outcome.code not in KNOWN_CODES:
        return f"exit code {outcome.code}"
    if CONTROLS.search(said):
        return f"a raw control character {CONTROLS.search(said)!r}"
    lines = outcome.error.strip().splitlines()
    if outcome.code in (2, 3) and (not lines or not lines[-1].startswith("genie: ")):
        return f"exit code {outcome.code} and no line that says why"
    if any(len(line) > LINE_MAX for line in lines):
        return "a line of an error that is too long"
    if outcome.code == 3 and "memory ran out" in outcome.error:
        return "memory was short"
    if outcome.code == 0 and any(word in outcome.error for word in ("cannot be read", "is damaged", "not JSON")):
        return "exit code 0 for a file that was refused"
    return ""


def _run(command: object) -> int:
    from genie.cli import main as cli

    if callable(command):
        return _call(command)
    assert isinstance(command, list)
    variables = {name: value for name, _, value in (w.partition("=") for w in command if re.match("[A-Z_]+=", w))}
    sys.argv = ["genie", *(word for word in command if not re.match("[A-Z_]+=", word))]
    os.environ.update(variables)
    try:
        cli.main()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    finally:
        for name in variables:
            del os.environ[name]
    return 0


def _call(read: Callable[[], object]) -> int:
    """A reader that has no command of its own, under the command line's last handler."""
    from genie.cli import main as cli

    before = cli.app
    cli.app = lambda **_: read() and None  # type: ignore[assignment]
    try:
        sys.argv = ["genie", "a", "reader"]
        cli.main()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    finally:
        cli.app = before
    return 0


@contextmanager
def _captured(out: Path, err: Path) -> Iterator[Callable[[], tuple[str, str]]]:
    """Standard output and error in files, native code's too."""
    kept = os.dup(1), os.dup(2)
    sys.stdout.flush()
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)

    def read() -> tuple[str, str]:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        texts = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
        return texts[0], texts[1]

    try:
        yield read
    finally:
        for number, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, number)
            os.close(saved)
