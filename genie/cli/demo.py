"""`genie demo`."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

import genie
from genie.errors import EXIT_FAILED, EXIT_INCONCLUSIVE, EXIT_OK, MachineError, UsageError
from genie.invocation import is_quiet

DEMO_EXAMPLES = """
Examples:

```text
genie demo
genie demo -o /tmp/demo
```
"""

RATE = "200Mb/s"
SIGNALLED = 128  # plus the signal that ended a command
JUDGED = {EXIT_OK, EXIT_FAILED, EXIT_INCONCLUSIVE}
ITERATIONS, WARMUP = 10, 2
SLOW_RANK, SLOW_FROM = 5, WARMUP + ITERATIONS // 2
FAULTS = f"""# The NIC of rank {SLOW_RANK} runs at half its rate from the middle of the run on.
[[rate]]
rank = {SLOW_RANK}
factor = 0.5
from_iteration = {SLOW_FROM}
"""
HOSTS = """# The ranks share this machine. Each has an address of loopback of its own.
[[host]]
name = "localhost"
ranks = "0-7"
address = "127.0.1.{rank+1}"
"""


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command("demo", epilog=DEMO_EXAMPLES)(demo)


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Output folder.")] = Path("runs/demo"),
) -> int:
    """Validate a small training step on this machine twice: without a fault, and with a slow NIC.

    Eight ranks send at 200 Mb/s over loopback. In the second run the NIC of rank 5 has half its rate from the middle
    on. The command takes about 30 seconds on two cores. Exit code 0: the first verdict is PASS, and the second one
    names rank 5. Exit code 1: a verdict differs. If a step cannot run, the demo ends with the exit code of the step.
    """
    began = time.monotonic()
    trace = _trace()
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is not a folder; choose another -o")
    hosts, faults = out / "hosts.toml", out / "slow-nic.toml"
    files = {hosts: HOSTS, faults: FAULTS}
    if others := [str(path) for path, text in files.items() if path.exists() and path.read_bytes() != text.encode()]:
        raise UsageError(f"{' and '.join(others)}: the demo would replace what is not its own; choose another -o")
    out.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text)
    common = ["--hosts", str(hosts), "--rate", RATE]
    if code := _genie("calibrate", *common, "-o", str(out / "calibration"))[0]:
        return code
    common = [str(trace), *common, "-n", str(ITERATIONS), "--warmup", str(WARMUP)]
    verdicts: dict[str, tuple[int, str]] = {}
    for name, more in (("clean", []), ("slow-nic", ["--faults", str(faults)])):
        code, line = verdicts[name] = _genie("validate", *common, "-o", str(out / name), *more)
        if code not in JUDGED:
            return code
    print()
    for name, (_, line) in verdicts.items():
        print(f"{name + ':':9} {line}")
    print()
    for name in verdicts:
        print(f"  {out / name / 'report.html'}")
    print(
        f"\n{time.monotonic() - began:.0f} s. Open the pages in a browser; timeline.pftrace opens in ui.perfetto.dev."
    )
    (clean, _), (slow, line) = verdicts.values()
    return EXIT_OK if (clean, slow) == (EXIT_OK, EXIT_FAILED) and f"rank {SLOW_RANK}" in line else EXIT_FAILED


def _trace() -> Path:
    """Return the demo's trace: as the package has it, or as the clone has it. Raises MachineError."""
    package = Path(genie.__file__).parent
    for folder in (package / "demo", package.parent / "examples" / "transformer"):
        if (folder / "transformer.json").is_file():
            return folder / "transformer"
    raise MachineError(f"genie demo: {package / 'demo'} lacks the trace: install the package again")


def _genie(*words: str) -> tuple[int, str]:
    """Run a command of Genie, and return its exit code and the first line of its output."""
    if not is_quiet():
        print(f"$ genie {shlex.join(words)}", flush=True)
    # -P: the current folder may be a clone, whose `genie` is not the installed one.
    line = [sys.executable, "-P", "-m", "genie", *(["--quiet"] if is_quiet() else []), *words]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    code = done.returncode if done.returncode >= 0 else SIGNALLED - done.returncode
    lines = done.stdout.strip().splitlines()
    return code, lines[0] if lines else f"no result: exit code {code}"
