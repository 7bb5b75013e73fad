"""Measured operator times of other tools as rows of a table for `--compute`.

SimuMax has shares of a peak by shape. AICB has µs by the name of an operator, of one model and one --tp.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from genie.compute.operators import Operator, attention, gemm, grouped_gemm
from genie.compute.table import BY_NAME, COLUMNS, NS_MAX
from genie.errors import UsageError
from genie.inputs.content import ContentError, read_text

# AICB's names -> names of operators of `genie generate`. The times of AICB are of forward passes.
AICB_NAMES = {
    "Emb": "embedding", "layernorm": "attention norm", "atten_qkv": "attention qkv", "atten_flash": "attention",
    "atten_linear": "attention projection", "layernorm2": "feed-forward norm", "mlp_linear_1": "mlp in",
    "mlp_gelu": "mlp activation", "mlp_linear_2": "mlp out", "layernorm_post": "final norm", "logit_time": "logits",
    "param_time": "optimizer",
}  # fmt: skip
AICB_TIME = "time_gpu_avg"
SIMUMAX_SIZES = re.compile(r"(\w+)=([^,]+)")
Row = tuple[str, str, str, int]  # operation, shape, data type, ns


@dataclass
class Imported:
    """Rows of a table, and notes on what the file does not say."""

    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    def as_csv(self, gpu: str) -> str:
        """Return the table. Rows with one shape become their mean."""
        times: dict[tuple[str, str, str], list[int]] = {}
        for *key, time_ns in self.rows:
            times.setdefault((key[0], key[1], key[2]), []).append(time_ns)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([gpu, *key, round(sum(own) / len(own))] for key, own in times.items())
        return text.getvalue()


def import_times(path: Path) -> Imported:
    """Read a file of SimuMax (JSON) or AICB (text). Raises UsageError with the place of a mistake."""
    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    if text.lstrip().startswith("{"):
        return _simumax(path, text)
    if text.startswith("train_iter"):
        return _aicb(path, text)
    raise UsageError(f"{path}: is no file of operator times: give a system file of SimuMax, or the times of AICB")


def _simumax(path: Path, text: str) -> Imported:
    try:
        content = msgspec.json.decode(text)
        operators = content["accelerator"]["op"]
        tables = {name: each.get("accurate_efficient_factor") or {} for name, each in operators.items()}
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is no system file of SimuMax: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: is no system file of SimuMax: has no table of operators, accelerator.op") from error
    rows: list[Row] = []
    for name, (kind, dtype, made) in SIMUMAX_KINDS.items():
        for key, share in tables.get(name, {}).items():
            where = f"{path}: accelerator.op.{name}: {key!r}"
            rows += _simumax_row(where, key, share, operators[name].get("tflops"), kind, dtype, made)
    if not rows:
        raise UsageError(f"{path}: has no shares of the peak by shape (accurate_efficient_factor)")
    left = sorted(name for name, table in tables.items() if table and name not in SIMUMAX_KINDS)
    return Imported(rows, [f"left out, because tables have no such operators: {', '.join(left)}"] if left else [])


def _simumax_row(
    where: str, key: str, share: Any, tflops: Any, kind: str, dtype: str, made: Callable[..., tuple[Operator, int]]
) -> Iterator[Row]:
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 2:
        raise UsageError(f"{where}: {share!r} is not a share of the peak above 0, up to 2")
    if not isinstance(tflops, int | float) or isinstance(tflops, bool) or not tflops > 0:
        raise UsageError(f"{where}: tflops: {tflops!r} is not a rate")
    sizes = {name: int(text) for name, text in SIMUMAX_SIZES.findall(key) if text.strip().isdecimal()}
    try:
        operator, flops = made(sizes)
    except KeyError as error:
        raise UsageError(f"{where}: has no size {error}") from error
    time_ns = round(flops / (tflops * 1e12 * share) * 1e9)
    if not 0 < time_ns <= NS_MAX:
        raise UsageError(f"{where}: takes {time_ns} ns, which is not from 1 to {NS_MAX}")
    yield kind, "x".join(map(str, operator.shape)), dtype, time_ns


def _product(sizes: dict[str, int]) -> tuple[Operator, int]:
    made = gemm("", sizes.get("b", 1) * sizes["m"], sizes["k"], sizes["n"])
    return made, made.flops


def _grouped(sizes: dict[str, int]) -> tuple[Operator, int]:
    made = grouped_gemm("", sizes["ng"], sizes["M"], sizes["K"], sizes["N"])
    return made, made.flops


def _attention(sizes: dict[str, int]) -> tuple[Operator, int]:
    """A causal attention; its share is of the operations without a mask, twice as many."""
    length, dims = sizes["seq_len"], (sizes["qk_head_dim"], sizes["v_head_dim"])
    made = attention("", sizes["batch"], length, length, sizes["head_num"], *dims)
    return made, 2 * made.flops


SIMUMAX_KINDS: dict[str, tuple[str, str, Callable[..., tuple[Operator, int]]]] = {
    "matmul": ("gemm", "bf16", _product),
    "fp8_matmul": ("gemm", "fp8", _product),
    "group_matmul": ("grouped-gemm", "bf16", _grouped),
    "fp8_group_matmul": ("grouped-gemm", "fp8", _grouped),
    "sdp_fwd": ("attention", "bf16", _attention),
}


def _aicb(path: Path, text: str) -> Imported:
    rows: list[Row] = []
    name, unknown = "", []
    for number, line in enumerate(text.splitlines(), 1):
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon and not value:
            name = key
            if name not in AICB_NAMES:
                unknown.append(name)
        elif key == AICB_TIME and name in AICB_NAMES:
            if not value.isdecimal() or not 0 < int(value) * 1000 <= NS_MAX:
                raise UsageError(f"{path}:{number}: {key}: {value!r} is not a whole number of µs above 0")
            rows.append((BY_NAME, AICB_NAMES[name], "bf16", int(value) * 1000))
    if not rows:
        raise UsageError(f"{path}: has no {AICB_TIME} of an operator that Genie knows")
    notes = ["times by the operator's name: they hold only for the model, the batch and the --tp that were measured"]
    notes += [f"left out, unknown names: {', '.join(unknown)}"] if unknown else []
    return Imported(rows, notes)
