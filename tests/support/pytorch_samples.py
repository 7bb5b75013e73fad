"""Small PyTorch traces, written call by call, for the tests of the converter. Times in µs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genie.workload.pytorch.communications import find_communications
from genie.workload.pytorch.join import join
from genie.workload.pytorch.kineto import DeviceTrace, read_device_trace
from genie.workload.pytorch.nodes import DraftNode
from genie.workload.pytorch.timeline import Timeline
from genie.workload.pytorch.trace import HostTrace, read_host_trace

MAIN, BACKWARD, WORKER = 100, 200, 300


def tensor(elements: int, element_bytes: int = 4, device: str = "cuda:0") -> list[Any]:
    """A tensor as host traces write it."""
    return [1, 2, 0, elements, element_bytes, device]


@dataclass
class Sample:
    """One rank's two traces."""

    events: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def operator(self, name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> None:
        self._event("cpu_op", name, ts, dur, tid, args)

    def annotation(self, name: str, ts: float, dur: float, tid: int = MAIN) -> None:
        self._event("user_annotation", name, ts, dur, tid, {})

    def call(self, name: str, ts: float, dur: float, correlation: int = 0, tid: int = MAIN) -> None:
        self._event("cuda_runtime", name, ts, dur, tid, {"correlation": correlation})

    def launch(self, correlation: int, ts: float, dur: float, tid: int = MAIN) -> None:
        self.call("cudaLaunchKernel", ts, dur, correlation, tid)

    def kernel(self, name: str, ts: float, dur: float, stream: int, correlation: int) -> None:
        self._event("kernel", name, ts, dur, stream, {"stream": stream, "device": 0, "correlation": correlation})

    def copy(self, name: str, ts: float, dur: float, stream: int, correlation: int, size_bytes: int) -> None:
        args = {"stream": stream, "device": 0, "correlation": correlation, "bytes": size_bytes}
        self._event("gpu_memcpy", name, ts, dur, stream, args)

    def synchronization(self, correlation: int, **args: int) -> None:
        self._event("cuda_sync", "sync", 0, 0, 0, {"correlation": correlation, **args})

    def communication(
        self, name: str, ts: float, dur: float, inputs: list[Any], outputs: list[Any], sequence: int, tid: int = MAIN,
        group: Any = ("0", "default_pg"), peer: int = 0, splits: tuple[list[int], list[int]] = ([], []), rest: Any = (),
    ) -> None:  # fmt: skip
        """A record in both traces; `inputs` empty for a wait. The host trace's thread is the profile's."""
        self.operator("record_param_comms", ts, dur, tid)
        head = [inputs] if inputs or outputs else []
        values = [*head, sequence, list(group), peer, name, *splits, *rest]
        self.node("record_param_comms", values, outputs, tid=tid)

    def node(
        self, name: str, inputs: list[Any], outputs: list[Any], schema: str = "", parent: int = 1, tid: int = MAIN,
        shapes: list[Any] | None = None,
    ) -> int:  # fmt: skip
        """A call in the host trace; returns its id."""
        number = len(self.nodes) + 2
        attributes = [{"name": "tid", "value": tid}, {"name": "op_schema", "value": schema}]
        values = {"values": inputs, "shapes": shapes or [[] for _ in inputs]}
        node = {"id": number, "name": name, "ctrl_deps": parent, "inputs": values, "outputs": {"values": outputs}}
        self.nodes.append(node | {"attrs": attributes})
        return number

    def write(self, folder: Path, rank: int = 0, **distributed: Any) -> tuple[Path, Path]:
        """Host trace and profile of the rank."""
        host, device = folder / f"host_rank{rank}.json", folder / f"profile_rank{rank}.json"
        host.write_text(json.dumps({"schema": "1.1.0", "nodes": self.nodes}))
        device.write_text(json.dumps({"distributedInfo": distributed, "traceEvents": self.events}))
        return host, device

    def read(self, folder: Path) -> tuple[HostTrace, DeviceTrace]:
        host, device = self.write(folder)
        return read_host_trace(host), read_device_trace(device)

    def timeline(self, folder: Path) -> tuple[list[DraftNode], list[str]]:
        """Nodes and notes of the rank."""
        host, device = self.read(folder)
        spans, _ = join(host, find_communications(host), device)
        timeline = Timeline(device)
        return timeline.play(spans), timeline.notes

    def _event(self, category: str, name: str, ts: float, dur: float, tid: int, args: dict[str, Any]) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)


def find(nodes: list[DraftNode], name: str) -> int:
    """Position of the only node of that name."""
    found = [position for position, node in enumerate(nodes) if node.name == name]
    assert len(found) == 1, f"{name}: {found} of {[node.name for node in nodes]}"
    return found[0]


def reaches(nodes: list[DraftNode], later: int, earlier: int) -> bool:
    """Whether `later` depends on `earlier`, over any number of steps."""
    return later == earlier or any(reaches(nodes, dependency, earlier) for dependency in nodes[later].deps)
