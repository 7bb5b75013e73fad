"""The documents as tests see them: blocks of code, and the commands of Genie in them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from genie.cli.main import COMMANDS, load_command
from genie.job import options, outputs

ROOT = Path(__file__).resolve().parents[2]
GENIE = Path(sys.executable).parent / "genie"
SAMPLES = [ROOT / "hosts", ROOT / "hosts" / "fabrics"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *(folder / "README.md" for folder in SAMPLES)]

LAUNCHERS = ("mpirun", "mpiexec", "srun")
OPERATORS = re.compile(r"[|&;()<>]+")
PLACEHOLDER = re.compile(r"[A-Z]")  # of a path: TRACE, FABRIC.toml, SimAI.conf
OUTPUTS = {"out", "as_json", "metrics", "target"}
GROUPS = (
    options.TrafficOptions, options.LiveOptions, options.LabOptions, options.TwinOptions, outputs.VerdictOptions,
    outputs.OutputOptions,
)  # fmt: skip

ids = [str(page.relative_to(ROOT)) for page in PAGES]


# -- blocks of code ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of its first line
    language: str
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    language, start, lines = "", 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.lstrip().startswith("```"):
            lines.append(line)
        elif start:
            yield Block(page, start, language, "\n".join(lines))
            start = 0
        else:
            language, start, lines = line.strip().strip("`"), number + 1, []


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def batch_scripts(folder: Path) -> list[Path]:
    """Write the batch scripts of docs/on-slurm.md into a folder, in their order there."""
    texts = [block.text for block in BLOCKS if block.page.name == "on-slurm.md" and block.text.startswith("#!/")]
    paths = [folder / f"job-{number}.sbatch" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(f"{text}\n")
        path.chmod(0o755)
    return paths


@dataclass(frozen=True)
class Command:
    """A `genie` command of a page, without the program's name."""

    where: str
    page: Path
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]  # of the environment, before the command
    is_launched: bool  # by mpirun, srun or the like

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def line(self) -> str:
        """The line of shell."""
        return self.where.partition(": ")[2]

    @property
    def is_quick(self) -> bool:
        """Whether tests/test_docs.py runs the command."""
        return self.words in QUICK and not self.variables and not self.is_launched


def words_of(line: str) -> list[str]:
    """The words of a line of shell up to its first operator, without a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    ends = (at for at, word in enumerate(words) if OPERATORS.fullmatch(word))
    return words[: next(ends, len(words))]


def command_of(words: list[str], where: str, page: Path) -> Command | None:
    variables = []
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables.append((name, value))
    if not words or words[0] not in ("genie", *LAUNCHERS):
        return None
    is_launched = words[0] in LAUNCHERS
    if "genie" not in words:
        return None
    given = words[words.index("genie") + 1 :]
    while given and given[0] in ("-v", "-q", "--verbose", "--quiet"):
        given.pop(0)
    if given and given[0] == "--read-limit":
        given = given[2:]
    return Command(where, page, tuple(given), tuple(variables), is_launched)


def commands_of(block: Block) -> Iterator[Command]:
    text = block.text.replace("\\\n", " ")  # lines that go on
    for line in text.splitlines():
        if re.match(r"\s*(\$ )?([A-Z_]+=\S+ )*(genie|mpirun|mpiexec|srun) ", line):
            where = f"{block.page.relative_to(ROOT)}:{block.line}: {line.strip()}"
            if command := command_of(words_of(line.strip().removeprefix("$ ")), where, block.page):
                yield command


def commands_in_tables(page: Path) -> Iterator[Command]:
    """Commands between backquotes, in tables and in sentences, that have an argument."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for span in re.findall(r"`((?:[A-Z_]+=\S+ )*(?:genie|mpirun|srun) [^`]+)`", line):
            command = command_of(words_of(span), f"{page.relative_to(ROOT)}:{number}: {span}", page)
            if command is not None and len(command.words) > 2 and not is_unfinished(command):
                yield command


FENCED = [command for block in BLOCKS if block.language in ("sh", "bash", "text", "") for command in commands_of(block)]


def line_with(words: str) -> str:
    """Return the line of shell of the only fenced command that has these words."""
    (line,) = [command.line for command in FENCED if words in command.line]
    return line


def runs_quickly(command: Command) -> bool:
    """Whether a command needs no other host, no root and little time."""
    words = command.words
    if command.is_launched:
        return False
    match command.name:
        case "doctor":
            return True
        case "inspect":
            return "--operators" not in words  # of a trace from a GPU
        case "generate":
            return "DIR/config.json" not in words
        case "simulate":
            # Traces that another command of the page makes may be made by another process of the tests.
            is_made = any(word.startswith(("traces/", "ns3-job/traces")) for word in words)
            return "--follow" not in words and "ALLREDUCE" not in str(words) and not is_made
        case "check":
            return "--schedule" in words
        case "bench":
            return "--simulate" in words
        case "sweep":
            return "--dry-run" in words
        case "lab":
            return words[1:] == ("status",)
        case "convert":
            return "msccl" in words
    return False


QUICK = list(dict.fromkeys(command.words for command in FENCED if runs_quickly(command)))


@cache
def loaded(name: str) -> Any:
    return load_command(name)


@cache
def parsed(command: Command) -> Mapping[str, Any]:
    """The parameters of a command, as its own parser reads them; nothing is run."""
    assert command.name in COMMANDS, f"{command.where}: genie {command.name} is no command"
    parser, rest = loaded(command.name), list(command.words[1:])
    name = command.name
    while getattr(parser, "commands", None):
        assert rest, f"{command.where}: no such command"
        assert rest[0] in parser.commands, f"{command.where}: no such command"
        name = rest.pop(0)
        parser = parser.commands[name]
    context = parser.make_context(name, rest)
    values: Mapping[str, Any] = context.params
    return values


def is_unfinished(command: Command) -> bool:
    """Whether a command in a sentence lacks an argument, as in `genie validate --metrics FILE`."""
    try:
        parsed(command)
    except Exception as error:
        return type(error).__name__ == "MissingParameter"
    return False


@cache
def written() -> tuple[Command, ...]:
    return (*FENCED, *(command for page in PAGES for command in commands_in_tables(page)))
