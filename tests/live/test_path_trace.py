"""A run that learns its paths: in its record, in the twin that follows it, in the verdict; before and after it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_runs import GENIE, Ended, rings, started
from routed import ADDRESSES, CABLES, NODES, Routed, routed

from genie.live.path_names import SILENT, TracePlan
from genie.live.paths.record import paths_of
from genie.record import open_run

pytestmark = pytest.mark.live

MPIRUN = str(Path(sys.executable).parent / "mpirun")
FABRIC = 'name = "routed"\n[transport]\nmtu = 1024\n[link]\nrate = "200Mb/s"\n[topology]\nkind = "explicit"\n'
FABRIC += "".join(f'[[topology.{"host" if name in "ab" else "switch"}]]\nname = "{name}"\n' for name in NODES)
FABRIC += "".join(f'[[topology.link]]\na = "{one}"\nb = "{two}"\n' for one, two in CABLES)
TABLE = "[addresses]\n" + "".join(f"{name} = {json.dumps(ADDRESSES[name])}\n" for name in NODES)


@pytest.fixture(scope="module")
def network(as_root: None) -> Iterator[Routed]:
    with routed() as made:
        yield made


def run_in(network: Routed, folder: Path, fabric: str, *given: str) -> Ended:
    """Rank 0 in a, rank 1 in b."""
    places = "".join(
        f'[[host]]\nname = "{name}"\nranks = "{rank}"\naddress = "{ADDRESSES[name][0]}"\nport = "{name}"\n'
        for rank, name in enumerate("ab")
    )
    (folder / "hosts.toml").write_text(places + "[calibration]\npacket_latency_ns = 50000\n")
    (folder / "fabric.toml").write_text(fabric)
    names = network.names
    wrapper = (
        f'case $PMI_RANK in 0) exec ip netns exec {names["a"]} "$@";; *) exec ip netns exec {names["b"]} "$@";; esac'
    )
    job = ["validate", rings(folder / "rings", ranks=2), "--hosts", str(folder / "hosts.toml"), "--fabric",
           str(folder / "fabric.toml"), "-o", str(folder / "out"), "-n", "3", "--warmup", "0"]  # fmt: skip
    with started(line=[MPIRUN, "-n", "2", "sh", "-c", wrapper, "sh", str(GENIE), *job, *given]) as command:
        return command.end()


@pytest.mark.parametrize("ports", ["pair", "pinned", "nccl"])
def test_paths_are_learned_and_followed(network: Routed, tmp_path: Path, ports: str) -> None:
    ended = run_in(network, tmp_path, FABRIC + TABLE, "--source-ports", ports)
    live, twin = open_run(tmp_path / "out" / "live"), open_run(tmp_path / "out" / "twin")
    told = live.info["paths"]
    compared = 0 if ports == "nccl" else 2  # ports that follow from queue pairs' numbers are not known before
    assert (told["flows"], told["known"], told["compared"], told["changed"]) == (2, 2, compared, False), ended.text
    assert live.paths is not None
    there = live.paths.filter(live.paths["src"] == 0).sort("hop")["link"].to_list()
    assert there in (["a->r", "r->s", "s->u", "u->b"], ["a->r", "r->t", "t->u", "u->b"])
    used = {(row["src"], row["dst"]): row["path"] for row in live.transfers.iter_rows(named=True)}
    assert {
        (src, dst): str(port) for src, dst, port in live.paths.select("src", "dst", "source_port").iter_rows()
    } == used
    assert twin.info["paths"] == {"changed": False, "pairs": 2, "followed": 2, "not_followed": 0}
    assert twin.paths is not None
    columns = ["src", "dst", "source_port", "hop", "link"]
    assert twin.paths.select(columns).sort(columns).equals(live.paths.select(columns).sort(columns))


def test_without_addresses_paths_are_learned_when_asked(network: Routed, tmp_path: Path) -> None:
    assert run_in(network, tmp_path, FABRIC).code in (0, 1, 4)
    assert open_run(tmp_path / "out" / "live").paths is None
    assert "paths" not in open_run(tmp_path / "out" / "live").info
    assert run_in(network, tmp_path, FABRIC, "--trace-paths", "on").code in (0, 1, 4)
    live = open_run(tmp_path / "out" / "live")
    told = live.info["paths"]
    assert (told["flows"], told["known"], told["compared"]) == (2, 0, 2)
    assert {hop.rpartition(".")[0].rpartition(".")[0] for *_, hops in told["unnamed"] for hop in hops} == {"10.81"}


def test_the_record_says_what_changed_and_what_is_not_known() -> None:
    plan = TracePlan(["a", "b"], {a: n for n in "rstu" for a in ADDRESSES[n]}, list(CABLES))
    by_s, by_t = (["10.81.0.2", middle, "10.81.3.2"] for middle in ("10.81.1.2", "10.81.2.2"))
    rows = [
        [1, 50000, by_s, by_t],
        [1, 50001, by_s, by_s],
        [1, 50002, by_s, []],
        [1, 50003, by_s, ["10.81.0.2", SILENT, "10.81.4.2"]],
        [1, 50004, ["192.0.2.1"], []],
    ]
    table, told = paths_of(plan, [{"traced": {"paths": rows, "probes": [[1, 50001, [5, 6, -1]]]}}, None])
    assert told["changes"] == ["rank 0 to rank 1 from port 50000"]
    assert (told["changed"], told["flows"], told["known"], told["compared"]) == (True, 5, 4, 3)
    assert told["unnamed"] == [[0, 1, 50004, ["192.0.2.1"]]]
    assert table is not None
    probed = table.filter(table["source_port"] == 50001).sort("hop")
    assert probed.select("link", "probe_ns").rows() == [("a->r", 5), ("r->s", 6), ("s->u", None), ("u->b", None)]
