"""The rig's command line: build, run, shell."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rxe.capture import check_path
from rxe.failure import GivenError, RigError, TimeLimitError
from rxe.image import cache_folder, ensure_image
from rxe.network import check_loss
from rxe.packages import COLLECTED, build_wheel, collect
from rxe.rig import GUESTS_MAX, MTU_BYTES, Rig

PASSED, FAILED, WRONG, LACKING = 0, 1, 2, 3
LIMIT_MAX_S = 10**6
CODES: dict[type[RigError], int] = {TimeLimitError: FAILED, GivenError: WRONG}

EXAMPLES = """
examples (RIG is python tests/guests/rxe/rig.py):
  RIG build                                   the guests' image: about a minute, once
  RIG packages build/guest                    Genie and what it imports, for --packages build/guest
  RIG run -- ibv_devinfo                      one guest, one command, its output and exit code
  RIG run --guests 2 --on all -- rdma link    in each guest, one after another
  RIG shell --guests 2 --share . --mtu 4500   guest 1 by hand, this folder at /share; path MTU 4096
  RIG shell --loss 2 --capture rxe.pcap       with loss, and what guest 1 sends and receives

Guests are 10.91.0.1, 10.91.0.2, ... and fd91:6765:6e69:65::1, ...; the host is .254 and ::fe in the namespace that
`run` and `shell` name: `ip netns exec NAME COMMAND` runs a neighbour of the guests.
Needs root, Debian 12 and packages of it; says which are missing.
exit codes: 0 or the command's own; 1 it took too long; 2 usage; 3 the machine lacks something, a guest does not work;
            128 + n the rig was ended by signal n: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""


class ToldToEndError(SystemExit):
    """A signal asked for the end; as with any exception the guests end first."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="rig.py",
        description="Boot virtual machines with Debian's kernel and its soft-RoCE device, on a network of their own.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="do", required=True, metavar="build|packages|run|shell")
    build = commands.add_parser("build", help="make the guests' image from Debian packages, unless the cache has it")
    build.add_argument("--fresh", action="store_true", help="make it anew, with Debian's packages of today")
    packages = commands.add_parser("packages", help="fill a folder with Genie's wheel and what it imports, for guests")
    packages.add_argument("folder", type=Path, metavar="FOLDER", help="made anew")
    packages.add_argument("--wheel", type=Path, metavar="WHEEL", help="a wheel of Genie (built from the checkout)")
    for name, what in (("run", "run a command in guests and leave"), ("shell", "a shell in a guest, on this terminal")):
        one = commands.add_parser(name, help=what)
        one.add_argument(
            "--guests", type=int, default=1, metavar="N", help=f"how many guests to boot, 1 to {GUESTS_MAX} (1)"
        )
        one.add_argument("--on", default="1", metavar="GUEST", help="the guest to use, from 1 (1); `all` for run")
        one.add_argument("--share", type=Path, metavar="FOLDER", help="a folder that guests see as /share")
        one.add_argument("--packages", type=Path, metavar="FOLDER", help="a folder filled by `packages`, as /packages")
        one.add_argument(
            "--mtu", type=int, default=MTU_BYTES, metavar="BYTES", help=f"the Ethernet's MTU ({MTU_BYTES})"
        )
        one.add_argument("--loss", type=float, default=0, metavar="PERCENT", help="of RoCE packets, on the bridge (0)")
        one.add_argument("--capture", type=Path, metavar="PCAP", help="write what guest 1 sends and receives")
        if name == "run":
            one.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="limit of the command (60)")
            one.add_argument("argv", nargs="+", metavar="COMMAND", help="after --: the command and its arguments")
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    given = parser().parse_args(words)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        match given.do:
            case "build":
                return _build(given.fresh)
            case "packages":
                return _packages(given.folder, given.wheel)
            case _:
                return _with_guests(given)
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return next((code for kind, code in CODES.items() if isinstance(error, kind)), LACKING)
    except KeyboardInterrupt:
        _say("interrupted")
        return 128 + signal.SIGINT
    except ToldToEndError as told:
        with contextlib.suppress(OSError):  # SIGHUP: the terminal has gone
            _say(f"told to end by {signal.Signals(told.number).name}")
        return 128 + told.number


def _leave(number: int, _frame: FrameType | None) -> None:
    raise ToldToEndError(number)


def _say(line: str) -> None:
    print(f"rig: {line}", file=sys.stderr, flush=True)


def _build(fresh: bool) -> int:
    began = time.monotonic()
    image = ensure_image(_say, fresh)
    facts = json.loads(image.manifest.read_text())
    _say(f"image {image.folder.name} in {cache_folder()}: kernel {facts['kernel']}, {time.monotonic() - began:.1f} s")
    return PASSED


def _packages(folder: Path, wheel: Path | None) -> int:
    if folder.is_symlink() or (folder.exists() and any(folder.iterdir()) and not (folder / COLLECTED).is_file()):
        raise GivenError(f"{folder} has files in it that the rig did not put there: give an empty folder, or a new one")
    with tempfile.TemporaryDirectory() as scratch:
        taken = wheel or build_wheel(Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        collect(folder, taken)
    _say(f"{folder} holds {taken.name} and what it imports: PYTHONPATH=/packages in guests with --packages {folder}")
    return PASSED


def _with_guests(given: argparse.Namespace) -> int:
    count = given.guests
    if not 1 <= count <= GUESTS_MAX:
        raise GivenError(f"--guests {count}: give 1 to {GUESTS_MAX}")
    numbers = list(range(1, count + 1)) if given.on == "all" and given.do == "run" else [_number(given.on)]
    if not all(1 <= number <= count for number in numbers):
        raise GivenError(f"--on {given.on}: there are guests 1 to {count}" + " and `all`" * (given.do == "run"))
    if given.do == "run" and not 0 < given.timeout <= LIMIT_MAX_S:
        raise GivenError(f"--timeout {given.timeout:g}: give seconds above 0, at most {LIMIT_MAX_S}")
    check_loss(given.loss)
    if given.capture:
        check_path(given.capture)
    began = time.monotonic()
    with Rig(count, given.share, given.packages, given.mtu, _say) as rig:
        _say(
            f"up in {time.monotonic() - began:.1f} s; the host's side is the network namespace {rig.network.namespace}"
        )
        rig.network.lose(given.loss)
        with rig.capture(given.capture) if given.capture else contextlib.nullcontext():
            if given.do == "shell":
                return _shell(rig, numbers[0])
            return _run(rig, numbers, given.argv, given.timeout)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _run(rig: Rig, numbers: Sequence[int], argv: Sequence[str], limit_s: float) -> int:
    code = PASSED
    for number in numbers:
        done = rig.guests[number - 1].run(argv, timeout_s=limit_s)
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
        sys.stderr.write(done.stderr)
        if done.returncode and code == PASSED:
            code = done.returncode if done.returncode > 0 else FAILED
    return code


def _shell(rig: Rig, number: int) -> int:
    """Keys to the guest and its answers here, until its shell ends."""
    columns, lines = os.get_terminal_size() if sys.stdout.isatty() else (80, 24)
    env = {"TERM": os.environ.get("TERM", "dumb"), "COLUMNS": str(columns), "LINES": str(lines)}
    shell = rig.guests[number - 1].start(["bash", "-i"], env=env, folder="/root", terminal=True)

    def feed() -> None:
        while data := os.read(0, 4096):
            shell.write(data)
        shell.write(b"\x04")  # the end of input, as a terminal says it

    raw = sys.stdin.isatty()
    before = termios.tcgetattr(0) if raw else []
    try:
        if raw:
            tty.setraw(0)
        threading.Thread(target=feed, daemon=True).start()
        while (data := shell.take_output(timeout_s=float(LIMIT_MAX_S))) is not None:
            os.write(1, data)
    finally:
        if raw:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    return max(shell.code or 0, 0)
