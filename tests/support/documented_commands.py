"""Commands of a page that run as they are written, in one folder, on a machine with the names of a small cluster."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from documents import BLOCKS, FENCED, OUTPUTS, PAGES, ROOT, Command, parsed
from live_runs import rings

from genie.lab import down, names_of

PROGRAMS = Path(sys.executable).parent
LIMIT_S = 400  # of one command
MACHINES = {"10.1.0": "gpu0", "10.0.0": "node"}  # networks of the pages, and the names of their machines

# -- the commands of a page -------------------------------------------------------------------------------------------


def key(command: Command) -> tuple[object, ...]:
    return command.words, command.variables, command.is_launched


def made_by(command: Command) -> list[str]:
    """The files and folders that a command writes; `genie calibrate` writes into its hosts file."""
    outputs = {*OUTPUTS, "hosts"} if command.name == "calibrate" else OUTPUTS
    return [str(value) for name, value in parsed(command).items() if name in outputs and value]


def reads(command: Command, outputs: Sequence[str]) -> bool:
    """Whether a command takes one of these outputs, or a file in one, as its input."""
    inputs = set(command.words) - set(made_by(command))
    return any(word == made or word.startswith(f"{made}/") for word in inputs for made in outputs)


def unseen(page: Path, is_left_out: Callable[[Command], bool]) -> list[Command]:
    """The commands of a page that no other test and no page before it runs, and those whose outputs they take."""
    earlier = {key(command) for command in FENCED if PAGES.index(command.page) < PAGES.index(page)}
    own = [command for command in FENCED if command.page == page and not is_left_out(command)]
    kept: list[Command] = []
    for at, command in reversed(list(enumerate(own))):
        is_first = key(command) not in earlier and key(command) not in map(key, own[:at])
        is_new = is_first and not command.is_quick
        if is_new or any(reads(other, made_by(command)) for other in kept):
            kept.append(command)
    return kept[::-1]


def needs_pytorch(page: Path) -> list[Command]:
    """`genie capture` of a page, and the commands that take what it writes."""
    own = [command for command in FENCED if command.page == page]
    made = [output for command in own if command.name == "capture" for output in made_by(command)]
    return [command for command in own if command.name == "capture" or reads(command, made)]


# -- files in place of placeholders -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The folder of a page."""

    folder: Path
    page: Path
    data: Path  # shared test data


Source = Callable[[Path, Place], None]


def copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.suffix == ".gz" and target.suffix != ".gz":
        target.write_bytes(gzip.decompress(source.read_bytes()))
    else:
        shutil.copyfile(source, target)


def of_project(name: str) -> Source:
    return lambda target, _: copied(ROOT / name, target)


def of_data(name: str) -> Source:
    return lambda target, place: copied(place.data / name, target)


def of_archive(name: str) -> Source:
    """The folder in an archive of the shared data, under another name."""

    def unpack(target: Path, place: Place) -> None:
        with tarfile.open(place.data / name) as archive:
            archive.extractall(target, filter="data")
        (inner,) = target.iterdir()
        for path in inner.iterdir():
            path.rename(target / path.name)
        inner.rmdir()

    return unpack


def of_text(text: str) -> Source:
    def write(target: Path, _: Place) -> None:
        target.write_text(text)

    return write


def of_block(words: str, replaced: Mapping[str, str] | None = None, page: str = "") -> Source:
    """The block of the page, or of another, that has these words, with other values in place of some."""

    def write(target: Path, place: Place) -> None:
        name = page or place.page.name
        (text,) = [block.text for block in BLOCKS if block.page.name == name and words in block.text]
        for old, new in (replaced or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        target.write_text(f"{text}\n")

    return write


def of_rings(ranks: int) -> Source:
    """A trace of short all-reduces."""

    def write(target: Path, _: Place) -> None:
        shutil.rmtree(target, ignore_errors=True)
        rings(target, ranks, size_bytes=1 << 18)

    return write


def place(files: Mapping[str, Source], at: Place) -> None:
    for name, source in files.items():
        target = at.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source(target, at)


# -- the machine ------------------------------------------------------------------------------------------------------

SET_UP = """
mount --bind NAMES /etc/hosts
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
{addresses}
echo ready
exec sleep 3600
"""


@dataclass
class Ended:
    """A command that has ended."""

    line: str
    folder: Path
    code: int
    stdout: str
    stderr: str
    took_s: float = 0.0

    def __str__(self) -> str:
        said = f"{self.stdout[-3000:]}\n-- standard error\n{self.stderr[-5000:]}"
        return f"{self.line}\nin {self.folder}\nexit code {self.code} after {self.took_s:.1f} s\n{said}"


@dataclass
class Machine:
    """A place where commands run: `inside` goes before a command."""

    inside: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self, line: str, folder: Path) -> subprocess.Popen[str]:
        environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", **self.variables}
        return subprocess.Popen(
            [*self.inside, "bash", "-c", line], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def run(self, line: str, folder: Path) -> Ended:
        """Run a line of shell; with RANK=0 before it, the other ranks too."""
        began = time.monotonic()
        world = re.search(r"\bRANK=0 WORLD_SIZE=(\d+)", line)
        others = [
            self.start(line.replace("RANK=0", f"RANK={rank}", 1), folder)
            for rank in range(1, int(world[1]) if world else 1)
        ]
        processes = [self.start(line, folder), *others]
        try:
            ended = [process.communicate(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, 15)
                    process.wait(30)
        code = max((process.returncode for process in processes), key=abs)
        stdout, stderr = ("".join(each) for each in zip(*ended, strict=True))
        return Ended(line, folder, code, stdout, stderr, time.monotonic() - began)


@contextmanager
def small_cluster(folder: Path) -> Iterator[Machine]:
    """A network namespace with the names and addresses of the pages' machines; its labs end with it."""
    names = folder / "NAMES"
    rows = [(f"{network}.{number}", f"{name}{number}") for network, name in MACHINES.items() for number in range(1, 9)]
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in rows))
    addresses = "\n".join(f"ip addr add {address}/32 dev lo" for address, _ in rows)
    holder = subprocess.Popen(
        ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", SET_UP.format(addresses=addresses)],
        cwd=folder, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield Machine(("nsenter", "-t", str(holder.pid), "--net", "--mount", f"--wd={folder}"))
    finally:
        for fabric in folder.rglob("*.toml"):
            for name in names_of(fabric):
                down(name)
        holder.kill()
        holder.wait()


# -- how a command ends ------------------------------------------------------------------------------------------------

VERDICTS = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 4}
# Other exit codes than 0, by words of the command: the reason.
CODES: list[tuple[str, tuple[int, ...], str]] = [
    ("genie doctor", (0, 3), "a machine may lack something"),
    ("genie compare", (0, 1, 4), "a busy machine makes runs slower"),
    ("--baseline", (0, 1, 4), "the same"),
    ("host3-leaf0 mtu=1500", (1,), "the check finds the fault"),
    ("genie check", (0, 1), "one direction may look slow on a busy machine"),
    ("genie validate", (0, 1, 4), "faults, and a busy machine, which leaves NICs unjudged"),
    ("genie diff", (0, 1, 4), "the same"),
]
SAYS = {
    "validate": r"^(PASS|FAIL|INCONCLUSIVE) ",
    "diff": r"^(PASS|FAIL|INCONCLUSIVE) ",
    "compare": r"^(SAME|FASTER|SLOWER|INCONCLUSIVE) ",
    "check": r"^\d+ hosts, \d+ pairs",
    "demo": r"^slow-nic: FAIL rank 5",
    "run": r"ranks? played",
    "calibrate": r"^packet latency",
    "simulate": r"ms an iteration|^time: ",
    "bench": r"^ ?#|heat map|rank",
    "capture": r"rank",
}


def replaced(text: str, values: Mapping[str, str]) -> str:
    for old, new in values.items():
        text = text.replace(old, new)
    return text


def judge(command: Command, ended: Ended, at: Place, values: Mapping[str, str] | None = None) -> None:
    """Check the exit code, the words of its kind, and the outputs of a command. `values`: replaced in its line."""
    codes = next((codes for words, codes, _ in CODES if words in command.line), (0,))
    assert ended.code in codes, str(ended)
    assert "Traceback (most recent call last)" not in ended.stdout + ended.stderr, str(ended)
    if says := SAYS.get(command.name):
        assert re.search(says, ended.stdout + ended.stderr, re.MULTILINE), str(ended)
    if command.name in ("validate", "diff") and "||" not in command.line and "--baseline" not in command.line:
        verdict = re.search(SAYS["validate"], ended.stdout, re.MULTILINE)
        assert verdict is not None, str(ended)
        assert VERDICTS[verdict[1]] == ended.code, str(ended)
    for made in made_by(command):
        assert (at.folder / replaced(made, values or {})).exists(), f"{made} is not there\n{ended}"
