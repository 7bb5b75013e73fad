"""MSCCL's algorithms in the twin: in place of a collective and as a trace they take the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from twin_fabrics import GBPS, NS, single_switch, twin_of

from genie.collectives.msccl.algorithm import load_msccl
from genie.plan.lowering import Lowering
from genie.plan.msccl_trace import msccl_workload
from genie.workload.graph import Op
from genie.workload.synthetic import collective

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "op"),
    [("a2a2ll", Op.ALL_TO_ALL), ("ag-1k-512k", Op.ALL_GATHER), ("r48ll", Op.ALL_REDUCE)],
)
def test_trace_and_collective_take_the_same_time(name: str, op: Op, shared_data: Path) -> None:
    path = str(shared_data / f"msccl/ndv4/{name}.xml")
    twin = twin_of(single_switch(8, 100 * GBPS, 500 * NS))
    lowering = Lowering(algorithms={op.name.lower(): f"msccl:{path}"})
    whole = twin.play(collective(op, 8, MIB), lowering=lowering)
    trace = twin.play(msccl_workload(load_msccl(path), MIB))
    assert trace.transfers["size_bytes"].sum() == whole.transfers["size_bytes"].sum()
    assert trace.timeline["end_ns"].max() == pytest.approx(whole.timeline["end_ns"].max(), rel=0.01)
    # The bytes of a rank on its own link are what it takes at least.
    least_ns = whole.transfers.filter(whole.transfers["src"] == 0)["size_bytes"].sum() * 8 / 100
    assert least_ns < whole.timeline["end_ns"].max() < 1.3 * least_ns
