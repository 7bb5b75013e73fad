"""perftest's tables: the columns of ib_write_lat and ib_write_bw."""

from __future__ import annotations

from collections.abc import Sequence

from genie.bench.pair import Bandwidth, Latency

RULE = "-" * 87
MEGA = 1 << 20  # perftest's MB
LATENCY_COLUMNS = (
    " #bytes",
    " #iterations",
    "    t_min[usec]",
    "    t_max[usec]",
    "  t_typical[usec]",
    "    t_avg[usec]",
    "    t_stdev[usec]",
    "   99% percentile[usec]",
    "   99.9% percentile[usec]",
)
BANDWIDTH_COLUMNS = (" #bytes   ", "  #iterations", "    BW peak[MB/sec]", "    BW average[MB/sec]", "   MsgRate[Mpps]")


def head(pingpong: bool, facts: Sequence[tuple[str, str]], gigabits: bool = False) -> list[str]:
    """The lines above the rows. `facts`: parameters and places."""
    width = max((len(name) for name, _ in facts), default=0)
    columns = "".join(LATENCY_COLUMNS if pingpong else BANDWIDTH_COLUMNS)
    return [
        RULE,
        f"{'RDMA_Write Latency Test' if pingpong else 'RDMA_Write BW Test':^{len(RULE)}}".rstrip(),
        *(f" {name:<{width}} : {value}" for name, value in facts),
        RULE,
        columns.replace("MB/sec", "Gb/sec") if gigabits else columns,
    ]


def row(line: Latency | Bandwidth, gigabits: bool = False) -> str:
    """The row of one size, numbers aligned with the beginning of their columns' names."""
    if isinstance(line, Latency):
        times = (
            line.minimum_us, line.maximum_us, line.typical_us, line.average_us, line.deviation_us,
            line.percentile_99_us, line.percentile_99_9_us,
        )  # fmt: skip
        return _aligned([str(line.size_bytes), str(line.rounds), *(f"{time:.2f}" for time in times)], LATENCY_COLUMNS)
    unit = 1e9 / 8 if gigabits else MEGA
    rates = [f"{line.peak_bytes_per_s / unit:.2f}", f"{line.average_bytes_per_s / unit:.2f}"]
    cells = [str(line.size_bytes), str(line.messages), *rates, f"{line.messages_per_s / 1e6:.6f}"]
    return _aligned(cells, BANDWIDTH_COLUMNS)


def _aligned(cells: Sequence[str], columns: Sequence[str]) -> str:
    text = ""
    end = 0
    for cell, column in zip(cells, columns, strict=True):
        begin = end + len(column) - len(column.lstrip())
        text = f"{text:<{begin}}" + (" " if len(text) >= begin else "") + cell
        end += len(column)
    return text
