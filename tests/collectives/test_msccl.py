"""MSCCL's algorithms: what is right is proven and moves the bytes it must; what is wrong is named, with its line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_files import Algorithm, Block, ring_all_reduce

from genie.collectives.check import prove_order
from genie.collectives.lower import LoweringError
from genie.collectives.msccl.algorithm import (
    MscclAlgorithm,
    MscclMeaning,
    load_msccl,
    lower_file,
    lower_msccl,
    msccl_template,
)
from genie.collectives.msccl.file import MscclError, parse_msccl
from genie.collectives.player import POLICIES, play
from genie.collectives.template import Action

RING = "astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml"
# File -> operation, messages of a member, parts of the whole buffer that it sends.
SHARED = {
    "msccl/ndv4/a2a2ll.xml": ("all_to_all", 14, 14 / 16),
    "msccl/ndv4/ag-1k-512k.xml": ("all_gather", 14, 14 / 16),
    "msccl/ndv4/r48ll.xml": ("all_reduce", 112, 112 / 64),
    RING: ("all_reduce", 14, 14 / 8),
}
DRAWS = settings(max_examples=150, deadline=None, derandomize=True)


def read(text: str) -> MscclAlgorithm:
    return lower_file(parse_msccl(text.encode(), "drawn.xml"))


def refused(text: str) -> str:
    with pytest.raises(MscclError) as error:
        read(text)
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("name", SHARED)
def test_shared_files_are_proven_and_send_what_they_must(name: str, shared_data: Path) -> None:
    op, messages, parts = SHARED[name]
    algorithm = load_msccl(str(shared_data / name))
    assert (algorithm.file.op, algorithm.notes) == (op, [])
    whole_bytes = 1 << 20
    size_bytes = whole_bytes // 8 if op == "all_gather" else whole_bytes
    templates, sizes = [], []
    for position in range(8):
        lowered = lower_msccl(op, str(shared_data / name), 8, position, size_bytes)
        assert lowered is not None
        _, template, table = lowered
        sends = template.action == Action.SEND
        assert int(sends.sum()) == int((~sends).sum()) == messages
        assert int(table[template.block[sends]].sum()) == parts * whole_bytes
        templates.append(template)
        sizes.append(table)
    prove_order(op, templates, sizes)  # of what is played, without what happens inside a member


@pytest.mark.parametrize("policy", POLICIES)
def test_a_ring_ends_right_under_drawn_timings(policy: str, shared_data: Path) -> None:
    algorithm = load_msccl(str(shared_data / RING))
    templates = [msccl_template(algorithm, position) for position in range(8)]
    sizes = [np.full(template.blocks, 100, np.int64) for template in templates]
    meaning = MscclMeaning("all_reduce", 8, 8, 1, file=algorithm.file, blocks=algorithm.blocks)
    assert play(meaning, templates, sizes, policy, 5, eager=True) == [1400] * 8


def test_sizes_and_groups_that_do_not_fit_are_left_to_others(shared_data: Path) -> None:
    path = str(shared_data / RING)
    assert lower_msccl("all_reduce", path, 8, 0, 1 << 20) is not None
    assert lower_msccl("all_reduce", path, 4, 0, 1 << 20) is None
    assert lower_msccl("all_reduce", path, 8, 0, 1001) is None, "not in eight equal chunks"
    assert lower_msccl("all_reduce", path, 8, 0, 0) is None
    assert lower_msccl("all_reduce", path, 8, 0, 1 << 20, root=1) is None
    with pytest.raises(LoweringError, match="is an algorithm for all_reduce, not for all_gather"):
        lower_msccl("all_gather", path, 8, 0, 1 << 20)


@pytest.mark.parametrize("members", [2, 3, 8])
def test_a_ring_of_fused_steps(members: int) -> None:
    algorithm = read(ring_all_reduce(members).text())
    assert algorithm.notes == []
    template = msccl_template(algorithm, 1)
    # A member's first message waits for nothing, each later one for the receive before it.
    sends = np.flatnonzero(template.action == Action.SEND)
    waits = [template.deps[template.dep_start[at] : template.dep_start[at + 1]].tolist() for at in sends]
    assert waits == [[], *([at - 1] for at in sends[1:].tolist())]


def both(*steps: str) -> list[list[Block]]:
    """Two members that do the same with each other, of two chunks each: OWN is the member's first, HIS the other's."""
    return [
        [
            Block(
                1 - own, 1 - own, [step.replace("OWN", str(2 * own)).replace("HIS", str(2 - 2 * own)) for step in steps]
            )
        ]
        for own in range(2)
    ]


def row(first: list[str], second: list[str], third: list[str]) -> list[list[Block]]:
    """Three members, from the first to the last."""
    return [[Block(1, 1, first)], [Block(2, 0, second)], [Block(1, 1, third)]]


DIRECT = {
    # Everybody's input into everybody's scratch, reduced there and copied out.
    "allreduce": Algorithm("allreduce", 2, both("s i0 i0 2", "r i0 s0 2", "re i0 s0 2", "cpy s0 o0 2"), scratch=2),
    "reduce_scatter": Algorithm("reduce_scatter", 4, both("s iHIS i0 2", "rrc iOWN o0 2")),
    "reduce_scatter in place": Algorithm("reduce_scatter", 4, both("s iHIS i0 2", "rrc iOWN iOWN 2"), in_place=True),
    "allgather": Algorithm("allgather", 4, both("s i0 i0 2", "r i0 oHIS 2", "cpy i0 oOWN 2")),
    "allgather in place": Algorithm("allgather", 4, both("s oOWN i0 2", "r i0 oHIS 2"), in_place=True),
    "broadcast": Algorithm("broadcast", 1, row(["s i0", "cpy i0 o0"], ["rcs i0 o0"], ["r i0 o0"])),
    "reduce": Algorithm(
        "reduce", 1, [[Block(-1, 1, ["rrc i0 o0"])], [Block(0, 2, ["rrs i0"])], [Block(1, -1, ["s i0"])]]
    ),
    # Two thread blocks of gpu 0 feed a third, which waits for both by way of a nop.
    "waits": Algorithm(
        "reduce",
        1,
        [
            [
                Block(-1, 1, ["r i0 s0"]),
                Block(-1, 2, ["r i0 s1"]),
                Block(-1, -1, ["nop after=0.0", "re s0 i0 after=1.0", "re s1 i0", "cpy i0 o0"]),
            ],
            [Block(0, -1, ["s i0"])],
            [Block(0, -1, ["s i0"])],
        ],
        scratch=2,
    ),
    "custom": Algorithm("custom", 1, [[Block(1, -1, ["s i0"])], [Block(-1, 0, ["r i0 o0"])]]),
}


@pytest.mark.parametrize("name", DIRECT)
def test_every_type_of_step(name: str) -> None:
    assert read(DIRECT[name].text()).notes == []


def test_what_a_member_does_with_its_own_chunks_is_not_played_and_keeps_its_order() -> None:
    algorithm = Algorithm(
        "broadcast", 1, [
            [Block(1, -1, ["s i0", "cpy i0 o0"])],
            [Block(-1, 0, ["r i0 s0", "cpy s0 o0"]), Block(2, -1, ["s o0 i0 after=0.1"])],
            [Block(-1, 1, ["r i0 o0"])],
        ], scratch=1,
    )  # fmt: skip
    template = msccl_template(read(algorithm.text()), 1)
    assert template.action.tolist() == [Action.RECV, Action.SEND]
    assert template.deps.tolist() == [0], "the send waits for the copy, and so for what that has waited for"
    early = algorithm.text().replace('depid="0" deps="1"', 'depid="-1" deps="-1"')
    assert "race: line" in refused(early)


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ('type="rrs"', 'type="rcs"', "contributions [0, 1, 1, 1], not [1, 1, 1, 1]"),
        ('type="rrcs"', 'type="rrs"', "is not a correct all_reduce"),
        ('coll="allreduce"', 'coll="allgather"', "drawn.xml:5: chunk 3 of a buffer i of 1"),
        ('coll="allreduce"', 'coll="nothing"', "drawn.xml:1: coll 'nothing': must be one of allgather, allreduce"),
        ('type="rcs"', 'type="ra"', "drawn.xml:8: type 'ra': must be one of"),
        ('srcoff="3"', 'srcoff="4"', "drawn.xml:5: chunk 4 of a buffer i of 4"),
        ('ngpus="4"', 'ngpus="5"', "drawn.xml:1: ngpus 5, and there is no gpu 4"),
        ('ngpus="4"', 'ngpus="3"', "drawn.xml:3: recv '3': must be a whole number from -1 to 2"),
        ('<gpu id="1"', '<gpu id="0"', "drawn.xml:13: gpu 0 a second time; the first is in line 2"),
        ('send="1"', 'send="0"', 'drawn.xml:3: send="0": gpu 0 itself'),
        ('send="1"', 'send="-1"', "drawn.xml:4: a step of type s, and its thread block has no send peer"),
        ('send="1"', 'send="2"', "sends and"),
        (' cnt="1"', "", "drawn.xml:4: <step> has no cnt"),
        ('cnt="1"', 'cnt="0"', "drawn.xml:4: cnt '0': must be a whole number from 1"),
        ('s="1"', 's="2"', "drawn.xml:5: step 2 where step 1 must be"),
        ('depid="-1"', 'depid="0"', "drawn.xml:4: depid 0 and deps -1: both say what to wait for, or both are -1"),
        ('depid="-1" deps="-1"', 'depid="3" deps="0"', "drawn.xml:4: waits for step 0 of thread block 3"),
        ('depid="-1" deps="-1"', 'depid="0" deps="2"', "drawn.xml:4: waits for itself, through other steps"),
        ('s_chunks="0"', 's_chunks="x"', "drawn.xml:2: s_chunks 'x': must be a whole number"),
        ('i_chunks="0"', 'i_chunks="3"', "drawn.xml:2: i_chunks 3: must be 0 or 4, by nchunksperloop 4"),
        ("<tb ", "<step ", "drawn.xml:3: <step> inside <gpu>; it belongs into <tb>"),
        ("<step ", "<stop ", "drawn.xml:4: <stop> is not understood; a <tb> has <step> only: correct or remove it"),
        ("</algo>", "", "not XML: no element found"),
        ("<algo", "<!DOCTYPE algo><algo", "drawn.xml:1: a document type; remove it"),
        ("algo", "system", "drawn.xml:1: <system> where <algo> must be"),
    ],
)  # fmt: skip
def test_mistakes_are_named(was: str, becomes: str, said: str) -> None:
    text = ring_all_reduce(4).text()
    wrong = text.replace(was, becomes) if was == "algo" else text.replace(was, becomes, 1)
    assert wrong != text
    assert said in refused(wrong)


def test_a_step_may_only_wait_for_one_that_signals() -> None:
    text = DIRECT["waits"].text()
    quiet = text.replace('deps="-1" hasdep="1"', 'deps="-1" hasdep="0"', 1)
    assert 'waits for step 0 of thread block 0, which has no hasdep="1"' in refused(quiet)


def test_what_is_not_understood_is_named() -> None:
    text = DIRECT["broadcast"].text().replace("<algo ", '<algo mood="good" ', 1).replace("<tb ", '<tb warps="4" ', 2)
    text = text.replace("</algo>", "<hint/></algo>")
    assert read(text).notes == [
        "line 1: algo's attribute mood is not understood and changes nothing",
        f"line {len(text.splitlines())}: element <hint> is not understood and changes nothing",
        "line 3: tb's attribute warps is not understood and changes nothing",
    ]


def test_an_algorithm_too_large_to_prove_says_so() -> None:
    steps = 7000
    algorithm = Algorithm("custom", 1, [[Block(1, -1, ["s i0"] * steps)], [Block(-1, 0, ["r i0 o0"] * steps)]])
    assert read(algorithm.text()).notes == ["14000 chunks moved among 4: too many to prove that it is a correct custom"]


@DRAWS
@given(st.randoms(use_true_random=False), st.sampled_from(["reduce", "waits", "allreduce", "ring"]))
def test_corrupt_files_are_refused_in_one_line(draw: random.Random, name: str) -> None:
    """Bytes changed, lines dropped, doubled and moved, numbers replaced: a line that names the file, or a proof."""
    text = (ring_all_reduce(3) if name == "ring" else DIRECT[name]).text()
    lines = text.splitlines(keepends=True)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        match draw.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(draw.randrange(len(lines)), lines[at])
            case 2:
                where = draw.randrange(len(lines[at]))
                lines[at] = lines[at][:where] + draw.choice('\0<>"&9xé \n') + lines[at][where + 1 :]
            case 3:
                old, new = f'"{draw.randrange(3)}"', f'"{draw.choice([-1, 0, 1, 2, 3, 10**9, 2**70])}"'
                lines[at] = lines[at].replace(old, new)
            case _:
                lines = lines[: at + 1]
    try:
        read("".join(lines))
    except MscclError as error:
        said = str(error)
    else:
        return
    assert said.startswith("drawn.xml:")
    assert len(said.splitlines()) == 1
