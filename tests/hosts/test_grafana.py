"""The Grafana dashboard: fields that an import needs, and no metric or label that Genie does not write."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from genie.live.counters.warnings import meanings
from genie.report.metrics import COUNTERS, LABELS, METRICS

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parent.parent.parent
BOARD: dict[str, Any] = json.loads((ROOT / "hosts" / "grafana" / "genie.json").read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
OWN_LABELS = {"op", "group", "size_bucket", "result", "kind", "name", "host", "device", "counter", "severity", "rank",
              "quantile"}  # fmt: skip
WRITTEN = {*METRICS, *(f"{name}_total" for name in COUNTERS)}


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_an_import_finds_what_it_needs() -> None:
    assert BOARD["id"] is None  # Grafana gives it one
    assert BOARD["uid"]
    assert BOARD["title"]
    assert BOARD["schemaVersion"] >= 36
    assert {variable["name"]: variable["type"] for variable in BOARD["templating"]["list"]} == {
        "datasource": "datasource", "run": "query"
    }  # fmt: skip
    assert BOARD["templating"]["list"][0]["query"] == "prometheus"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels(panel: dict[str, Any]) -> None:
    assert panel["type"] in ("stat", "timeseries", "table", "state-timeline")
    assert set(panel["gridPos"]) == {"h", "w", "x", "y"}
    assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["fieldConfig"]["defaults"]["unit"]
    references = [target["refId"] for target in panel["targets"]]
    assert references
    assert len(set(references)) == len(references)
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        apart = any(a[at] + a[size] <= b[at] for at, size in (("x", "w"), ("y", "h"))
                    for a, b in ((one, other), (other, one)))  # fmt: skip
        assert apart


def test_every_metric_is_one_that_is_written_and_all_that_matter_are_shown() -> None:
    variables = [variable["definition"] for variable in BOARD["templating"]["list"] if "definition" in variable]
    named = {name for text in (*expressions(), *variables) for name in re.findall(r"\bgenie_\w+", text)}
    assert named <= WRITTEN
    assert WRITTEN - named <= {"genie_run_ranks", "genie_run_iterations"}


def test_labels_and_counters_are_real() -> None:
    known = {*LABELS, *OWN_LABELS}
    for panel in PANELS:
        for target in panel["targets"]:
            inside = " ".join(re.findall(r"\{([^{}]*)\}", target["expr"]))
            by = " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
            labels = {*re.findall(r"(\w+) *=~?", inside), *re.findall(r"\w+", by)}
            labels |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert labels <= known
    counters = {name for table in meanings().values() for name in table}
    lists = re.findall(r'counter=~"([\w| ]+)"', " ".join(expressions()))
    assert len(lists) == 2
    assert {name for each in lists for name in each.split("|")} <= counters


def test_each_expression_heeds_the_chosen_run() -> None:
    for expression in expressions():
        for metric in re.findall(r"genie_\w+(?:\{[^{}]*\})?", expression):
            assert 'run=~"$run"' in metric
