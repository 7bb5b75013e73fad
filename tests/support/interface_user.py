"""A script of a user, which tests/test_python_interface.py checks with mypy --strict, and never runs.

Each line with an ignored error is a mistake that the types must find: mypy reports an ignore without an error.
"""

import genie
import simtwin

fabric = simtwin.Fabric.load("fabric.toml").with_control("dcqcn").replace({"transport.mtu": 1024})
workload = simtwin.poisson(fabric, load=0.5, duration="1ms", sizes="64KiB", seed=3)
run = simtwin.simulate(fabric, workload, level="flow", iterations=2, out="runs/twin")
completion_s: float = run.completion_s
longest_bytes = run.links["longest_queue_bytes"].max()
hosts: int = fabric.hosts
drawn: genie.Figure = simtwin.fct_figure({"dcqcn": run})
drawn.write("times.svg")

live: genie.Run = genie.load_run("runs/live")
verdict: genie.Verdict = genie.diff(live, "runs/twin", require_coverage="nics")
first: genie.Suspect = verdict.suspects[0]
ranks: list[int] = first.ranks
text: str = verdict.line()
figures: list[genie.Figure] = [run.links_figure(4), live.timeline_figure(iteration=1), verdict.slow_down_figure()]
try:
    simtwin.load_workload("traces")
except (simtwin.WorkloadError, genie.RecordError, genie.VerdictError) as error:
    code: int = error.code

simtwin.simulate(fabric, workload, level=3)  # type: ignore[arg-type]
simtwin.simulate(fabric, workload, levels="flow")  # type: ignore[call-arg]
simtwin.simulate(fabric)  # type: ignore[call-arg]
simtwin.incast(fabric, size=1.5)  # type: ignore[arg-type]
genie.diff(live, "runs/twin", require_coverage="all")  # type: ignore[arg-type]
genie.diff(live)  # type: ignore[call-arg]
print(drawn.width)  # type: ignore[attr-defined]
print(run.completion)  # type: ignore[attr-defined]
wrong: str = first.slow_down  # type: ignore[assignment]
genie.load_runs("runs")  # type: ignore[attr-defined]
