"""The page as a person meets it: in a browser, offline, from the top."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import Fault, Noise, expected_run, run_pair

from genie.report.page import report, write_report
from genie.verdict import judge


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The report of a run whose rank 5 is slow from iteration 7 on."""
    live, twin = run_pair(1, Noise(), Fault(5, 0.5, since=7))
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, judge(live, twin, expected=expected_run(1)), live, twin)
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    requests: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(path.as_uri())
    assert requests == [path.as_uri()]  # nothing else is asked for: it opens offline
    assert errors == []
    yield tab
    assert errors == []
    tab.close()


def test_the_verdict_comes_first_with_one_action(page) -> None:
    shown = [line for line in page.inner_text("main").splitlines() if line.strip()]
    assert shown[0] == "FAIL"
    assert "ank 5: its NIC (host5/nic0) or link" in shown[1]
    assert "since iteration 7" in shown[1]
    assert shown[2].startswith("Iterations take ")
    assert shown[2].endswith("of 8 NICs judged.")
    assert shown[3].startswith("Next step: Check host5/nic0")
    assert page.locator("#verdict").bounding_box()["y"] < 40
    assert "FAIL rank 5" in page.title()


def test_order_of_the_page(page) -> None:
    text = page.inner_text("body")
    order = [
        "Next step",
        "NICs judged\n",
        "Smallest slow-down",
        "Suspects",
        "Warnings and remarks",
        "Bus bandwidth of",
        "Wait, wire and excess of",
        "Timelines of",
        "Excess from",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_the_fault_shows_as_a_step_of_the_bus_bandwidth(page) -> None:
    points = page.locator("#bandwidth .point")
    ratio = {int(points.nth(i).get_attribute("data-iteration")): float(points.nth(i).get_attribute("data-ratio"))
             for i in range(points.count())}  # fmt: skip
    assert sorted(ratio) == list(range(2, 12))
    assert min(ratio[i] for i in range(2, 7)) > 0.9
    assert max(ratio[i] for i in range(7, 12)) < 0.6
    points.nth(5).hover()
    assert page.locator("#tip").is_visible()
    assert page.locator("#tip").inner_text().startswith("iteration 7: 0.5")
    page.locator("#bandwidth ~ details summary").click()
    assert page.locator("#bandwidth ~ details table tr").count() == 11


def test_three_parts_of_each_collective(page) -> None:
    bars = page.locator("#parts .part")
    assert bars.count() == 4
    bars.nth(0).hover()
    words = page.locator("#tip").inner_text()
    assert "all_reduce · 1.51 MiB" in words, "the largest excess comes first"
    assert all(part in words for part in ("wait", "wire", "excess"))
    assert int(words.split("(")[-1].split(" %")[0]) > 80  # while rank 5 was slow
    page.select_option("#parts-choice", "before")
    page.mouse.move(0, 0)
    bars.nth(0).hover()
    assert abs(int(page.locator("#tip").inner_text().split("(")[-1].split(" %")[0])) < 10


def test_swim_lanes_have_both_worlds(page) -> None:
    assert page.locator("#lanes .slice.live").count() >= 8 * 4
    assert page.locator("#lanes .slice.twin").count() >= 8 * 4
    page.locator("#lanes .slice.live").first.hover()
    assert "rank 0, live:" in page.locator("#tip").inner_text()


def test_the_pair_map_has_a_band_of_the_slow_sender(page) -> None:
    cells = page.locator("#pairs .pair")
    assert cells.count() == 64
    words = [cells.nth(i).get_attribute("data-tip") for i in range(64)]
    slow = {
        text.split(":")[0] for text in words if "nothing" not in text and float(text.split(":")[1].split(" %")[0]) > 40
    }
    assert slow == {f"rank 5 to rank {to}" for to in range(8) if to != 5}
    cells.nth(5 * 8 + 6).hover()
    assert "rank 5 to rank 6" in page.locator("#tip").inner_text()


def test_nothing_is_wider_than_the_window_and_no_texts_overlap(page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    overlaps = page.evaluate(
        """() => [...document.querySelectorAll('svg')].flatMap(svg => {
          const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
          const found = [];
          boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
            const beside = p.left >= q.right - 1 || q.left >= p.right - 1;
            if (!beside && p.top < q.bottom - 3 && q.top < p.bottom - 3) found.push([a, b]);
          }));
          return found;
        })"""
    )
    assert overlaps == []


def test_names_cannot_end_the_script(tmp_path: Path) -> None:
    live, twin = run_pair(2, iterations=4, warmup=2)
    for entry in twin.info["hosts"]:
        entry["nic"] = "</script><b>nic"
    live.timeline = live.timeline.with_columns(live.timeline["name"] + "</script><b>")
    text = report(judge(live, twin), live, twin)
    assert text.count("</script>") == 2
    assert "<b>nic" not in text


def test_a_run_without_payload_has_a_page_without_its_figures(browser: Any, tmp_path: Path) -> None:
    live, twin = run_pair(2, iterations=4, warmup=2)
    for run in (live, twin):
        run.timeline = run.timeline.filter(run.timeline["kind"] == "comp")
        run.transfers = run.transfers.clear()
    live.info["warnings"] = ["fault [[rate]] of rank 1 has no effect: factor is 1"]
    path = tmp_path / "report.html"
    write_report(path, judge(live, twin), live, twin)
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(path.as_uri())
    assert errors == []
    assert "No payload went between ranks: no NIC or link judged" in tab.inner_text("#verdict")
    assert "live: fault [[rate]] of rank 1 has no effect: factor is 1" in tab.inner_text("#warnings")
    assert tab.locator("#warnings").bounding_box()["y"] < 600
    assert tab.locator("#lanes .slice").count() >= 16
    assert [tab.locator(name).count() for name in ("#bandwidth", "#parts", "#pairs")] == [0, 0, 0]
    tab.close()
