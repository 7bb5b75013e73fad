"""Timelines of jobs as drawings for the documents; `make picture` draws them.

Each job is made by the commands of its page, then simulated at level analytic, whose result is the same on every
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from genie.workload.load import load

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GENIE_SHARED_DATA", ROOT.parent / "shared" / "data"))
GENIE = str(Path(sys.executable).parent / "genie")
SIMULATION = ("--rate", "400Gb/s", "--level", "analytic")
WIDTH, LEFT, TOP, LANE, BAR, GAP = 960, 70, 26, 20, 16, 4
NARROWEST_PX = 0.3
MERGED_PX = 0.35  # parts of one kind that are nearer than this are drawn as one
Span = tuple[float, float]
COMPUTES = pl.col("kind").is_in(["comp", "mem"])
IS_BACKWARD, IS_UPDATE = (
    pl.col("name").str.contains(words) for words in ("(?i)gradient|backward", "optimizer|_foreach_")
)


@dataclass(frozen=True)
class Part:
    """Operations of one kind: their lane below the row's top, colour, words of the legend, and condition."""

    lane: int
    colour: str
    words: str
    condition: pl.Expr


COLLECTIVES = Part(1, "#5fa55a", "collectives (second lane)", pl.col("kind") == "coll")
STEP_PARTS = (
    Part(0, "#4a90c4", "forward", COMPUTES & ~IS_BACKWARD & ~IS_UPDATE),
    Part(0, "#e08a3c", "backward", COMPUTES & IS_BACKWARD),
    Part(0, "#7a5ea8", "optimizer", COMPUTES & IS_UPDATE),
    COLLECTIVES,
    Part(1, "#c4475b", "messages to other stages (second lane)", pl.col("kind") == "send"),
)
SCRIPT_PARTS = (
    Part(0, "#4a90c4", "operators (first lane)", COMPUTES),
    Part(1, "#5fa55a", "tensor-parallel collectives (second lane)", pl.col("group").str.starts_with("tp")),
    Part(2, "#7a5ea8", "FSDP2's collectives (third lane)", pl.col("group").str.starts_with("dp")),
)
TRACE_PARTS = (
    Part(0, "#b0b0b0", "CPU (first lane)", COMPUTES & pl.col("on_cpu")),
    Part(1, "#4a90c4", "kernels and copies (second lane)", COMPUTES & ~pl.col("on_cpu")),
    Part(2, "#5fa55a", "collectives (third lane)", pl.col("kind") == "coll"),
)


@dataclass(frozen=True)
class Picture:
    """A drawing of docs/. `{data}` and `{traces}` in the command stand for folders."""

    file: str
    page: str
    label: str
    command: tuple[str, ...]  # makes the traces
    rows: dict[int, str]  # rank -> words
    parts: tuple[Part, ...]
    data: tuple[str, str] = ("", "")  # path in the shared data, and its name in {data}; archives are unpacked


PIPELINE = Picture(
    "pipeline.svg",
    "generate-a-workload.md",
    "Timeline of one training step on four pipeline stages",
    ("generate", "llama3-8b", "--gpus", "8", "--tp", "2", "--pp", "4", "--micro-batches", "8", "-o", "{traces}"),
    {0: "stage 0", 2: "stage 1", 4: "stage 2", 6: "stage 3"},  # one rank of each stage
    STEP_PARTS,
)
GPU_TRACE = Picture(
    "gpu-trace.svg",
    "convert-a-gpu-trace.md",
    "Timeline of a recommendation model on four of eight GPUs, from Kineto traces",
    ("convert", "pytorch", "--device", "{data}/DLRM_KINETO", "-o", "{traces}"),
    {0: "rank 0", 1: "rank 1", 2: "rank 2", 3: "rank 3"},
    TRACE_PARTS,
    data=("param/dlrm_kineto.tar.gz", "DLRM_KINETO"),
)
EXTRAPOLATED = Picture(
    "extrapolated.svg",
    "extrapolate-a-trace.md",
    "Timeline of VGG-13 on four pipeline stages, from the trace of one GPU",
    (
        "extrapolate",
        "{data}/VGG13",
        "--batch",
        "256",
        "--pp",
        "4",
        "--dp",
        "8",
        "--micro-batches",
        "8",
        "-o",
        "{traces}",
    ),
    {0: "stage 0", 8: "stage 1", 16: "stage 2", 24: "stage 3"},
    STEP_PARTS,
    data=("triosim/trace2-h100-bs128/vgg13", "VGG13"),
)
CAPTURED = Picture(
    "captured.svg",
    "capture-a-script.md",
    "Timeline of a captured script with FSDP2 and tensor parallelism",
    ("capture", "--world", "8", "-o", "{traces}", "--", "examples/capture/llama.py", "--tp", "2", "--layers", "4"),
    {0: "rank 0", 1: "rank 1"},
    SCRIPT_PARTS,
)
PICTURES = (PIPELINE, GPU_TRACE, EXTRAPOLATED)


def drawing(picture: Picture) -> str:
    """Return the drawing as SVG."""
    with TemporaryDirectory() as folder:
        data, traces, run = (Path(folder) / name for name in ("data", "traces", "run"))
        data.mkdir()
        path, name = DATA / picture.data[0], data / picture.data[1]
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                archive.extractall(data, filter="data")
            next(data.iterdir()).rename(name)
        elif picture.data[0]:
            name.symlink_to(path)
        torch = ("--python", os.environ["GENIE_TORCH_PYTHON"]) if picture is CAPTURED else ()
        first, *rest = picture.command
        made = [word.format(data=data, traces=traces) for word in (first, *torch, *rest)]
        for words in (made, ["simulate", str(traces), *SIMULATION, "-o", str(run)]):
            subprocess.run([GENIE, "-q", *words], check=True, capture_output=True, cwd=ROOT)
        return _drawn(picture, _with_place(pl.read_parquet(run / "timeline.parquet"), traces, picture.rows))


def _with_place(timeline: pl.DataFrame, traces: Path, ranks: Iterable[int]) -> pl.DataFrame:
    """Add `on_cpu` to the rows of these ranks."""
    graphs = load(traces).ranks
    places = [
        pl.DataFrame({"node_id": graphs[rank].node_id, "on_cpu": graphs[rank].on_cpu}).with_columns(
            rank=pl.lit(rank, pl.Int32)
        )
        for rank in ranks
    ]
    return timeline.join(pl.concat(places), on=["rank", "node_id"], maintain_order="left")


def _drawn(picture: Picture, timeline: pl.DataFrame) -> str:
    end_ns = int(timeline["end_ns"].to_numpy().max())
    scale = (WIDTH - LEFT - 12) / end_ns
    row = LANE * (1 + max(part.lane for part in picture.parts)) + GAP
    floor = TOP + row * len(picture.rows)
    height = floor + 54
    parts = [f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *_axis(end_ns, scale, floor)]
    for at, (rank, words) in enumerate(picture.rows.items()):
        top = TOP + row * at
        parts.append(f'<text x="8" y="{top + row // 2 + 2}">{words}</text>')
        own = timeline.filter((pl.col("rank") == rank) & (pl.col("end_ns") > pl.col("start_ns")))
        for part in picture.parts:
            spans = own.filter(part.condition).sort("start_ns").select("start_ns", "end_ns").rows()
            path = "".join(
                f"M{LEFT + start:.1f} {top + part.lane * LANE}h{width:.1f}v{BAR}h-{width:.1f}z"
                for start, width in _merged((a * scale, b * scale) for a, b in spans)
            )
            parts.append(f'<path fill="{part.colour}" d="{path}"/>' if path else "")
    parts += _legend(picture.parts, floor + 40)
    text = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{picture.label}" font-family="sans-serif" font-size="12" fill="#222222">\n{text}\n</svg>\n'
    )


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return start and width of the spans, which are given by start and end."""
    found: list[Span] = []
    for start, end in spans:
        if found and start - found[-1][1] < MERGED_PX:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return [(start, max(end - start, NARROWEST_PX)) for start, end in found]


def _axis(end_ns: int, scale: float, floor: int) -> Iterator[str]:
    step_ns = next(
        digit * 10**power for power in range(3, 12) for digit in (1, 2, 5) if end_ns < 12 * digit * 10**power
    )
    for tick in range(0, end_ns, step_ns):
        x = LEFT + tick * scale
        yield f'<path stroke="#dddddd" d="M{x:.1f} {TOP - 6}V{floor}"/>'
        yield f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">{tick / 10**6:g} ms</text>'


def _legend(parts: Iterable[Part], y: int) -> Iterator[str]:
    x = LEFT
    for part in parts:
        yield f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{part.colour}"/>'
        yield f'<text x="{x + 17}" y="{y}">{part.words}</text>'
        x += 40 + 7 * len(part.words)


if __name__ == "__main__":
    for each in (*PICTURES, *([CAPTURED] if "GENIE_TORCH_PYTHON" in os.environ else [])):
        Path(sys.argv[1], each.file).write_text(drawing(each))
