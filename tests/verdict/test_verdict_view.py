"""The filter, the zoom and the limit of bytes of a verdict's page, by what a person clicks and types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from browsed import LOW_CONTRAST, Opened, address, is_ringed, press, stops_by_figure, tip_in_one_line
from link_runs import probed
from link_runs import run_pair as link_pair
from synthetic_runs import Fault, Noise, expected_run, run_pair

from genie.page import PAGE_BYTES_MAX
from genie.record import Run
from genie.record.schemas import TIMELINE_SCHEMA, TRANSFERS_SCHEMA
from genie.report.page import report
from genie.report.page_data import lanes
from genie.verdict import judge

COPIES, KERNELS = 16, 500


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 8 ranks whose rank 5 is slow from iteration 7 on."""
    live, twin = run_pair(1, Noise(), Fault(5, 0.5, since=7))
    path = tmp_path_factory.mktemp("small") / "report.html"
    path.write_text(report(judge(live, twin, expected=expected_run(1)), live, twin), encoding="utf-8")
    return path


def many_ranks(run: Run) -> None:
    """Make 128 ranks of 8, in 16 groups, with many kernels in each computation."""
    own = int(run.info["ranks"])
    shifts = [(copy, copy * own) for copy in range(COPIES)]
    kernel = (pl.col("end_ns") - pl.col("start_ns")) // KERNELS
    split = (
        run.timeline.filter(pl.col("kind") == "comp")
        .with_columns(at=pl.int_ranges(0, KERNELS), kernel=kernel)
        .explode("at")
        .with_columns(start_ns=pl.col("start_ns") + pl.col("at") * pl.col("kernel"))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("kernel"), name=pl.format("layer {}", pl.col("at") // 8))
        .select(list(TIMELINE_SCHEMA))
        .cast(TIMELINE_SCHEMA)  # type: ignore[arg-type]
    )
    timeline = pl.concat([run.timeline.filter(pl.col("kind") != "comp"), split])
    group = pl.when(pl.col("group").is_not_null())
    run.timeline = pl.concat(
        timeline.with_columns(pl.col("rank") + shift, group=group.then(pl.lit(f"tp{copy}"))) for copy, shift in shifts
    ).cast(TIMELINE_SCHEMA)  # type: ignore[arg-type]
    run.transfers = pl.concat(
        run.transfers.with_columns(pl.col("src", "dst") + shift, group=group.then(pl.lit(f"tp{copy}")))
        for copy, shift in shifts
    ).cast(TRANSFERS_SCHEMA)  # type: ignore[arg-type]
    run.info["ranks"] = own * COPIES
    host = run.info["hosts"][0]
    run.info["hosts"] = [
        {**host, "rank": rank, "host": f"host{rank}", "nic": f"host{rank}/nic0", "link": f"host{rank}-switch0"}
        for rank in range(own * COPIES)
    ]


@pytest.fixture(scope="module")
def large() -> tuple[Any, Run, Run]:
    """The verdict and the runs of 128 ranks, of which rank 5 of each 8 is slow."""
    live, twin = run_pair(1, Noise(), Fault(5, 0.5, since=7))
    many_ranks(live)
    many_ranks(twin)
    return judge(live, twin), live, twin


@pytest.fixture(scope="module")
def large_page(large: tuple[Any, Run, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(report(*large), encoding="utf-8")
    return path


@pytest.fixture
def page(small: Path, opened: Opened) -> Any:
    return opened(small)


@pytest.fixture(scope="module")
def link_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of runs in which one direction of a cable is slow, and both."""
    folder, pages = tmp_path_factory.mktemp("links"), {}
    for name, slow in {"link": ["leaf1->spine0"], "cable": ["leaf1->spine0", "spine0->leaf1"]}.items():
        factors = dict.fromkeys(slow, 0.4)
        live, twin = link_pair(1, factors)
        pages[name] = folder / f"{name}.html"
        pages[name].write_text(report(judge(probed(live, factors), twin), live, twin), encoding="utf-8")
    return pages


def rows(page: Any) -> list[str]:
    names: list[str] = page.locator("#lanes text.row").all_text_contents()
    return names


def span(page: Any) -> str:
    text: str = page.inner_text(".zoom output")
    return text


# The filter


def test_a_filter_of_ranks_reduces_lanes_and_tables_and_stays(page: Any) -> None:
    before = page.locator("#lanes .slice").count()
    page.fill("[name=rank]", "2-3")
    assert rows(page) == ["rank 2", "rank 3"]
    assert 0 < page.locator("#lanes .slice").count() < before / 3
    page.locator("#pairs ~ details summary").click()
    shown = page.locator("#pairs ~ details tbody tr:visible")
    assert shown.count() == 8 * 7 - 6 * 5, "all pairs with rank 2 or 3"
    assert page.locator("#pairs .pair.faint").count() == 6 * 6
    page.reload()
    assert rows(page) == ["rank 2", "rank 3"]
    assert page.inner_text("#view-said") == "2 of 8 ranks"
    page.click("button[type=reset]")
    assert page.locator("#lanes .slice").count() == before


def test_a_suspect_chooses_its_ranks(page: Any) -> None:
    page.locator("#suspects td button").first.click()
    assert address(page) == "#rank=5"
    assert page.input_value("[name=rank]") == "5"
    assert rows(page) == ["rank 5"]


@pytest.mark.parametrize(
    ("which", "name", "chosen", "other"),
    [
        ("link", "leaf1->spine0", "leaf1->spine0", "leaf0->spine0"),
        ("cable", "leaf1-spine0", "spine0->leaf1,leaf1->spine0", "leaf1->spine1"),
    ],
)
def test_a_suspect_that_is_a_link_chooses_its_links(
    which: str, name: str, chosen: str, other: str, link_pages: dict[str, Path], opened: Opened
) -> None:
    page = opened(link_pages[which])
    button = page.locator("#suspects td button", has_text=name)
    button.click()
    assert page.input_value("[name=link]") == chosen
    assert address(page) == f"#link={chosen}"
    assert page.inner_text("#view-said") == "all 8 ranks, links with “{}”".format("” or “".join(chosen.split(",")))
    assert page.locator("#suspects tbody tr:visible").count() == 1
    page.reload()
    assert page.input_value("[name=link]") == chosen
    button.click()
    assert address(page) == ""
    page.fill("[name=link]", other)
    assert not button.is_visible(), "another link is asked for"


def test_bars_follow_a_filter_of_ranks_by_their_group(large_page: Path, opened: Opened) -> None:
    page = opened(large_page)
    page.fill("[name=rank]", "8-9,17")
    tips = page.locator("#parts .part").evaluate_all("bars => bars.map(it => it.dataset.tip)")
    groups = {re.search(r"group (tp\d+) ", tip)[1] for tip in tips}  # type: ignore[index]
    assert groups <= {"tp1", "tp2"}
    assert len(groups) == 2
    assert len(tips) < 40


def test_a_row_of_the_timelines_chooses_its_rank(page: Any) -> None:
    page.locator("#lanes text.row", has_text="rank 6").click()
    assert page.inner_text("#view-said") == "1 of 8 ranks"
    assert address(page) == "#rank=6"
    page.locator("#lanes .slice").nth(2).click()
    assert page.inner_text("#view-said") == "all 8 ranks"


def test_an_iteration_is_chosen_for_all_figures(page: Any) -> None:
    page.locator('#bandwidth .point[data-iteration="3"]').click()
    assert page.input_value("[name=iteration]") == "3"
    assert page.input_value("#lanes-choice") == page.input_value("#parts-choice") == "3"
    assert page.locator("#bandwidth .chosen").count() == 1
    page.click("button[type=reset]")
    assert page.input_value("#lanes-choice") == "7"
    assert page.input_value("#parts-choice") == "during"


def test_a_bar_chooses_its_group(large_page: Path, opened: Opened) -> None:
    page = opened(large_page)
    assert page.locator("#parts .part").count() == 40
    group = re.search(r"group (tp\d+) ", page.locator("#parts .part").first.get_attribute("data-tip"))
    assert group is not None
    page.locator("#parts .part").first.click()
    first = 8 * int(group[1].removeprefix("tp"))
    assert page.inner_text("#view-said") == f"8 of 128 ranks, group {group[1]}"
    assert rows(page) == [f"rank {rank}" for rank in range(first, first + 8)]
    bars = page.locator("#parts .part").evaluate_all("bars => bars.map(it => it.dataset.tip)")
    assert 0 < len(bars) < 40
    assert "The 40 of 64 collectives with most time are drawn." in page.inner_text("body")
    assert all(f"group {group[1]} " in tip for tip in bars)


# The zoom


def test_keys_zoom_move_and_show_the_whole_again(page: Any) -> None:
    page.locator("#lanes").focus()
    whole, drawn = span(page), page.locator("#lanes .slice").count()
    assert whole.startswith("all ")
    for _ in range(3):
        page.keyboard.press("+")
    low, high = map(float, address(page).rpartition("zoom=")[2].split("-"))
    end = page.evaluate("data.lanes['7'].end")
    assert high - low == pytest.approx(end / 8, rel=1e-6)
    assert 0 < page.locator("#lanes .slice").count() < drawn
    inside, shown = page.evaluate(
        """([low, high]) => [
          unpacked(data.lanes['7']).filter(it => it.stop >= low && it.start <= high).length,
          document.querySelectorAll('#lanes .slice').length
            + [...document.querySelectorAll('#lanes .thin')].flatMap(it => it.getAttribute('d').match(/M/g)).length,
        ]""",
        [low, high],
    )
    assert shown <= inside, "what is outside is not drawn"
    page.keyboard.press("ArrowLeft")
    assert float(address(page).rpartition("zoom=")[2].split("-")[0]) == pytest.approx(low - end / 32, abs=2)
    page.keyboard.press("-")
    assert " of " in span(page)
    page.keyboard.press("Home")
    assert span(page) == whole
    assert address(page) == ""


def test_buttons_wheel_and_mouse_zoom_too(page: Any) -> None:
    page.locator("#lanes").scroll_into_view_if_needed()
    page.get_by_role("button", name="Zoom in").click()
    assert "zoom=" in address(page)
    page.get_by_role("button", name="Show the whole time").click()
    assert "zoom=" not in address(page)
    axis = page.evaluate("laneAxis('lanes', WORLDS)")
    box = page.locator("#lanes").bounding_box()
    left, wide = box["x"] + axis["left"], axis["right"] - axis["left"]
    page.mouse.move(left + wide / 4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(left + wide / 2, box["y"] + 60, steps=4)
    page.mouse.up()
    end = page.evaluate("data.lanes['7'].end")
    low, high = map(float, address(page).rpartition("zoom=")[2].split("-"))
    assert low == pytest.approx(end / 4, rel=0.02)
    assert high == pytest.approx(end / 2, rel=0.02)
    assert "rank=" not in address(page), "a span that is drawn chooses no rank"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function(f"location.hash !== '#zoom={low:.0f}-{high:.0f}'")
    closer = list(map(float, address(page).rpartition("zoom=")[2].split("-")))
    assert closer[1] - closer[0] < (high - low) / 2
    page.reload()
    assert " of " in span(page)


def test_two_fingers_zoom_around_their_middle(page: Any) -> None:
    page.evaluate(
        """() => {
          const figure = document.getElementById('lanes'), { left, right } = laneAxis('lanes', WORLDS);
          const box = figure.getBoundingClientRect(), middle = box.left + (left + right) / 2;
          const send = (type, pointerId, clientX) =>
            figure.dispatchEvent(new PointerEvent(type, { pointerId, clientX, clientY: box.top + 50, bubbles: true }));
          send('pointerdown', 1, middle - 50);
          send('pointerdown', 2, middle + 50);
          send('pointermove', 1, middle - 100);
          send('pointermove', 2, middle + 100);
          send('pointerup', 1, middle - 100);
          send('pointerup', 2, middle + 100);
        }"""
    )
    end = page.evaluate("data.lanes['7'].end")
    low, high = map(float, address(page).rpartition("zoom=")[2].split("-"))
    assert high - low == pytest.approx(end / 2, rel=0.01)
    assert (low + high) / 2 == pytest.approx(end / 2, rel=0.1)


def test_the_figure_says_how_to_zoom(page: Any) -> None:
    figure = page.locator("#lanes")
    assert figure.get_attribute("tabindex") == "0"
    described = page.inner_text(f"#{figure.get_attribute('aria-describedby')}")
    assert "arrows, 0 or Home" in described
    named = page.locator(".zoom button").evaluate_all("all => all.map(it => it.getAttribute('aria-label'))")
    assert named == ["Zoom out", "Zoom in", "Earlier", "Later", "Show the whole time"]


# Figures by keyboard


def test_a_picture_is_one_stop_of_the_tab_key(small: Path, opened: Opened) -> None:
    page = opened(small)
    assert stops_by_figure(page) == {
        "bandwidth": ["button"], "parts": ["button"], "lanes": ["group"], "pairs": ["img"]
    }  # fmt: skip


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_arrows_lead_from_bar_to_bar_and_a_key_chooses(key: str, large_page: Path, opened: Opened) -> None:
    page = opened(large_page)
    tips = page.locator("#parts .part").evaluate_all("bars => bars.map(it => it.dataset.tip.replaceAll('\\n', '; '))")
    page.locator("#parts [tabindex='0']").focus()
    assert press(page, "ArrowDown", "ArrowDown", "ArrowUp") == ["button", tips[1]]
    assert tip_in_one_line(page) == tips[1]
    assert is_ringed(page, "parts")
    group = re.search(r"group (tp\d+) ", tips[1])
    assert group is not None
    assert press(page, key) == ["button", tips[1]], "the bar keeps the focus in the new drawing"
    assert page.input_value("[name=group]") == group[1]
    assert is_ringed(page, "parts")
    assert 0 < page.locator("#parts .part").count() < 40
    assert press(page, key) == ["button", tips[1]]
    assert page.input_value("[name=group]") == ""
    assert press(page, "End") == ["button", tips[-1]]
    assert press(page, "ArrowDown") == ["button", tips[-1]], "the last one"
    assert press(page, "Home") == ["button", tips[0]]
    page.keyboard.press("Tab")
    assert page.locator("#parts .ring").count() == 0


def test_an_iteration_is_chosen_by_keyboard(page: Any) -> None:
    page.locator("#bandwidth [tabindex='0']").focus()
    _, name = press(page, "ArrowRight", "Space")
    assert name.startswith("iteration 3: ")
    assert page.input_value("[name=iteration]") == "3"
    assert page.locator("#bandwidth [tabindex='0']").get_attribute("data-iteration") == "3"
    press(page, "Space")
    assert page.input_value("[name=iteration]") == ""


def test_the_arrow_down_leads_into_timelines(page: Any) -> None:
    page.locator("#lanes").focus()
    assert press(page, "ArrowDown") == ["button", "rank 0"]
    assert press(page, "ArrowDown", "ArrowDown") == ["button", "rank 2"]
    assert is_ringed(page, "lanes")
    _, live = press(page, "ArrowRight", "ArrowRight", "ArrowRight")
    assert live.startswith("rank 2, live: comp1; ")
    assert live == tip_in_one_line(page)
    role, twin = press(page, "ArrowDown")
    assert (role, twin.partition(";")[0]) == ("button", "rank 2, twin: comp1")
    assert address(page) == "", "arrows move between slices, and not the time"
    press(page, "+", "+")
    low, high = map(float, address(page).rpartition("zoom=")[2].split("-"))
    start, stop = page.evaluate(
        """() => {
          const own = unpacked(data.lanes['7']).find(it => it.lane && it.row === 2 && it.name === 'comp1');
          return [own.start, own.stop];
        }"""
    )
    assert low < start < stop < high, "the zoom is around the slice"
    assert press(page, "Enter") == ["button", twin]
    assert rows(page) == ["rank 2"]
    assert press(page, "Escape")[0] == "group"
    assert address(page) == f"#zoom={low:.0f}-{high:.0f}&rank=2"
    assert press(page, "ArrowDown", "ArrowUp")[0] == "group"


def test_a_cell_of_pairs_is_read_and_chooses_nothing(page: Any) -> None:
    page.locator("#pairs [tabindex='0']").focus()
    role, name = press(page, "ArrowRight", "ArrowDown", "ArrowDown", "Enter")
    assert (role, name.partition(":")[0]) == ("img", "rank 2 to rank 1")
    assert name == tip_in_one_line(page)
    assert is_ringed(page, "pairs")
    assert address(page) == ""
    assert press(page, "End")[1].startswith("rank 2 to rank 7: ")
    page.mouse.move(5, 5)
    assert press(page, "Control+ArrowLeft")[1].startswith("rank 2 to rank 7: "), "keys of the browser stay its own"


# Colours, paper and narrow windows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(scheme: str, small: Path, opened: Opened) -> None:
    tab = opened(small, scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert tab.locator("#pairs svg text").count() > 64, "texts on coloured cells are judged too"
    assert tab.evaluate(LOW_CONTRAST, 4.5) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("result", ["pass", "fail", "inconclusive"])
def test_the_badge_of_each_result_can_be_read(result: str, scheme: str, small: Path, opened: Opened) -> None:
    tab = opened(small, scheme=scheme)
    tab.evaluate("result => { document.getElementById('verdict').className = result; }", result)
    assert tab.evaluate(LOW_CONTRAST, 4.5) == []


def test_paper_is_white_and_has_no_controls(small: Path, opened: Opened) -> None:
    tab = opened(small, "#rank=2", scheme="dark")
    shown = tab.locator("#view label, .zoom button, .skip, details:not([open])")
    assert shown.count() > 8
    tab.emulate_media(media="print", color_scheme="dark")
    assert [it for it in shown.all() if it.is_visible()] == []
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.inner_text("#view-said") == "1 of 8 ranks", "the filter is told on paper"
    assert tab.locator("#lanes svg").is_visible()


def test_nothing_is_wider_than_a_telephone(small: Path, opened: Opened) -> None:
    tab = opened(small, width=390)
    tab.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


# The limit of bytes


def test_a_page_of_128_ranks_has_all_of_them_and_is_small(large_page: Path, opened: Opened) -> None:
    assert PAGE_BYTES_MAX / 2 < large_page.stat().st_size < 3_000_000
    page = opened(large_page)
    assert len(rows(page)) == 128
    said = page.locator("section", has=page.locator("#lanes")).locator(".why").first.inner_text()
    kept = re.search(r"(\d+) of 10 iterations are drawn here, as the page has a limit of bytes\.", said)
    assert kept is not None, said
    assert page.locator("#lanes-choice option").count() == int(kept[1]) < 10
    missing = next(it for it in range(2, 12) if page.locator(f'#lanes-choice option[value="{it}"]').count() == 0)
    page.select_option("[name=iteration]", str(missing))
    assert page.inner_text("#lanes-note").startswith(f"The page has no room for iteration {missing}: ")


def test_little_room_leaves_out_short_nodes_then_ranks(large: tuple[Any, Run, Run]) -> None:
    verdict, live, twin = large
    coarse = lanes(verdict, live, twin, 400_000)
    assert coarse["lane_coarser"] > 1
    assert len(coarse["lane_ranks"]) == 128
    few = lanes(verdict, live, twin, 40_000)
    assert 1 <= len(few["lane_ranks"]) < 128
    accused = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    assert set(few["lane_ranks"]) <= accused or accused <= set(few["lane_ranks"])
    assert list(few["lanes"]) == [few["lane_first"]]
