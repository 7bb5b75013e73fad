"""The filter, the zoom and the links over time of a simulation's page, by what a person clicks and types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browsed import LOW_CONTRAST, Opened, address, is_ringed, press, stops_by_figure, tip_in_one_line
from rails_page import rails_page
from twin_fabrics import leaf_spine

from genie.page.lanes import size_of
from genie.workload.build import RankBuilder
from genie.workload.graph import Group, Kind, Op, Workload
from simtwin.fabric.topology import build_network
from simtwin.play.run import simulate_to_folder
from simtwin.play.twin import Twin
from simtwin.report import write_simulation_report
from simtwin.report.over_time import BYTES_MAX, DIGITS, FRAMES_MAX, LEVELS, over_time
from simtwin.report.write import PAGE

RAILS = """
name = "rail16"
[topology]
kind = "rail-optimized"
servers = 16
rails = 8
spines = 4
[link]
rate = "400Gb/s"
delay = "500ns"
[switch]
shared_buffer = "4MiB"
[ecn]
minimum = "4kB"
maximum = "40kB"
"""
INTERVAL_NS = 5_000


@pytest.fixture(scope="module")
def rails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of two iterations of all-reduces on 128 hosts, with a series and a page."""
    return rails_page(tmp_path_factory.mktemp("rails") / "run", RAILS, INTERVAL_NS, iterations=2)


def two_groups() -> Workload:
    """Ranks 0 and 1 reduce in one group, 2 and 3 in another, after a computation."""
    workload = Workload("groups", 4, [Group("left", (0, 1)), Group("right", (2, 3))], {})
    for rank in range(4):
        builder = RankBuilder(rank)
        first = builder.add(0, "kernel", Kind.COMP, duration_ns=30_000)
        own: dict[str, Any] = {"kind": Kind.COLL, "op": Op.ALL_REDUCE, "group": rank // 2}
        builder.add(1, "together", deps=(first,), size_bytes=1 << 20, **own)
        workload.ranks[rank], _ = builder.finish()
    return workload


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of two groups on four hosts under two leaf switches, without a series."""
    fabric = leaf_spine(2, 2, 2)
    folder = tmp_path_factory.mktemp("groups") / "run"
    twin = Twin(fabric, build_network(fabric), range(4))
    simulate_to_folder(twin, two_groups(), folder, workload_path="jobs/groups")
    write_simulation_report(folder)
    return folder


@pytest.fixture
def page(rails: Path, opened: Opened) -> Any:
    return opened(rails / PAGE)


def lane_rows(page: Any) -> list[str]:
    names: list[str] = page.locator("#lanes-figure text.row").all_text_contents()
    return names


def heats(page: Any) -> dict[str, str]:
    """Drawn link -> its colour."""
    found: dict[str, str] = page.locator("#topology-figure .link").evaluate_all(
        "all => Object.fromEntries(all.map(it => [it.dataset.name, getComputedStyle(it).getPropertyValue('--heat')]))"
    )
    return found


def busiest(page: Any) -> list[list[str]]:
    lines: list[str] = page.locator("#busiest tbody tr").all_inner_texts()
    return [line.split("\t") for line in lines]


def move_slider(page: Any, frame: int) -> None:
    page.locator("#topology-time").fill(str(frame))


# Links over time


def test_the_slider_colours_links_and_names_the_busiest(page: Any, rails: Path) -> None:
    whole = heats(page)
    assert not page.locator("#busiest").is_visible()
    move_slider(page, 8)
    assert page.input_value("#topology-metric") == "now_busy"
    first, table = heats(page), busiest(page)
    assert len(table) == 10
    assert first != whole
    move_slider(page, 60)
    assert heats(page) != first
    assert busiest(page) != table

    iteration = page.evaluate("Number(firstFrames())")
    step_ns = page.evaluate("frames().step_ns")
    assert step_ns % INTERVAL_NS == 0
    own = pl.read_parquet(rails / "series.parquet").filter(
        (pl.col("iteration") == iteration) & (pl.col("kind") == "link")
        & (pl.col("time_ns") > 60 * step_ns) & (pl.col("time_ns") <= 61 * step_ns)
    )  # fmt: skip
    busy = own.group_by("name").agg(pl.col("utilisation").sum() * INTERVAL_NS / step_ns)
    highest = busy.sort("utilisation", descending=True)["utilisation"][0]
    name, shown, _ = busiest(page)[0]
    assert float(shown.removesuffix(" %")) / 100 == pytest.approx(highest, abs=0.001)
    assert busy.filter(pl.col("name") == name)["utilisation"][0] == pytest.approx(highest, abs=0.001)
    said = page.inner_text("#topology-now")
    assert re.fullmatch(rf"\S+ µs to \S+ µs of \S+ ms, iteration {iteration}", said)
    assert page.locator("#topology-time").get_attribute("aria-valuetext") == said
    assert address(page) == f"#time={60 * step_ns}"
    page.reload()
    assert page.input_value("#topology-time") == "60"
    assert busiest(page)[0][0] == name


def test_links_are_coloured_by_their_queue_too(page: Any) -> None:
    move_slider(page, 8)
    busy = heats(page)
    page.select_option("#topology-metric", "now_queue")
    assert heats(page) != busy
    assert "KiB" in page.inner_text("#topology-key")
    queues = page.evaluate("[...data.topology.links.link.keys()].map(link => valueNow('now_queue', link))")
    assert float(busiest(page)[0][2].removesuffix(" KiB")) == pytest.approx(max(queues) / 1024, rel=0.01)
    page.select_option("#topology-metric", "mean")
    assert "move the slider" in page.inner_text("#topology-now")
    assert not page.locator("#busiest").is_visible()


def test_the_slider_moves_by_keyboard_and_another_iteration_has_its_own_frames(page: Any) -> None:
    page.locator("#topology-time").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#topology-time") == "2"
    before = heats(page)
    other = page.evaluate("Object.keys(data.over_time).find(it => it !== firstFrames())")
    page.select_option("[name=iteration]", other)
    assert page.inner_text("#topology-now").endswith(f"iteration {other}")
    move_slider(page, 30)
    assert heats(page) != before


@pytest.mark.parametrize(("motion", "frames"), [("no-preference", 8), ("reduce", 2)])
def test_play_moves_the_slider_until_pause(motion: str, frames: int, rails: Path, opened: Opened) -> None:
    page = opened(rails / PAGE, reduced_motion=motion)
    step = page.evaluate("Math.ceil(frames().frames / PLAY_STEPS)")
    page.clock.install(time=0)
    page.clock.pause_at(60_000)
    page.click("#topology-play")
    assert page.inner_text("#topology-play") == "Pause"
    page.clock.run_for(2_050)
    assert page.input_value("#topology-time") == str(frames * step)
    page.click("#topology-play")
    page.clock.run_for(3_000)
    assert page.input_value("#topology-time") == str(frames * step)
    assert page.inner_text("#topology-play") == "Play"


def test_without_a_series_the_page_says_how_to_get_one(groups: Path, opened: Opened) -> None:
    page = opened(groups / PAGE)
    assert "To see links over time: genie simulate ... --series 10us" in page.inner_text("#topology")
    assert page.locator("#topology-time").count() == 0
    assert "now_busy" not in page.locator("#topology-metric option").evaluate_all("all => all.map(it => it.value)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_heat_differ_in_brightness_alone_too(scheme: str, rails: Path, opened: Opened) -> None:
    """Steps that become darker, or brighter at night, are told apart whatever colours the eye tells apart."""
    page = opened(rails / PAGE, scheme=scheme)
    colours = page.locator("#topology-key i").evaluate_all("all => all.map(it => getComputedStyle(it).backgroundColor)")
    assert len(colours) == 7
    channels = np.array([[int(it) for it in re.findall(r"\d+", colour)] for colour in colours]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    brightness = linear @ [0.2126, 0.7152, 0.0722]
    steps = np.diff(np.cbrt(brightness))  # as the eye sees it
    assert (steps < -0.03).all() if scheme == "light" else (steps > 0.03).all(), steps


# The filter and the zoom


def test_any_rank_of_128_has_its_lanes(page: Any) -> None:
    assert len(lane_rows(page)) == 17 + 1, "a few ranks, and the critical path"
    page.fill("[name=rank]", "77-80")
    assert lane_rows(page) == [f"rank {rank}" for rank in range(77, 81)] + ["critical"]
    assert page.locator("#strips text.small").count() >= 1
    page.locator("#strips .strip").hover(position={"x": 5, "y": 3})
    assert page.locator("#tip").inner_text().startswith("rank 77 at ")
    assert page.locator('#topology-figure .link.faint[data-name^="host"]').count() == 128 - 4
    page.reload()
    assert len(lane_rows(page)) == 5


def test_a_filter_of_links_reduces_drawing_tables_and_curves(page: Any) -> None:
    page.fill("[name=link]", "spine2")
    shown = page.locator("#topology-figure .link:not(.faint)")
    assert shown.count() == 16
    assert all("spine2" in name for name in page.locator("#hottest tbody tr:visible td:first-child").all_inner_texts())
    assert all("spine2" in name for name in page.locator("#queue-links label:visible").all_inner_texts())
    move_slider(page, 30)
    assert all("spine2" in name for name, *_ in busiest(page))
    page.click("button[type=reset]")
    name = page.locator("#busiest button").first.inner_text()
    page.locator("#busiest button").first.click()
    assert page.input_value("[name=link]") == name
    assert page.locator("#topology-figure .link:not(.faint)").evaluate_all("all => all.map(it => it.dataset.name)") == [
        name
    ]


def test_a_number_in_a_filter_of_links_is_a_whole_one(page: Any) -> None:
    has_part = "([name, part]) => hasPart(name, part)"
    for name, part, is_part in (
        ("leaf1->spine0", "leaf1", True), ("leaf10->spine0", "leaf1", False), ("leaf10->spine0", "leaf", True),
        ("leaf0->spine1", "f0->spine", True), ("spine1->leaf10", "10", True), ("spine1->leaf10", "0", False),
    ):  # fmt: skip
        assert page.evaluate(has_part, [name, part]) is is_part, (name, part)


def test_strips_keep_the_focus_when_they_are_drawn_again_and_none_take_it(page: Any) -> None:
    page.locator("#strips .strip").focus()
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function("document.querySelector('#strips svg').getAttribute('width') < 1000")
    assert page.evaluate("document.activeElement.classList.contains('strip')")
    page.fill("[name=link]", "")
    page.fill("[name=rank]", "100000")
    assert page.locator("#strips [tabindex='0']").count() == 0


def test_a_click_on_a_drawn_link_chooses_it(groups: Path, opened: Opened) -> None:
    page = opened(groups / PAGE)
    name = "host0->leaf0"
    x, y = page.locator(f'#topology-figure .link[data-name="{name}"] .reach').evaluate(
        """path => {
          path.scrollIntoView({ block: 'center' });
          const point = path.getPointAtLength(path.getTotalLength() / 2);
          const box = path.ownerSVGElement.getBoundingClientRect();
          return [Math.round(point.x + box.left), Math.round(point.y + box.top)];
        }"""
    )
    page.mouse.click(x, y)
    assert page.input_value("[name=link]") == name


def test_a_group_leaves_its_ranks_and_its_collectives(groups: Path, opened: Opened) -> None:
    page = opened(groups / PAGE)
    assert page.locator("#collectives tbody tr:visible").count() == 2
    page.locator("#collectives td button", has_text="right").click()
    assert page.locator("#collectives tbody tr:visible").count() == 1
    assert page.inner_text("#view-said") == "2 of 4 ranks, group right"
    assert lane_rows(page) == ["rank 2", "rank 3", "critical"]
    page.locator("#lanes details summary").click()
    assert page.locator("#lanes details tbody tr:visible td:first-child").all_inner_texts() == ["2", "3"]


def test_collectives_follow_a_filter_of_ranks(groups: Path, opened: Opened) -> None:
    page = opened(groups / PAGE)
    shown = page.locator("#collectives tbody tr:visible td:nth-child(2)")
    page.fill("[name=rank]", "3")
    assert shown.all_inner_texts() == ["right"]
    assert page.inner_text("#collectives .filtered") == "The filter shows 1 of 2 rows."
    page.fill("[name=rank]", "1-2")
    assert sorted(shown.all_inner_texts()) == ["left", "right"]


def test_collectives_are_sorted_by_time_and_size(groups: Path, opened: Opened) -> None:
    page = opened(groups / PAGE)
    heading = page.locator("#collectives th", has_text="group")
    heading.locator("button").press("Enter")
    assert page.locator("#collectives tbody td:nth-child(2)").all_inner_texts() == ["left", "right"]
    heading.locator("button").press("Enter")
    assert page.locator("#collectives tbody td:nth-child(2)").all_inner_texts() == ["right", "left"]
    values = page.locator("#collectives tbody tr:first-child td").evaluate_all("all => all.map(it => it.dataset.value)")
    assert int(values[3]) == 1 << 20
    assert float(values[5]) > 10_000


def test_a_zoom_is_that_of_strips_and_lanes(page: Any) -> None:
    ticks = "#strips svg text.soft:not(.small)", "#lanes-figure svg text.soft:not(.small)"
    page.locator("#lanes-figure").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    strip_ticks, lane_ticks = (page.locator(it).all_text_contents() for it in ticks)
    assert strip_ticks == lane_ticks
    assert strip_ticks[0] != "0"
    page.keyboard.press("0")
    assert page.locator(ticks[0]).first.text_content() == "0"


# Figures by keyboard


def test_a_picture_is_one_stop_of_the_tab_key(page: Any) -> None:
    assert stops_by_figure(page) == {
        "topology-figure": ["img"], "queue-figure": ["slider"], "flow-sizes": ["img"], "flow-cdf": ["slider"],
        "strips": ["slider"], "lanes-figure": ["group"],
    }  # fmt: skip


def test_arrows_lead_over_the_network_and_a_key_chooses_a_link(page: Any) -> None:
    page.locator("#topology-figure [tabindex='0']").focus()
    assert press(page, "Home") == ["img", "rail0leaf0"]
    assert is_ringed(page, "topology-figure")
    assert press(page, "End", "ArrowLeft") == ["img", "rail6leaf0"]
    role, said = press(page, "ArrowUp")
    name = said.partition(";")[0]
    assert role == "button"
    assert "spine" in name
    assert "; rate 400 Gb/s; " in said
    assert said == tip_in_one_line(page)
    line = page.locator(f'#topology-figure .link[data-name="{name}"] .seen').get_attribute("d")
    assert page.locator("#topology-figure .ring").get_attribute("d") == line, "the line itself stands out"
    assert press(page, "Enter") == ["button", said]
    assert page.input_value("[name=link]") == name
    assert press(page, "ArrowUp")[1].startswith("spine")
    cell = press(page, "ArrowDown", "ArrowDown", "ArrowDown")[1]
    assert re.match(r"host\d+->rail\dleaf0; |rail\dleaf0->host\d+; ", cell)
    press(page, "Space")
    assert page.input_value("[name=link]") == cell.partition(";")[0]
    press(page, "Space")
    assert page.input_value("[name=link]") == ""


def test_a_place_in_curves_and_strips_is_read_by_keyboard(page: Any) -> None:
    points = page.evaluate("Math.round(data.queues.end_ns / data.queues.step_ns)")
    page.locator("#queue-figure .times").focus()
    role, first = press(page, "Home")
    assert (role, first.partition(";")[0]) == ("slider", "0 ns to 5 µs")
    assert page.locator("#queue-figure line[visibility=visible]").count() == 1
    assert press(page, "ArrowRight", "ArrowRight")[1].startswith("10 µs to 15 µs; ")
    assert tip_in_one_line(page) == press(page)[1]
    press(page, "End", "ArrowRight")
    area = page.locator("#queue-figure .times")
    assert area.get_attribute("aria-valuenow") == area.get_attribute("aria-valuemax") == str(points - 1)
    page.keyboard.press("Tab")
    assert page.locator("#queue-figure line[visibility=visible], #queue-figure .ring").count() == 0

    page.locator("#strips .strip").focus()
    assert press(page, "ArrowDown", "ArrowDown", "ArrowUp")[1].startswith("rank 1 at ")
    page.fill("[name=rank]", "77-80")
    page.locator("#strips .strip").focus()
    early = press(page, "ArrowDown")[1]
    assert early.startswith("rank 78 at ")
    assert press(page, "End")[1] != early
    page.locator("#flow-cdf .cdf").focus()
    assert press(page, "End")[1].startswith("100 % of flows have a slowdown of at most ")
    assert press(page, "Home")[1].startswith("no flow has a slowdown below ")


def test_timelines_are_reached_and_chosen_by_keyboard(page: Any) -> None:
    page.locator("#lanes-figure").focus()
    assert press(page, "ArrowDown", "ArrowDown") == ["button", "rank 8"]
    assert press(page, "Enter") == ["button", "rank 8"]
    assert lane_rows(page) == ["rank 8", "critical"]
    assert press(page, "ArrowDown") == ["img", "critical"], "a path through many ranks chooses none"
    assert press(page, "ArrowRight")[0] == "img"


# Colours, paper and narrow windows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(scheme: str, rails: Path, opened: Opened) -> None:
    tab = opened(rails / PAGE, "#time=100000", scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert tab.locator("#busiest td").count() == 30
    assert tab.evaluate(LOW_CONTRAST, 4.5) == []


def test_paper_is_white_and_has_no_controls(rails: Path, opened: Opened) -> None:
    tab = opened(rails / PAGE, "#time=100000", scheme="dark")
    controls = tab.locator("#view label, .play button, .play input, .zoom button")
    assert controls.count() == 3 + 2 + 5
    tab.emulate_media(media="print", color_scheme="dark")
    assert [it for it in controls.all() if it.is_visible()] == []
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.locator("#topology-now").is_visible(), "a drawing of one time says which"


def test_nothing_is_wider_than_a_telephone(rails: Path, opened: Opened) -> None:
    tab = opened(rails / PAGE, "#time=100000", width=390)
    tab.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


# Sizes


def test_a_page_of_128_ranks_with_a_series_is_small(rails: Path) -> None:
    assert 500_000 < (rails / PAGE).stat().st_size < 3_000_000


def links_over_time(links: int, intervals: int, iterations: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    at = np.arange(iterations * links * intervals)
    return pl.DataFrame({
        "iteration": at // (links * intervals), "time_ns": (at // links % intervals + 1) * 1000, "kind": "link",
        "name": [f"link{it % links}" for it in at.tolist()], "utilisation": rng.random(len(at)),
        "longest_queue_bytes": rng.integers(0, 1000, len(at)),
    })  # fmt: skip


def decoded(text: str) -> list[float]:
    digits = "".join(DIGITS)
    return [(64 * digits.index(a) + digits.index(b)) / (LEVELS - 1) for a, b in zip(text[::2], text[1::2], strict=True)]


def test_frames_keep_means_and_longest_queues() -> None:
    intervals = 2 * FRAMES_MAX
    series = links_over_time(3, intervals)
    members = [["link0"], ["link1", "link2"]]
    found = over_time(series, {0: intervals * 1000}, 1000, members, 0)["0"]
    assert (found["step_ns"], found["frames"], found["end_ns"]) == (2000, FRAMES_MAX, intervals * 1000)
    own = series.filter(pl.col("name") == "link0").sort("time_ns")
    means = own["utilisation"].to_numpy().reshape(-1, 2).mean(axis=1)
    assert decoded(found["busy"]["0"]) == pytest.approx(means, abs=1 / LEVELS)
    queues = series.filter(pl.col("name") != "link0").group_by("time_ns").agg(pl.col("longest_queue_bytes").max())
    longest = queues.sort("time_ns")["longest_queue_bytes"].to_numpy().reshape(-1, 2).max(axis=1)
    assert np.array(decoded(found["queue"]["1"])) * found["queue_max"] == pytest.approx(longest, abs=1)


def test_many_links_have_fewer_frames_and_iterations_without_room_are_left_out() -> None:
    links = 1500
    series = links_over_time(links, 200, iterations=3)
    ends = dict.fromkeys(range(3), 200_000)
    found = over_time(series, ends, 1000, [[f"link{at}"] for at in range(links)], 1)
    assert next(iter(found)) == "1"
    assert size_of(found) < 1.1 * BYTES_MAX
    assert found["1"]["frames"] < 200
    assert len(found) < 3
    assert over_time(series.clear(), ends, 1000, [["link0"]], 1) == {}
