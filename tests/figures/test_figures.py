"""Figures and tables for notebooks: their text alternatives, their escapes, and the facts that they leave open."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from synthetic_runs import Fault, Noise, run_pair

import genie
import simtwin
from genie.figures import Bar, Figure, bars, distribution, headline, timeline
from genie.figures.figure import COLOURS
from genie.figures.timeline import RANKS_MAX
from genie.page import duration
from genie.record.display import links_figure
from genie.verdict import judge

NASTY = 'host<b>&"0'
SVG = "{http://www.w3.org/2000/svg}"


def small_fabric(**tables: object) -> simtwin.Fabric:
    topology = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}
    return simtwin.Fabric.make(**{"topology": topology, "link": {"rate": "10Gb/s", "delay": "1us"}, **tables})


def elements(figure: Figure, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(figure.svg).iter(f"{SVG}{name}"))


def rows_of(html: str) -> dict[str, str]:
    """Name -> value and the words beside it, of a table of headline facts."""
    cells = re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", html)
    return {name: re.sub(r"<[^>]+>", "", value) for name, value in cells}


def nodes(*rows: tuple[int, str, str | None, int, int]) -> pl.DataFrame:
    """Rows of a timeline: rank, kind, group, start and end."""
    columns = [pl.Series(values) for values in zip(*rows, strict=True)]
    names = ("rank", "kind", "group", "start_ns", "end_ns")
    return pl.DataFrame(dict(zip(names, columns, strict=True))).with_columns(seq=pl.lit(0), iteration=pl.lit(0))


def contrast(colour: str, ground: str) -> float:
    """The contrast of two colours by WCAG 2."""

    def luminance(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(colour), luminance(ground)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_colours_are_seen_on_light_and_dark_grounds(ground: str) -> None:
    assert min(contrast(colour, ground) for colour in COLOURS) >= 3
    assert len(set(COLOURS)) == 6


def test_a_figure_is_one_drawing_with_its_words(tmp_path: Path) -> None:
    figure = bars("Loads", [Bar("a", 1.0, "1 %"), Bar(NASTY, 2.0, "2 %")], beside="3 others not shown")
    root = ElementTree.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.text == f"Loads: a 1 %; {NASTY} 2 %. 3 others not shown"
    assert repr(figure) == f"<Figure: {figure.text}>"
    assert figure._repr_html_().count("<svg") == 1
    figure.write(tmp_path / "loads.svg")
    assert (tmp_path / "loads.svg").read_text() == figure.svg


def test_bars_are_in_proportion_and_stay_inside() -> None:
    figure = bars("Loads", [Bar("a", 1.0, "1"), Bar("b", 4.0, "4 % of it"), Bar("c", 2.0, "2", is_bound=True)])
    widths = [float(each.get("width", "")) for each in elements(figure, "rect")]
    assert [width / widths[1] for width in widths] == pytest.approx([0.25, 1, 0.5], rel=0.01)
    assert [each.get("fill") == "none" for each in elements(figure, "rect")] == [False, False, True]
    last = elements(figure, "text")[-1]
    longest = next(each for each in elements(figure, "text") if each.text == "4 % of it")
    assert float(longest.get("x", "")) + 6 * len("4 % of it") <= 640
    assert last.text == "2"
    assert elements(bars("None", []), "rect") == []


def test_a_limit_is_a_line_at_its_length() -> None:
    figure = bars("Loads", [Bar("a", 1.0, "1"), Bar("b", 0.1, "small")], full=2.0, limit=1.0)
    rect = elements(figure, "rect")[0]
    dotted = next(each for each in elements(figure, "path") if each.get("stroke-dasharray") == "1 3")
    end = float(rect.get("x", "")) + float(rect.get("width", ""))
    assert (dotted.get("d") or "").startswith(f"M{end:.1f} ")
    assert float(elements(figure, "text")[-1].get("x", "")) > end  # the words of a short bar do not cross the line


def test_a_distribution_rises_to_all_values() -> None:
    times = np.random.default_rng(1).integers(1_000, 90_000, 5_000)
    figure = distribution("Times", "time", {"one": times, NASTY: times[:10], "none": times[:0]})
    curves = [each for each in elements(figure, "path") if each.find(f"{SVG}title") is not None]
    assert len(curves) == 2
    steps = re.findall(r"H([\d.]+)V([\d.]+)", curves[0].get("d") or "")
    assert len(steps) == 200
    assert all(float(a[0]) <= float(b[0]) and float(a[1]) > float(b[1]) for a, b in pairwise(steps))
    assert float(steps[-1][1]) == 28  # 100 %
    assert curves[0].get("stroke-dasharray") != curves[1].get("stroke-dasharray")
    assert "none: no transfers" in figure.text
    assert f"one: median {np.median(times) / 1000:.3g} µs" in figure.text


def test_a_rank_waits_until_the_last_member_starts() -> None:
    table = nodes((0, "comp", None, 0, 100), (0, "coll", "g", 100, 400), (1, "comp", None, 0, 300),
                  (1, "coll", "g", 300, 400))  # fmt: skip
    figure = timeline("Ranks", table)
    assert figure.text == "Ranks: rank 0 ends after 400 ns and waits 50 % of it; rank 1 ends after 400 ns"
    (waiting,) = [each for each in elements(figure, "path") if each.get("stroke-width") == "3"][:-1]
    assert re.fullmatch(r"M[\d.]+ [\d.]+h[\d.]+", waiting.get("d") or "")
    left, wide = 6 * 6.6 + 8, 640 - 14 - (6 * 6.6 + 8)
    x, length = map(float, re.findall(r"M([\d.]+) .*h([\d.]+)", waiting.get("d") or "")[0])
    assert (x, length) == pytest.approx((left + wide / 4, wide / 2), abs=4)


def test_many_nodes_and_ranks_make_a_small_figure() -> None:
    rows = [(rank, "send", None, 10 * at, 10 * at + 4) for rank in range(40) for at in range(5_000)]
    figure = timeline("Ranks", nodes(*rows))
    assert len(figure.svg) < 60_000
    assert figure.text.endswith(f"{40 - RANKS_MAX} more ranks left out")
    assert "no rank has played anything" in timeline("Ranks", nodes(*rows).clear()).text


def test_a_table_of_facts_is_escaped() -> None:
    html = headline(NASTY, [("<name>", "<value>", "<beside>"), ("a", "b"), ("c", "d", "")])
    assert set(re.findall(r"</?(\w+)", html)) == {"table", "caption", "tbody", "tr", "th", "td", "span"}
    assert rows_of(html) == {"&lt;name&gt;": "&lt;value&gt;, &lt;beside&gt;", "a": "b", "c": "d"}


def test_a_simulation_says_what_it_plays() -> None:
    fabric = small_fabric(name="<two>", ecn={"minimum": "20kB", "maximum": "80kB"})
    workload = simtwin.incast(fabric, "256KiB", target=3)
    run = simtwin.simulate(fabric.with_control("dcqcn"), workload)
    rows = rows_of(run._repr_html_())
    assert rows["Fabric"] == "&lt;two&gt;"
    assert rows["Messages"] == "3, 768 KiB between ranks, in all iterations"
    assert rows["Longest queue"].endswith("of link leaf1-&gt;host3")
    assert rows["ECN marks"] == f"{run.links['marked'].sum():,} packets"
    assert "3 transfers" in rows["Flow completion"]
    rows = rows_of(simtwin.simulate(fabric, workload, level="flow")._repr_html_())
    assert rows["Queues, marks, drops"] == "not simulated, level flow plays no packets"
    assert "ECN marks" not in rows
    assert "\n" not in repr(run)


def test_flow_completion_times_are_compared() -> None:
    fabric = small_fabric()
    run = simtwin.simulate(fabric, simtwin.incast(fabric, "256KiB", target=3))
    median, p99 = (duration(run.flow_completion["fct_ns"].quantile(at)) for at in (0.5, 0.99))
    figure = simtwin.fct_figure({"one": run, "two": run})
    assert figure.text.count(f"one: median {median}, 99th percentile {p99}; two: median {median}") == 1
    assert run.fct_figure().text.endswith(f"incast-3x262144: median {median}, 99th percentile {p99}")


def test_a_simulation_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = small_fabric()
    run = simtwin.simulate(fabric, simtwin.permutation(fabric, "16KiB"))
    assert "Failed" not in rows_of(run._repr_html_())
    assert rows_of(replace(run, failure="rank 1 <waits>")._repr_html_())["Failed"].startswith("rank 1 &lt;waits&gt;")
    monkeypatch.setattr("simtwin.notebook.TRANSFERS_MAX", 3)
    assert rows_of(run._repr_html_())["Flow completion"] == "not computed here, 4 transfers: see .flow_completion"


def test_a_fabric_says_its_settings() -> None:
    fabric = small_fabric(pfc={}, switch={"shared_buffer": "4MiB"}).with_control("hpcc")
    assert repr(fabric) == "<Fabric 'fabric': leaf-spine, 4 hosts, 10 Gb/s, congestion control hpcc>"
    rows = rows_of(fabric._repr_html_())
    assert rows["Topology"] == "leaf-spine, 4 hosts, 8 cables"
    assert rows["Congestion control"] == "hpcc"
    assert rows["Buffer"] == "4 MiB, of a switch, shared"
    assert rows["PFC"] == "priorities 3"
    assert rows["ECN"] == "off"


def test_utilisation_is_of_the_links_rate() -> None:
    fabric = small_fabric()
    run = simtwin.simulate(fabric, simtwin.incast(fabric, "256KiB", target=3), iterations=2)
    ends_ns = run.timeline.group_by("iteration").agg(pl.col("end_ns").max())["end_ns"].sum()
    carried = run.links.filter(pl.col("link") == "leaf1->host3")["size_bytes"].item()
    figure = run.links_figure(2)
    assert f"leaf1->host3 {100 * carried * 8 / 10 / ends_ns:.0f} %" in figure.text
    assert len(elements(figure, "rect")) == 2
    assert run.links.filter(pl.col("size_bytes") > 0).height == 16
    assert figure.text.endswith("14 other links with traffic not shown, no links without traffic")
    for count in (0, 201):
        with pytest.raises(genie.RecordError, match=rf"^count {count}: give 1 to 200"):
            run.links_figure(count)
    with pytest.raises(genie.RecordError, match="iteration 7: the run has iterations 0 to 1; give one"):
        run.timeline_figure(7)
    with pytest.raises(genie.RecordError, match="no link has carried a byte at level analytic"):
        links_figure(replace(run, counters={"links": [{"link": "a->b"}]}, info={"level": "analytic"}), 1)


def test_a_verdict_names_what_it_did_not_judge() -> None:
    live, twin = run_pair(1, Noise(), Fault(5, 0.5))
    verdict = judge(live, twin)
    assert repr(verdict) == f"<Verdict {verdict.line()}>"
    rows = rows_of(verdict._repr_html_())
    assert "slower" in rows[verdict.suspects[0].name]
    assert rows["Judged"] == verdict.judged.words()
    assert rows["Not judged"] == (verdict.judged.nics.reasons() or "none")
    assert rows["Cost of an iteration"].startswith("not judged") == (verdict.cost is None)
    nics = replace(verdict.judged.nics, judged=7, not_judged={"too <noisy>": ("rank 3",)})
    changed = replace(verdict, judged=replace(verdict.judged, nics=nics))
    assert rows_of(changed._repr_html_())["Not judged"] == "rank 3 (too &lt;noisy&gt;)"
    figure = changed.slow_down_figure()
    assert figure.text.endswith("not judged: rank 3 (too <noisy>)")
    first = elements(figure, "rect")[0]
    assert first.get("fill") != "none"
    lost = replace(verdict.suspects[0], fault="loss", slow_down=0.0)
    assert f"{lost.name} loss" in replace(verdict, suspects=[lost]).slow_down_figure().text
    unsure = replace(verdict, suspects=[lost] * 7, cost=None)
    assert rows_of(unsure._repr_html_())["More suspects"] == "2, in .suspects"
    assert rows_of(unsure._repr_html_())["Cost of an iteration"] == "not judged"


def test_a_live_run_is_no_verdict() -> None:
    live, _ = run_pair(1, Noise())
    live.info.update(world="live", ranks=8, warmup=2, transport="softroce", workload="/somewhere/step")
    live.counters = {"ranks": [{"retransmitted": 3}, None]}
    rows = rows_of(live._repr_html_())
    assert rows["Faults"].startswith("not judged")
    assert rows["Retransmitted"] == "3 packets, transport softroce"
    kept = live.timeline.filter(pl.col("iteration") >= 2)["iteration"].n_unique()
    assert f"mean of {kept};" in rows["Iteration"]
    assert repr(live).endswith("live run of step on 8 ranks>")
    assert "iteration 2 of" in live.timeline_figure().text
    with pytest.raises(genie.RecordError, match="no counts of links, as in the live world"):
        live.links_figure()
    live.info.update(complete=False, problem="rank 3 died")
    assert rows_of(live._repr_html_())["Ended early"].startswith("rank 3 died")
