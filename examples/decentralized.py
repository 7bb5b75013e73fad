"""All-reduce and decentralized training on GPUs that are slow at times: `python examples/decentralized.py`.

Sixteen workers average 100 MB of parameters in each of 30 iterations. An iteration computes for 100 ms, and for 600 ms
with a probability of 1/16. In a decentralized job a worker averages with its neighbours in a graph. With staleness s it
takes what they had s iterations before.
"""

import random

import polars as pl

import simtwin
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload

WORKERS, ITERATIONS = 16, 30
PARAMETER_BYTES = 100_000_000
COMPUTE_NS, SLOW_NS, SLOW_PROBABILITY = 100_000_000, 600_000_000, 1 / 16
RING, DOUBLE_RING = (-1, 1), (-4, -1, 1, 4)  # distances of neighbours


def durations(worker: int) -> list[int]:
    """Return the times of a worker's iterations, the same in all jobs."""
    drawn = random.Random(worker)
    return [SLOW_NS if drawn.random() < SLOW_PROBABILITY else COMPUTE_NS for _ in range(ITERATIONS)]


def all_reduce() -> Workload:
    """Return the job whose workers add up their gradients after each iteration."""
    graphs = {}
    for worker in range(WORKERS):
        builder = RankBuilder(worker)
        before: list[int] = []
        for number, time_ns in enumerate(durations(worker)):
            builder.add(2 * number, f"compute {number}", Kind.COMP, before, duration_ns=time_ns)
            columns = {"op": Op.ALL_REDUCE, "group": 0, "size_bytes": PARAMETER_BYTES}
            builder.add(2 * number + 1, f"add {number}", Kind.COLL, [2 * number], **columns)
            before = [2 * number + 1]
        graphs[worker], _ = builder.finish()
    return Workload("all-reduce", WORKERS, [Group("0", tuple(range(WORKERS)))], graphs)


def decentralized(distances: tuple[int, ...], staleness: int) -> Workload:
    """Return the job whose workers exchange parameters with their neighbours after each iteration."""
    a_turn = 1 + 2 * len(distances)  # nodes of an iteration: compute, then sends and receives
    graphs = {}
    for worker in range(WORKERS):
        builder = RankBuilder(worker)
        for number, time_ns in enumerate(durations(worker)):
            first, known = a_turn * number, number - 1 - staleness
            received = [a_turn * known + 2 + 2 * at for at in range(len(distances))] if known >= 0 else []
            before = [first - a_turn] if number else []
            builder.add(first, f"compute {number}", Kind.COMP, [*before, *received], duration_ns=time_ns)
            for at, distance in enumerate(distances):
                columns = {"size_bytes": PARAMETER_BYTES, "peer": (worker + distance) % WORKERS}
                tag = 100 * number
                builder.add(
                    first + 1 + 2 * at, f"send {number}", Kind.SEND, [first], tag=tag + distance % WORKERS, **columns
                )
                own = tag + -distance % WORKERS  # the neighbour's distance to this worker
                builder.add(first + 2 + 2 * at, f"receive {number}", Kind.RECV, before, tag=own, **columns)
        graphs[worker], _ = builder.finish()
    return Workload("decentralized", WORKERS, [Group("0", tuple(range(WORKERS)))], graphs)


def results() -> list[dict[str, object]]:
    """Return a row for each job and each rate of the network."""
    jobs = {"all-reduce": all_reduce()}
    for name, distances in (("ring", RING), ("double ring", DOUBLE_RING)):
        jobs |= {f"{name}, staleness {staleness}": decentralized(distances, staleness) for staleness in (0, 2, 5)}
    rows: list[dict[str, object]] = []
    for rate in ("10Gb/s", "100Gb/s"):
        fabric = simtwin.Fabric.make(
            topology={"kind": "single-switch", "hosts": WORKERS}, link={"rate": rate, "delay": "1us"}
        )
        for name, workload in jobs.items():
            apart = {"ranks_per_node": 1} if name == "all-reduce" else {}  # each worker is a server of its own
            run = simtwin.simulate(fabric, workload, level="flow", **apart)
            rows.append({"network": rate, "job": name, "iteration (ms)": run.completion_s * 1000 / ITERATIONS})
    return rows


if __name__ == "__main__":
    with pl.Config(
        tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_formatting="MARKDOWN", tbl_rows=-1
    ):
        print(pl.DataFrame(results()))
