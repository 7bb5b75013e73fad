"""Reading MSCCL's XML: the steps of each thread block of each GPU.

The grammar is that of MSCCL's own parser (microsoft/msccl, src/graph/topo.cc). Lines are kept for messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from genie.inputs.content import ContentError, read_bytes

CHANNELS_MAX = 64  # as a template's
MOVES_MAX = 200_000  # chunks that a file's steps move: far above compilers' output, below the limits of memory
CHUNKS_MAX = 1 << 16  # of a buffer
MEMBERS_MAX = 1 << 10
PROTOCOLS = ("Simple", "LL", "LL128")

# Step types: s(end), r(eceive), c(opy) and r(educe); `nop` only waits.
SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVING = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
REDUCING = frozenset({"rrs", "rrc", "rrcs"})
STEP_TYPES = frozenset({*SENDING, *RECEIVING, "cpy", "re", "nop"})
READS_SOURCE = frozenset({"s", "cpy", "re", *REDUCING})
WRITES_TARGET = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})

# MSCCL's collective -> Genie's operation; custom collectives have no meaning to check.
OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "custom": "custom",
}

_NEEDED = {
    "algo": ("name", "nchunksperloop", "ngpus", "coll"),
    "gpu": ("id",),
    "tb": ("id", "send", "recv", "chan"),
    "step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps"),
}
_KNOWN = {
    "algo": {"proto", "nchannels", "inplace", "outofplace", "minBytes", "maxBytes", "nthreads"},
    "gpu": {"i_chunks", "o_chunks", "s_chunks"},
    "tb": set(),
    "step": {"hasdep"},
}
_INSIDE = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}


class MscclError(ValueError):
    """A file that cannot be used: one line with the file, the line in it, and the problem."""


@dataclass(frozen=True)
class Step:
    line: int
    type: str
    source: tuple[str, int]  # (buffer i, o or s; first chunk)
    target: tuple[str, int]
    chunks: int
    after: tuple[int, int] | None  # (thread block, step) of the same GPU that must be over first
    signals: bool  # other thread blocks may wait for it


@dataclass
class ThreadBlock:
    line: int
    send_peer: int  # -1: none
    receive_peer: int
    channel: int
    steps: list[Step] = field(default_factory=list)


@dataclass
class Gpu:
    line: int
    scratch_chunks: int
    blocks: dict[int, ThreadBlock] = field(default_factory=dict)


@dataclass
class MscclFile:
    """An algorithm as in its file; `gpus[k]` is member k's."""

    where: str  # file name, for messages
    name: str
    op: str
    members: int
    chunks: int  # of the whole buffer: all members' inputs of an all-gather, otherwise one member's
    in_place: bool
    protocol: str
    bytes_min: int  # smallest size for which MSCCL uses the algorithm
    bytes_max: int
    gpus: list[Gpu] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # unknown parts, one line each


def read_msccl(path: str | Path) -> MscclFile:
    """Read a file. Raises MscclError, and OSError if it cannot be opened."""
    try:
        return parse_msccl(read_bytes(path), str(path))
    except ContentError as error:
        raise MscclError(f"{path}: {error}") from error


def parse_msccl(content: bytes, where: str) -> MscclFile:
    """Read MSCCL's XML. `where` names it in messages. Raises MscclError."""
    reader = _Reader(where)
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: reader.open(name, attributes, parser.CurrentLineNumber)
    parser.EndElementHandler = lambda _: reader.close()
    parser.StartDoctypeDeclHandler = lambda *_: reader.fail(parser.CurrentLineNumber, "a document type; remove it")
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise MscclError(f"{where}:{error.lineno}: not XML: {expat.ErrorString(error.code)}") from None
    return reader.finish()


class _Reader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.open_elements: list[str] = []
        self.file: MscclFile | None = None
        self.found: dict[int, Gpu] = {}
        self.gpu: Gpu | None = None
        self.block: ThreadBlock | None = None
        self.moves = 0
        self.unknown: dict[str, int] = {}  # unknown part -> line of its first occurrence

    def fail(self, line: int, what: str) -> None:
        raise MscclError(f"{self.where}:{line}: {what}")

    def open(self, element: str, attributes: dict[str, str], line: int) -> None:
        outer = self.open_elements[-1] if self.open_elements else None
        self.open_elements.append(element)
        if element not in _NEEDED:
            if outer is None:
                self.fail(line, f"<{element}> where <algo> must be: not an algorithm of MSCCL's")
            if outer == "tb":  # it may be a step, without which the algorithm would change
                self.fail(line, f"<{element}> is not understood; a <tb> has <step> only: correct or remove it")
            self.unknown.setdefault(f"element <{element}>", line)
            return
        if outer != _INSIDE[element]:
            self.fail(line, f"<{element}> inside <{outer}>; it belongs into <{_INSIDE[element] or 'nothing'}>")
        for name in _NEEDED[element]:
            if name not in attributes:
                self.fail(line, f"<{element}> has no {name}")
        for name in attributes.keys() - _KNOWN[element] - {*_NEEDED[element]}:
            self.unknown.setdefault(f"{element}'s attribute {name}", line)
        {"algo": self._algo, "gpu": self._gpu, "tb": self._block, "step": self._step}[element](
            _Values(self, attributes, line)
        )

    def close(self) -> None:
        self.open_elements.pop()

    def _algo(self, given: _Values) -> None:
        op = given.one_of("coll", OPERATIONS)
        self.file = MscclFile(
            where=self.where,
            name=given.text["name"],
            op=OPERATIONS[op],
            members=given.number("ngpus", 1, MEMBERS_MAX),
            chunks=given.number("nchunksperloop", 1, CHUNKS_MAX),
            in_place=bool(given.number("inplace", 0, 1, 0)),
            protocol=given.one_of("proto", PROTOCOLS, "Simple"),
            bytes_min=given.number("minBytes", 0, 1 << 50, 0),
            bytes_max=given.number("maxBytes", 0, 1 << 50, 1 << 27),
        )
        if op in ("allgather", "alltoall", "reduce_scatter") and self.file.chunks % self.file.members:
            self.fail(given.line, f"nchunksperloop {self.file.chunks} is not a multiple of ngpus {self.file.members}")

    def _gpu(self, given: _Values) -> None:
        assert self.file is not None
        number = given.number("id", 0, self.file.members - 1)
        if number in self.found:
            self.fail(given.line, f"gpu {number} a second time; the first is in line {self.found[number].line}")
        counts = [given.number(name, 0, CHUNKS_MAX, 0) for name in ("i_chunks", "o_chunks")]
        for name, count, whole in zip(("i_chunks", "o_chunks"), counts, buffer_chunks(self.file), strict=True):
            if count not in (0, whole):
                self.fail(given.line, f"{name} {count}: must be 0 or {whole}, by nchunksperloop {self.file.chunks}")
        self.gpu = self.found[number] = Gpu(given.line, given.number("s_chunks", 0, CHUNKS_MAX, 0))

    def _block(self, given: _Values) -> None:
        assert self.file is not None
        assert self.gpu is not None
        own = next(number for number, gpu in self.found.items() if gpu is self.gpu)
        number = given.number("id", 0, MOVES_MAX)
        if number in self.gpu.blocks:
            self.fail(given.line, f"thread block {number} of gpu {own} a second time")
        peers = {name: given.number(name, -1, self.file.members - 1) for name in ("send", "recv")}
        channel = given.number("chan", 0, CHANNELS_MAX - 1)
        for name, peer in peers.items():
            if peer == own:
                self.fail(given.line, f'{name}="{peer}": gpu {own} itself')
            for other in self.gpu.blocks.values():
                if peer >= 0 and (peer, channel) == (getattr(other, _PEER[name]), other.channel):
                    self.fail(given.line, f'{name}="{peer}" on channel {channel}: line {other.line} has it already')
        self.block = self.gpu.blocks[number] = ThreadBlock(given.line, peers["send"], peers["recv"], channel)

    def _step(self, given: _Values) -> None:
        assert self.gpu is not None
        assert self.block is not None
        kind = given.one_of("type", STEP_TYPES)
        number = given.number("s", 0, MOVES_MAX)
        if number != len(self.block.steps):
            self.fail(given.line, f"step {number} where step {len(self.block.steps)} must be")
        chunks = given.number("cnt", 0 if kind == "nop" else 1, CHUNKS_MAX)
        self.moves += max(chunks, 1)
        if self.moves > MOVES_MAX:
            self.fail(given.line, f"more than {MOVES_MAX} chunks are moved: too many")
        for types, name, peer in (
            (SENDING, "send", self.block.send_peer),
            (RECEIVING, "recv", self.block.receive_peer),
        ):
            if kind in types and peer < 0:
                self.fail(given.line, f"a step of type {kind}, and its thread block has no {name} peer")
        block, step = given.number("depid", -1, MOVES_MAX), given.number("deps", -1, MOVES_MAX)
        if (block < 0) != (step < 0):
            self.fail(given.line, f"depid {block} and deps {step}: both say what to wait for, or both are -1")
        self.block.steps.append(
            Step(
                line=given.line,
                type=kind,
                source=given.place("src", kind in READS_SOURCE),
                target=given.place("dst", kind in WRITES_TARGET),
                chunks=chunks,
                after=None if block < 0 else (block, step),
                signals=bool(given.number("hasdep", 0, 1, 0)),
            )
        )

    def finish(self) -> MscclFile:
        file = self.file
        if file is None:
            raise MscclError(f"{self.where}:1: no <algo>")
        missing = next((number for number in range(file.members) if number not in self.found), None)
        if missing is not None:
            raise MscclError(f"{self.where}:1: ngpus {file.members}, and there is no gpu {missing}")
        file.gpus = [self.found[number] for number in range(file.members)]
        file.notes = [
            f"line {line}: {what} is not understood and changes nothing" for what, line in sorted(self.unknown.items())
        ]
        return file


_PEER = {"send": "send_peer", "recv": "receive_peer"}


class _Values:
    """One element's attributes."""

    def __init__(self, reader: _Reader, text: dict[str, str], line: int) -> None:
        self.reader, self.text, self.line = reader, text, line

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        text = self.text.get(name)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self.reader.fail(self.line, f"{name} {text!r}: must be a whole number from {low} to {high}")
        return value

    def one_of(self, name: str, known: object, default: str | None = None) -> str:
        value = self.text.get(name, default)
        names = sorted(str(item) for item in known)  # type: ignore[attr-defined]
        if value not in names:
            self.reader.fail(self.line, f"{name} {value!r}: must be one of {', '.join(names)}")
        assert value is not None
        return value

    def place(self, end: str, used: bool) -> tuple[str, int]:
        """(buffer, first chunk); any value is allowed where the step does not use it."""
        if not used:
            return "i", -1
        return self.one_of(f"{end}buf", ("i", "o", "s")), self.number(f"{end}off", 0, CHUNKS_MAX)


def buffer_chunks(file: MscclFile) -> tuple[int, int]:
    """Chunks of one member's input and of its output."""
    share = file.chunks // file.members
    return share if file.op == "all_gather" else file.chunks, share if file.op == "reduce_scatter" else file.chunks
