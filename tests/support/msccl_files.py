"""MSCCL files written for tests: a line per element, so that messages can name them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Block:
    """A thread block; a step is `type source target [chunks] [after=BLOCK.STEP]`, places as i0, o3 or s1."""

    send: int
    recv: int
    steps: list[str]
    chan: int = 0


@dataclass
class Algorithm:
    coll: str
    chunks: int
    gpus: list[list[Block]]
    in_place: bool = False
    scratch: int = 0
    attributes: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterable[str]:
        head = {"name": "drawn", "proto": "Simple", "nchannels": 64, "nchunksperloop": self.chunks}
        head |= {"ngpus": len(self.gpus), "coll": self.coll, "inplace": int(self.in_place), **self.attributes}
        yield f"<algo {_attributes(head)}>"
        for number, blocks in enumerate(self.gpus):
            yield f'<gpu id="{number}" i_chunks="0" o_chunks="0" s_chunks="{self.scratch}">'
            for block_number, block in enumerate(blocks):
                places = {"id": block_number, "send": block.send, "recv": block.recv, "chan": block.chan}
                yield f"<tb {_attributes(places)}>"
                for at, step in enumerate(block.steps):
                    yield f"<step {_attributes(_step(at, step))}/>"
                yield "</tb>"
            yield "</gpu>"
        yield "</algo>"


def _step(number: int, text: str) -> dict[str, object]:
    kind, *words = text.split()
    after = next((word.removeprefix("after=") for word in words if word.startswith("after=")), "-1.-1")
    words = [word for word in words if not word.startswith("after=")]
    source, target, chunks = (*words, *("i0", "i0", "1")[len(words) :])
    block, step = after.split(".")
    return {
        "s": number, "type": kind, "srcbuf": source[0], "srcoff": source[1:], "dstbuf": target[0], "dstoff": target[1:],
        "cnt": chunks, "depid": block, "deps": step, "hasdep": 1,
    }  # fmt: skip


def _attributes(values: dict[str, object]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in values.items())


def ring_all_reduce(members: int) -> Algorithm:
    """In place, as compilers write it: s, rrs ..., rrcs, rcs ..., r."""
    gpus = []
    for own in range(members):
        chunks = [(own - turn) % members for turn in range(2 * members - 1)]
        first, *middle, last = [f"i{chunk}" for chunk in chunks]
        kinds = ["rrs"] * (members - 2) + ["rrcs"] + ["rcs"] * (members - 2)
        steps = [f"s {first}", *(f"{kind} {at} {at}" for kind, at in zip(kinds, middle, strict=True)), f"r i0 {last}"]
        gpus.append([Block((own + 1) % members, (own - 1) % members, steps)])
    return Algorithm("allreduce", members, gpus, in_place=True)
