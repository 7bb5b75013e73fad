"""The tutorial notebook: stripped of outputs in git, and executed here with its results judged."""

from __future__ import annotations

import copy
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from words import long_sentences, opening_problem

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"
SECONDS_MAX, BYTES_MAX = 60, 500_000
# Code at the end of the notebook: its results as JSON.
RESULTS = """import json
print(json.dumps({
    "results": [verdict.result, clean.result],
    "suspects": [suspect.ranks for suspect in verdict.suspects],
    "since": verdict.suspects[0].since_iteration,
    "slow_down": verdict.suspects[0].slow_down,
    "cost": verdict.cost.fraction,
    "not_judged": verdict.judged.nics.not_judged,
    "judged": [clean.judged.nics.judged, clean.judged.nics.total],
    "controls": comparison["control"].to_list(),
    "fct_p99_us": comparison["fct_p99_us"].to_list(),
    "marks": comparison["marks"].to_list(),
    "transfers": len(run.flow_completion),
    "step_ranks": step.timeline["rank"].n_unique(),
}))"""


@pytest.fixture(scope="module")
def notebook() -> Any:
    """The notebook as it is in git."""
    return json.loads(TUTORIAL.read_text())


@pytest.fixture(scope="module")
def executed(notebooks: None) -> Any:
    """The notebook with its outputs; the last one is that of RESULTS."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    import site_notebook

    began = time.monotonic()
    result = site_notebook.executed(TUTORIAL, RESULTS)
    assert time.monotonic() - began < SECONDS_MAX
    return result


@pytest.fixture(scope="module")
def results(executed: Any) -> Any:
    """The object that RESULTS prints."""
    return json.loads(executed.cells[-1].outputs[-1].text)


def leftovers(notebook: Any) -> list[str]:
    """Parts of a notebook that an execution leaves, and that git is not to hold."""
    found = [f"metadata {name}" for name in notebook["metadata"] if name not in ("kernelspec", "language_info")]
    found += [f"version of {name}" for name, value in notebook["metadata"].items() if "version" in value]
    for cell in notebook["cells"]:
        found += [f"metadata of cell {cell['id']}"] * bool(cell["metadata"])
        if cell["cell_type"] == "code":
            found += [f"output of cell {cell['id']}"] * bool(cell["outputs"])
            found += [f"count of cell {cell['id']}"] * (cell["execution_count"] is not None)
    return found


def outputs(executed: Any, kind: str) -> Iterator[tuple[str, str]]:
    """The outputs of a kind, each with the last line of its cell."""
    for cell in executed.cells[:-1]:
        for output in cell.get("outputs", []):
            if kind in output.get("data", {}):
                yield cell.source.splitlines()[-1], output["data"][kind]


def test_git_holds_no_output(notebook: Any) -> None:
    assert leftovers(notebook) == [], "clear it: jupyter nbconvert --clear-output --inplace docs/tutorial.ipynb"


def test_outputs_in_git_are_found(notebook: Any) -> None:
    changed = copy.deepcopy(notebook)
    cell = next(cell for cell in changed["cells"] if cell["cell_type"] == "code")
    cell["outputs"], cell["execution_count"], cell["metadata"] = [{"output_type": "stream"}], 1, {"trusted": True}
    changed["metadata"]["language_info"]["version"] = "3.11"
    assert leftovers(changed) == [
        "version of language_info", "metadata of cell imports", "output of cell imports", "count of cell imports",
    ]  # fmt: skip


def test_the_slow_nic_is_named_and_the_clean_run_passes(results: Any) -> None:
    assert results["results"] == ["fail", "pass"]
    assert results["suspects"] == [[5]]
    assert results["since"] == 4
    assert results["slow_down"] == pytest.approx(1.26, abs=0.02)
    assert results["cost"] == pytest.approx(0.97, abs=0.02)
    assert results["not_judged"] == {"too noisy": ["rank 2"]}
    assert results["judged"] == [8, 8]


def test_the_other_control_is_compared(results: Any) -> None:
    assert results["controls"] == ["dcqcn", "hpcc"]
    dcqcn_us, hpcc_us = results["fct_p99_us"]
    assert 15 * 2**20 * 8 / 100e3 < hpcc_us < dcqcn_us / 2  # the last link carries all that is sent
    assert results["marks"][0] > 1000
    assert results["marks"][1] == 0
    assert (results["transfers"], results["step_ranks"]) == (15, 8)


def test_results_are_tables_and_figures(executed: Any) -> None:
    shown = dict(outputs(executed, "text/html"))
    assert {"fabric", "run", "live", "verdict", "clean", "comparison"} <= set(shown)
    assert "FAIL" in shown["verdict"]
    assert "rank 2 (too noisy)" in shown["verdict"]
    assert "PASS" in shown["clean"]
    figures = [line for line, html in shown.items() if "<svg" in html]
    assert figures == [
        "run.links_figure()", "simtwin.fct_figure(runs)", "step.timeline_figure()", "verdict.slow_down_figure()",
    ]  # fmt: skip
    assert all(re.search('role="img" aria-label="[^"]{40,}"', shown[line]) for line in figures)
    assert all("\n" not in text for line, text in outputs(executed, "text/plain") if "table" in shown[line][:8])


def test_outputs_are_small_and_ask_no_server(executed: Any) -> None:
    every = "".join(html for _, html in outputs(executed, "text/html"))
    assert len(every.encode()) < BYTES_MAX / 5
    assert not re.search(r"<script|<link|<img|@import|url\(|\b(?:src|href)=", every)
    assert str(ROOT) not in json.dumps(executed)


def test_the_page_has_text_code_and_outputs(executed: Any) -> None:
    import site_notebook

    cell = next(cell for cell in executed.cells if cell.source == "run.links_figure()")
    code, output = site_notebook.parts_of(cell)
    assert code == "```python\nrun.links_figure()\n```"
    assert output.startswith('`````{raw} html\n<div class="cell-output"><div')
    last = list(site_notebook.parts_of(executed.cells[-1]))
    assert last[1].startswith('`````text\n{"results":')
    assert list(site_notebook.parts_of(executed.cells[0])) == [executed.cells[0].source]


def test_the_text_follows_the_rules_of_documents(notebook: Any) -> None:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = re.sub(r"(?ms)^```.*?^```", "", "".join(cell["source"]))
            assert not list(long_sentences(text)), cell["id"]
            assert not any(opening_problem(part) for part in re.split(r"\n\s*\n", text)), cell["id"]
        assert all(len(line.rstrip("\n")) <= 100 for line in "".join(cell["source"]).splitlines()), cell["id"]
