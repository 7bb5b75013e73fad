"""Level packet+skip: the bits of level packet, and most packets skipped where collectives have many rounds."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import genie_core
import msgspec
import numpy as np
import pytest
from common.drawn_options import with_options
from common.episode_cases import draw_job
from common.skip_cases import FREE_PACKETS, Played, SkipCase, draw_case, first_difference, play, twin_of_case
from live_runs import GENIE
from twin_fabrics import GBPS, MIB, crowded, twin_of

from genie.cli.simulation.result import _bits
from genie.collectives.nccl.shape import NcclShape
from genie.config.congestion import Hpcc
from genie.config.units import Duration, Rate
from genie.plan.build import build_plan
from genie.plan.lowering import Lowering
from genie.workload.graph import Op
from genie.workload.load import load
from genie.workload.synthetic import collective
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.schema import Fabric, LeafSpine, Link, LoadBalancing, SingleSwitch, Transport
from simtwin.play.run import simulated
from simtwin.play.skipping import NO_RECURRENCE
from simtwin.play.twin import Simulation, Twin
from simtwin.play.watching import Watch

ROOT = Path(__file__).parents[2]
NCCL = Lowering(nccl=NcclShape(buffer_bytes=1 << 18))
LINK = Link(Rate(100 * GBPS), Duration(500_000))
RING = collective(Op.ALL_REDUCE, 8, 64 * MIB)
FABRICS = {
    "single switch": Fabric(topology=SingleSwitch(hosts=8), link=LINK),
    "leaves and spines": Fabric(topology=LeafSpine(leaves=4, spines=2, hosts_per_leaf=2), link=LINK),
    "PFC, ECN and DCQCN": crowded(SingleSwitch(hosts=8)),
}


@pytest.mark.parametrize("first", range(0, 50, 5))
def test_drawn_cases_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 5):
        case = draw_case(seed)
        # Many threads wait for each other most of the time beside other tests; test_threads.py has them.
        case = dataclasses.replace(case, threads=case.threads if case.threads == 2 else 1)
        difference = first_difference(play(case, skips=False), play(case, skips=True))
        assert not difference, f"{case.name}: {difference[:400]}; replay: skip_bits.py --first {seed} --cases 1"


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_drawn_options_of_fabrics_have_the_same_bits(first: int) -> None:
    for seed in range(first, first + 5):
        case = dataclasses.replace(with_options(draw_case(seed), seed), threads=1)
        difference = first_difference(play(case, skips=False), play(case, skips=True))
        replay = f"skip_bits.py --options --first {seed} --cases 1 --size-factor 1"
        assert not difference, f"{case.name}: {difference[:400]}; replay: {replay}"


@pytest.mark.parametrize("kind", ["job", "buckets", "stages", "pipeline"])
def test_drawn_options_of_jobs_have_the_same_bits(kind: str) -> None:
    for seed in range(1000, 1005):
        case = with_options(draw_job(seed, kind=kind), seed)
        skipped = play(case, skips=True, checkpoint_packets=512, free_packets=FREE_PACKETS)
        difference = first_difference(play(case, skips=False), skipped)
        option = {"job": "--jobs", "pipeline": "--pipelines"}.get(kind, f"--{kind}")
        replay = f"skip_bits.py --options {option} --first {seed} --cases 1 --size-factor 1 --checkpoint-packets 512"
        assert not difference, f"{case.name}: {difference[:400]}; replay: {replay}"


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("threads", [1, 3])
def test_rings_of_many_rounds_are_skipped(name: str, threads: int) -> None:
    case = SkipCase(name, FABRICS[name], RING, NCCL, threads, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


def test_switches_that_choose_in_turn_recur() -> None:
    balance = LoadBalancing(mode="round-robin")
    fabric = msgspec.structs.replace(FABRICS["leaves and spines"], load_balancing=balance)
    case = SkipCase("in turn", fabric, RING, NCCL, 1, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


def test_further_plays_that_a_stop_cuts_off_are_told() -> None:
    fabric = load_fabric(ROOT / "hosts/fabrics/leaf-spine.toml")
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)), level="packet+skip")
    ended: list[int] = []
    watch = Watch(
        stop=lambda: "told to stop" if ended else None,
        played=lambda iterations, rows: ended.append(rows),
        verifies_skips=True,
    )
    result = simulated(twin, load(ROOT / "examples/transformer"), workload_path="", watch=watch, band=True)
    assert result.info["complete"]
    assert result.info["unfinished_plays"] == ["--verify-skip", "--band"]
    assert "difference" not in result.info["skip"]
    assert result.info["band"] is None


def test_iterations_do_not_try_again_what_gains_nothing() -> None:
    fabric = load_fabric(ROOT / "hosts/fabrics/leaf-spine.toml")
    workload = load(ROOT / "examples/transformer")
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)), level="packet+skip")
    result = twin.play(workload, iterations=range(3))
    assert result.skipped is not None
    facts = result.skipped.facts(result.counters["data_packets"])
    assert facts["reasons"][-1] == "no episodes: they gained nothing in iteration 0"
    # A quarter of an iteration in vain, and the play at hand.
    assert facts["episodes"]["played"] < result.counters["data_packets"] / 3


def test_an_estimate_needs_one_thread() -> None:
    fabric = FABRICS["single switch"]
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)), threads=2, level="packet+skip")
    with pytest.raises(ValueError, match="skip_error needs one thread"):
        twin.play(RING, watch=Watch(skip_error=0.01))


@pytest.mark.parametrize("control", ["none", "window", "dcqcn", "dcqcn-timer", "timely", "swift", "dctcp", "nscc"])
def test_long_messages_are_skipped(control: str) -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=4), link=LINK, transport=Transport(congestion=control))
    case = SkipCase(control, fabric, collective(Op.REDUCE_SCATTER, 4, 256 * MIB), Lowering(), 1, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


def test_messages_are_skipped_while_hpcc_keeps_its_rate() -> None:
    fabric = FABRICS["leaves and spines"]
    shares = {}
    for additive in (None, Rate(100 * GBPS)):  # which keeps the rate at the line's
        control = Hpcc(additive=additive)
        own = msgspec.structs.replace(fabric, congestion=control, transport=Transport(ack_every_packets=1))
        case = SkipCase("hpcc", own, RING, NCCL, 1, ())
        played, skipped = play(case, skips=False), play(case, skips=True)
        assert not first_difference(played, skipped)
        shares[additive] = skipped.skipped / skipped.packets
    assert shares[Rate(100 * GBPS)] > 0.5
    assert shares[None] < 0.1  # full links move it with each acknowledgement


@pytest.mark.parametrize("op", [Op.BROADCAST, Op.ALL_TO_ALL])
def test_sends_that_wait_from_the_beginning_on(op: Op) -> None:
    case = SkipCase(op.name, FABRICS["single switch"], collective(op, 8, 256 * MIB), NCCL, 1, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


def test_loops_recur_across_skipped_rounds_where_controls_remember() -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=8), link=LINK, transport=Transport(congestion="dctcp"))
    case = SkipCase("dctcp", fabric, collective(Op.ALL_REDUCE, 8, 256 * MIB), NCCL, 1, ())
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


@pytest.mark.parametrize(
    "seed", [30, 21, 412], ids=["messages in parts", "windows that nothing reaches", "losses that are over"]
)
def test_what_moves_without_an_effect_is_no_other_state(seed: int) -> None:
    case = dataclasses.replace(draw_case(seed, 4), threads=1)
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0.5 * skipped.packets


def test_links_without_a_limit_have_no_period_of_zero() -> None:
    fabric = Fabric(topology=SingleSwitch(hosts=6), link=Link(Rate(0), Duration(500_000)))
    case = SkipCase("unlimited", fabric, collective(Op.BROADCAST, 6, 64 * MIB), Lowering(), 1, ())
    assert not first_difference(play(case, skips=False), play(case, skips=True))


def test_stops_do_not_change_the_result() -> None:
    case = SkipCase("stops", FABRICS["single switch"], RING, NCCL, 1, tuple(range(10**8, 3 * 10**9, 3 * 10**8)))
    played, skipped = play(case, skips=False), play(case, skips=True)
    assert not first_difference(played, skipped)
    assert skipped.skipped > 0


def test_a_difference_is_found() -> None:
    one = Played({"end": 5, "link packets": np.array([1, 2])}, 0, 3, 0)
    other = Played({"end": 5, "link packets": np.array([1, 3])}, 0, 3, 0)
    assert "link packets" in first_difference(one, other)


def simulate(twin: Twin, watch: Watch | None = None, *, skips: bool) -> Simulation:
    return twin.play(RING, lowering=NCCL, iterations=(0, 1), watch=watch, skips=skips)


def test_the_twin_tells_what_was_skipped() -> None:
    fabric = FABRICS["single switch"]
    twin = Twin(fabric, twin_of(fabric).network, list(range(8)), level="packet+skip")
    skipped, played = simulate(twin, skips=True), simulate(twin, skips=False)
    assert skipped.skipped is not None
    assert skipped.timeline.equals(played.timeline)
    assert skipped.transfers.equals(played.transfers)
    assert skipped.counters["links"] == played.counters["links"]
    assert skipped.counters["events"] < played.counters["events"]
    facts = skipped.skipped.facts(skipped.counters["data_packets"])
    assert facts["share"] > 0.5
    assert facts["jumps"] >= 2
    assert facts["reasons"] == ["no episodes: no collective comes again"]
    assert played.skipped is None


def test_refused_collectives_are_among_the_reasons_beside_episodes() -> None:
    case = draw_job(64)
    skipped = twin_of_case(case).play(case.workload, lowering=case.lowering, skips=True).skipped
    assert skipped is not None
    assert skipped.replayed > 0
    said = "some collectives were not played apart: "
    assert [reason.removeprefix(said) for reason in skipped.reasons if reason.startswith(said)] == [
        "an end is known too late",
        "packets that are not played apart use the same links",
    ]


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        (Transport(spray=4), "sprayed packets are not folded"),
        (Transport(), NO_RECURRENCE),
    ],
)
def test_reasons_why_nothing_is_skipped(transport: Transport, reason: str) -> None:
    fabric = Fabric(topology=LeafSpine(leaves=2, spines=2, hosts_per_leaf=2), link=LINK, transport=transport)
    twin = Twin(fabric, twin_of(fabric).network, list(range(4)), level="packet+skip")
    result = twin.play(collective(Op.ALL_REDUCE, 4, 1 << 16))
    assert result.skipped is not None
    assert result.skipped.reasons[0] == reason
    assert result.skipped.reasons[1:] == ("no episodes: no collective comes again",)
    assert result.skipped.packets == 0


def test_a_timer_without_effect_is_no_event() -> None:
    """Timers of retransmission outlast a simulation: its end is that of the last packet."""
    fabric = FABRICS["single switch"]
    twin = twin_of(fabric)
    plan = build_plan(collective(Op.ALL_REDUCE, 8, MIB))
    simulator = twin.simulator(plan)
    assert isinstance(simulator, genie_core.Simulator)
    simulator.start()
    while simulator.run(1_000_000):
        pass
    last_ps = max(int(simulator.records(rank)["nodes"]["end_ps"].max()) for rank in plan.ranks)
    assert last_ps <= simulator.now_ps < last_ps + 10**8


@pytest.mark.live
def test_verify_skip(tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = f"simulate {ROOT}/examples/transformer --rate 200Mb/s --verify-skip -o {out}"
    done = subprocess.run([GENIE, *line.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "run.json").read_text())["skip"]["difference"] == ""
    skip = json.loads((out / "run.json").read_text())["skip"]
    assert ("same bits as level packet" in done.stdout) == (skip["packets"] > 0)
    was_compared = skip["packets"] + skip["episodes"]["replayed"] > 0
    assert ("link counters are the same" in done.stderr) == was_compared
    assert ("nothing was skipped" in done.stderr) != was_compared


DIFFERENT = """
import sys
import simtwin.play.run
from genie.cli import entry

simtwin.play.run.first_difference = lambda played, skipped: "timeline: row 0, end_ns: 1 played, 2 with skips"
sys.argv = ["genie", *sys.argv[1:]]
entry()
"""


@pytest.mark.live
def test_a_verified_run_ends_with_1_at_a_difference(tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = f"simulate {ROOT}/examples/transformer --rate 200Mb/s --verify-skip -o {out}"
    command = [sys.executable, "-c", DIFFERENT, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "timeline: row 0, end_ns: 1 played, 2 with skips" in done.stdout + done.stderr
    assert json.loads((out / "run.json").read_text())["skip"]["difference"].startswith("timeline: row 0")


def test_what_was_not_compared_is_not_called_the_same() -> None:
    assert _bits({"packets": 5}, may_estimate=False) == "not compared with level packet (--verify-skip does)"
    assert _bits({"packets": 5}, may_estimate=True) == "not compared with level packet"
    assert _bits({"packets": 5, "difference": ""}, may_estimate=False) == "same bits as level packet"
    assert _bits({"packets": 5, "difference": "row 4"}, may_estimate=False) == "results differ from level packet"
