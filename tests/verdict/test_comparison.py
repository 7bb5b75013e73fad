"""Two runs of one workload: what became slower, and what did not."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from live_runs import genie
from synthetic_runs import Fault, Noise, run_pair

from genie.record import Run, write_run
from genie.report.comparison_page import page
from genie.verdict import VerdictError
from genie.verdict.history.comparison import Comparison, change_of, compare

HEAVY = Noise(message_cv=0.06, tail_chance=0.03, rank_bias=0.008, iteration_cv=0.05, episode_chance=0.1)


def compared(seed: int, noise: Noise, fault: Fault) -> Comparison:
    before, after = (run_pair(seed, noise, Fault())[0], run_pair(seed + 500, noise, fault)[0])
    return compare(before, after)


@pytest.mark.parametrize("noise", [Noise(), pytest.param(HEAVY, marks=pytest.mark.extended)], ids=["quiet", "heavy"])
def test_runs_without_a_change_are_the_same(noise: Noise) -> None:
    results = Counter(compared(seed, noise, Fault()).result for seed in range(20))
    assert results["same"] >= 19, results


@pytest.mark.parametrize(
    ("noise", "least"), [(Noise(), 19), pytest.param(HEAVY, 17, marks=pytest.mark.extended)], ids=["quiet", "heavy"]
)
def test_a_nic_that_became_15_percent_slower_is_named(noise: Noise, least: int) -> None:
    found = [compared(seed, noise, Fault(5, 1 / 1.15)) for seed in range(20)]
    right = sum(each.result == "slower" and each.suspects[0].ranks == [5] for each in found if each.suspects)
    assert right >= least, [each.line() for each in found]


def test_a_fleet_that_became_slower_names_no_nic() -> None:
    found = compared(3, Noise(), Fault(fleet=0.8))
    assert (found.result, found.suspects) == ("slower", [])
    assert "no single NIC or link stands out" in found.line()


def test_a_run_that_became_faster_is_not_slower() -> None:
    noise = Noise()
    before, after = run_pair(1, noise, Fault(fleet=0.7))[0], run_pair(2, noise, Fault())[0]
    assert compare(before, after).result == "faster"


def test_collectives_are_listed_by_their_change() -> None:
    found = compared(4, Noise(), Fault(2, 0.5))
    changes = [abs(each.change.after_ns - each.change.before_ns) for each in found.collectives]
    assert changes == sorted(changes, reverse=True)
    assert found.collectives[0].change.is_sure
    assert found.collectives[0].op == "all_reduce"


def test_groups_add_up_their_collectives() -> None:
    found = compared(4, Noise(), Fault(2, 0.5))
    assert sum(each.collectives for each in found.groups) == len(found.collectives)
    for group in found.groups:
        own = [each.change for each in found.collectives if each.group == group.group]
        assert group.change.before_ns == pytest.approx(sum(change.before_ns for change in own), rel=0.05)
        assert group.change.fraction > 0.2
        assert group.change.is_sure


def test_two_simulations_have_no_noise() -> None:
    followed = run_pair(1, Noise(), Fault())[1]
    twin = replace(followed, info={**followed.info, "follow": False})
    assert compare(twin, twin).result == "same"
    longer = replace(twin, timeline=twin.timeline.with_columns((pl.col("end_ns") * 1.02).cast(pl.Int64)))
    assert compare(twin, longer).result == "slower"
    assert compare(longer, twin).result == "faster"


@pytest.mark.parametrize(
    ("times", "bounds", "result"),
    [
        (1.0, (0.0, 0.0), "same"),
        (1.0, (0.004, 0.0), "same"),
        (1.0, (0.004, 0.004), "inconclusive"),
        (1.02, (0.0, 0.01), "slower"),
        (1.02, (0.01, 0.01), "inconclusive"),
        (0.98, (0.01, 0.01), "inconclusive"),
        (0.97, (0.01, 0.01), "faster"),
        (1.02, (None, 0.0), "inconclusive"),
        (1.0, (0.0, None), "inconclusive"),
    ],
)
def test_simulations_with_estimates_are_compared_within_their_bounds(
    times: float, bounds: tuple[float | None, float | None], result: str
) -> None:
    followed = run_pair(1, Noise(), Fault())[1]
    longer = followed.timeline.with_columns((pl.col("end_ns") * times).cast(pl.Int64))
    before, after = (
        replace(
            followed,
            info={
                **followed.info,
                "follow": False,
                "error_bound": bound,
                "skip": {} if bound == 0 else {"estimates": {"apart": bound}},
            },
            timeline=own,
        )
        for bound, own in zip(bounds, (followed.timeline, longer), strict=True)
    )
    found = compare(before, after)
    assert found.result == result
    assert found.line().count("has estimates (--skip-error)") == sum(bound != 0 for bound in bounds)
    assert found.line().count("not all with a bound") == bounds.count(None)
    assert ("simulate without --skip-error" in found.line()) == (result == "inconclusive")


def test_levels_without_a_bound_are_named() -> None:
    followed = run_pair(1, Noise(), Fault())[1]
    flow = replace(followed, info={**followed.info, "follow": False, "level": "flow", "error_bound": None})
    found = compare(flow, flow)
    assert found.result == "same"
    assert "is of level flow, whose error has no bound" in found.line()


def test_a_slower_part_that_costs_two_simulations_nothing_is_said_after_the_time() -> None:
    live, followed = run_pair(1, Noise(), Fault())
    twin = replace(followed, info={**followed.info, "follow": False})
    slow = replace(compare(twin, twin), suspects=compared(3, Noise(), Fault(5, 0.5)).suspects)
    first = slow.suspects[0].evidence.split(";")[0]
    assert slow.line().startswith(
        f"SAME {twin.path} as {twin.path}: iterations take as long (+0 ns), although {first}; "
    )
    assert compare(live, live).parts()[0].startswith("iterations take as long")


def test_titles_of_the_page_fit_a_line_whatever_the_names_of_the_folders() -> None:
    found = compared(3, Noise(), Fault(5, 0.5))
    far = replace(found, before=f"runs/{'a' * 200}", after=f"runs/{'b' * 200}")
    for each in (found, far, replace(found, suspects=[], notes=["no single NIC or link stands out"])):
        (title,) = re.findall(r"<h1>(.*?)</h1>", page([each]))
        assert 0 < len(unescape(title)) <= 120
    assert far.before in page([far])


def test_a_change_has_the_noise_of_both() -> None:
    import numpy as np

    exact, noisy = np.full(10, 100.0), np.array([90.0, 95, 100, 105, 110] * 2)
    assert change_of(exact, exact * 1.1).noise == 0
    assert change_of(exact, noisy).noise == change_of(noisy, exact).noise > 0
    assert change_of(noisy, noisy).noise == pytest.approx(np.sqrt(2) * change_of(exact, noisy).noise)


def test_runs_that_cannot_be_compared_are_refused() -> None:
    live, twin = run_pair(1, Noise(), Fault())
    with pytest.raises(VerdictError, match=r"of the live world and .* of the twin world"):
        compare(live, twin)
    other = replace(live, timeline=live.timeline.with_columns(pl.col("size_bytes") * 2))
    with pytest.raises(VerdictError, match="are runs of other workloads: compare runs of one job"):
        compare(live, other)
    elsewhere = replace(twin, info={**twin.info, "fabric": "other"})
    with pytest.raises(VerdictError, match=r"are runs on different fabrics \(.* and other\): compare runs of one job"):
        compare(live, live, (replace(twin, info={**twin.info, "fabric": "one"}), elsewhere))
    runs = [replace(live, info={**live.info, "settings": {"fabric": name}}) for name in ("one", "other")]
    with pytest.raises(VerdictError, match=r"are runs on different fabrics \(one and other\)"):
        compare(*runs)
    fewer = replace(live, info={**live.info, "ranks": 4})
    with pytest.raises(VerdictError, match=r"differ in ranks \(8 and 4\)"):
        compare(live, fewer)
    lowered = [replace(live, info={**live.info, "lowering": {"wire": "nccl", "channels": count}}) for count in (1, 2)]
    with pytest.raises(VerdictError, match=r"differ in lowering\.channels \(1 and 2\): compare runs of one job"):
        compare(*lowered)
    short = replace(live, info={**live.info, "complete": False, "problem": "rank 3\ndied"})
    for pair in ((live, short), (short, live)):
        with pytest.raises(VerdictError, match=r"the run did not end \(rank 3 died\): give one that did"):
            compare(*pair)
    cut = replace(live, timeline=live.timeline.with_columns(pl.lit(-1, pl.Int64).alias("end_ns")))
    with pytest.raises(VerdictError, match="no iteration ended"):
        compare(live, cut)


def saved(run: Run, path: Path) -> Path:
    write_run(path, run.info, run.timeline, run.transfers, run.counters)
    return path


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    before = saved(run_pair(1, Noise(), Fault())[0], tmp_path / "before" / "live").parent
    same = saved(run_pair(2, Noise(), Fault())[0], tmp_path / "same")
    slow = saved(run_pair(3, Noise(), Fault(5, 0.5))[0], tmp_path / "slow")
    out = tmp_path / "out"
    ended = genie("compare", str(before), str(same), str(slow), "-o", str(out))
    assert ended.code == 1
    record = json.loads((out / "compare.json").read_text())
    assert [each["result"] for each in record["comparisons"]] == ["same", "slower"]
    for each in record["comparisons"]:
        assert each["summary"] in ended.stdout
    page = (out / "compare.html").read_text()
    assert "rank 5" in page
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize("given", [[], ["one"]], ids=["none", "one"])
def test_fewer_than_two_runs_are_refused(given: list[str]) -> None:
    assert genie("compare", *given).code == 2


def test_simulations_of_one_job_on_links_of_other_rates_are_compared() -> None:
    _, twin = run_pair(1, Noise(), Fault())
    servers = [{"gpu": "h100", "nic_gb_per_s": rate} for rate in (50.0, 100.0)]
    before, after = (replace(twin, info={**twin.info, "lowering": {"server": server}}) for server in servers)
    assert compare(before, after).result == "same"
    other = replace(twin, info={**twin.info, "lowering": {"server": {**servers[0], "gpu": "a100"}}})
    with pytest.raises(VerdictError, match=r"differ in lowering\.server\.gpu \(h100 and a100\)"):
        compare(before, other)
