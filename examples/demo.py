"""`make demo`: the main job on a real trace, twice: a clean run, and one in which rank 5's NIC slows down half-way."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = Path("runs/demo")
ITERATIONS, WARMUP = 10, 2
SLOW_FROM = WARMUP + ITERATIONS // 2
FAULTS = f"""# Rank 5's NIC runs at half its rate from the middle of the run on.
[[rate]]
rank = 5
factor = 0.5
from_iteration = {SLOW_FROM}
"""


def validate(name: str, *more: str) -> tuple[int, str]:
    """Run one `genie validate`; return its exit code and its verdict line."""
    command = [
        str(Path(sys.executable).parent / "genie"), "validate", "examples/transformer",
        "--hosts", str(OUT / "hosts.toml"),
        "--rate", "200Mb/s", "--iterations", str(ITERATIONS), "--warmup", str(WARMUP), "-o", str(OUT / name), *more,
    ]  # fmt: skip
    print("$ genie " + " ".join(command[1:]), flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return done.returncode, lines[0] if lines else "no verdict: see the line above"


def main() -> int:
    began = time.monotonic()
    folder = ROOT / OUT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts.toml").write_text((ROOT / "hosts" / "loopback.toml").read_text())
    (folder / "slow-nic.toml").write_text(FAULTS)
    genie = str(Path(sys.executable).parent / "genie")
    print(f"$ genie calibrate --hosts {OUT / 'hosts.toml'} --rate 200Mb/s", flush=True)
    calibrated = subprocess.run(
        [genie, "calibrate", "--hosts", str(OUT / "hosts.toml"), "--rate", "200Mb/s", "-o", str(OUT / "calibration")],
        cwd=ROOT, check=False,
    )  # fmt: skip
    if calibrated.returncode != 0:
        return calibrated.returncode
    clean_code, clean = validate("clean")
    slow_code, slow = validate("slow-nic", "--faults", str(OUT / "slow-nic.toml"))
    print(f"\nclean:    {clean}\nslow-nic: {slow}\n")
    for name in ("clean", "slow-nic"):
        print(f"  {OUT / name / 'report.html'}")
    print(
        f"\n{time.monotonic() - began:.0f} s. Open the pages in a browser; timeline.pftrace opens in ui.perfetto.dev."
    )
    expected = clean_code == 0 and slow_code == 1 and "rank 5" in slow
    return 0 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
