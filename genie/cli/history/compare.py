"""`genie compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from genie.cli.groups import flattened
from genie.cli.judging import opened
from genie.cli.output import print_verdict
from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK, UsageError
from genie.job.outputs import check_junit
from genie.record import marked_json, replace_own

if TYPE_CHECKING:
    from genie.verdict.history.comparison import Comparison

COMPARE_EXAMPLES = """
Examples:

```text
genie compare runs/monday runs/tuesday
genie compare runs/monday/live runs/tuesday/live runs/wednesday/live
genie compare runs/before runs/after -o runs/comparison
```
"""
COMPARISON_KIND = "comparison"
ROWS_MAX, GROUPS_MAX = 10, 5  # of a table on a terminal


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("compare", epilog=COMPARE_EXAMPLES)(flattened(compare))


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more folders of runs of one workload: of `genie validate`, whose live runs are compared, of "
            "`genie run` or of `genie simulate`. Each run is compared with the first one.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder for compare.json and compare.html.  [default: none]"),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="NAME.xml: the result as JUnit XML.  [default: none]")
    ] = None,
) -> int:
    """Compare runs of one workload, and say what became slower: iterations, collectives, NICs and links.

    A change counts if it is beyond the noise of both runs. Live runs are compared with live runs, and simulations with
    simulations.

    Exit code 0: no run is slower than the first one, 1: a run is slower, 4: inconclusive. Then run again or longer, or
    simulate without --skip-error.
    """
    from genie.verdict.history.comparison import compare as compared

    if len(runs) < 2:
        raise UsageError("give two or more run folders: the first one is what the others are compared with")
    check_junit(junit)
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"-o {out}: is a file: give a folder")
    if again := next((path for path in runs[1:] if path.resolve() == runs[0].resolve()), None):
        raise UsageError(f"{again}: is the first run itself: give another one")
    first, *others = [opened(path) for path in runs]
    found = [
        _explained(compared(first.run, other.run, (first.twin, other.twin), (first.probes, other.probes)))
        for other in others
    ]
    for each in found:
        print_verdict(each.line())
        if each.result in ("slower", "faster"):
            print_table(each)
    if out is not None:
        _write(out, found)
    if junit is not None:
        from genie.report.junit import cases_of_comparisons, write_junit

        write_junit(junit, "genie", cases_of_comparisons(found), "\n".join(each.line() for each in found))
    codes = {each.exit_code for each in found}
    return next((code for code in (EXIT_FAILED, EXIT_INCONCLUSIVE) if code in codes), EXIT_OK)


def _explained(found: Comparison) -> Comparison:
    """Return the comparison; of simulations that are the same, with a note on what differs between their fabrics."""
    folders = Path(found.before), Path(found.after)
    if found.result != "same" or not all((folder / "fabric.toml").is_file() for folder in folders):
        return found
    from simtwin.report.fabric_change import why_equal

    why = why_equal(*folders)
    return replace(found, notes=[*found.notes, why]) if why else found


def print_table(found: Comparison) -> None:
    """Print the groups and the collectives whose time changed most."""
    parts = [(each.name, each.change) for each in found.groups[:GROUPS_MAX]]
    parts += [(each.name, each.change) for each in found.collectives[:ROWS_MAX]]
    rows = [
        (name, change.before_ns, change.after_ns, change)
        for name, change in parts
        if change.before_ns != change.after_ns
    ]
    if not rows:
        return
    print(f"{'collective':<48} {'before ms':>10} {'after ms':>10} {'change':>8} {'noise':>7}  beyond noise")
    for name, before_ns, after_ns, change in rows:
        print(
            f"{name:<48} {before_ns / 1e6:>10.3f} {after_ns / 1e6:>10.3f} {100 * change.fraction:>+7.1f}% "
            f"{100 * change.noise:>6.1f}%  {'yes' if change.is_sure else 'no'}"
        )


def _write(out: Path, found: list[Comparison]) -> None:
    from genie.report.comparison_page import write_comparison

    out.mkdir(parents=True, exist_ok=True)
    record = marked_json(COMPARISON_KIND, {"comparisons": [each.to_dict() for each in found]})
    replace_own(out / "compare.json", record, COMPARISON_KIND)
    write_comparison(out / "compare.html", found)
    print(f"report: {out / 'compare.html'}")
