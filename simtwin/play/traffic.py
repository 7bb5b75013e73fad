"""Generated traffic on a fabric: flows at a load, an incast, a permutation, collectives. Rank r is host r."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from genie.config.units import Duration, Size, parse_size
from genie.inputs.content import ContentError, read_text
from genie.workload import flows
from genie.workload.flows import WEB_SEARCH, Sizes
from genie.workload.graph import Op, Workload, WorkloadError
from genie.workload.synthetic import collective
from simtwin.fabric.schema import HOSTS_MAX, Fabric
from simtwin.fabric.topology import build_network
from simtwin.fabric.transport import line_rate_bps

NAMED_SIZES = {"web-search": WEB_SEARCH}

Seed = Annotated[int, Meta(ge=0, le=2**62)]
Host = Annotated[int, Meta(ge=0, lt=HOSTS_MAX)]
Ranks = Annotated[int, Meta(ge=2, le=HOSTS_MAX)]
# "64KiB", "web-search", the path of a distribution's file, or its points.
SizesGiven = str | list[tuple[Size, Annotated[float, Meta(ge=0, le=1)]]]


class _Traffic(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="kind"):
    """Common options of generated traffic.

    `size`: of each message or collective; `ranks`: the first hosts of the fabric, all of them when absent.
    """

    ranks: Ranks | None = None


class Poisson(_Traffic, frozen=True, tag="poisson"):
    """Flows that start at each host as a Poisson process, each to any other host with equal probability."""

    load: Annotated[float, Meta(gt=0, le=10, description="a number above 0, at most 10")]  # of the hosts' ports' rate
    duration: Duration  # within it flows start
    sizes: SizesGiven
    seed: Seed = 1


class Incast(_Traffic, frozen=True, tag="incast"):
    """Several hosts send one message each to one host at once."""

    size: Size
    senders: Annotated[int, Meta(ge=1, lt=HOSTS_MAX)] | None = None  # all others when absent
    target: Host = 0


class Permutation(_Traffic, frozen=True, tag="permutation"):
    """Each host sends to one other host, and receives from one other host."""

    size: Size
    seed: Seed = 1


class Collective(_Traffic, frozen=True, tag="collective"):
    """One or more collectives of all ranks, one after another; sizes as in the timeline."""

    operation: Literal["all_reduce", "reduce", "all_gather", "broadcast", "all_to_all", "reduce_scatter"]
    size: Size
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1


Traffic = Poisson | Incast | Permutation | Collective


def workload_on(fabric: Fabric, traffic: Traffic, folder: Path = Path()) -> Workload:
    """Return the traffic as a workload of a fabric's hosts.

    `folder` is the base of relative paths. Raises WorkloadError.
    """
    ranks = fabric.hosts if traffic.ranks is None else traffic.ranks
    if ranks > fabric.hosts:
        raise WorkloadError(f"traffic of {ranks} ranks on {fabric.hosts} hosts: give at most as many ranks")
    if not isinstance(traffic, Poisson) and traffic.size < 1:
        raise WorkloadError("traffic of unlimited size: give a size")
    match traffic:
        case Poisson():
            rate_bps = line_rate_bps(build_network(fabric))
            sizes = sizes_of(traffic.sizes, folder)
            return flows.poisson(ranks, rate_bps, traffic.load, int(traffic.duration) // 1000, sizes, traffic.seed)
        case Incast():
            return flows.incast(ranks, int(traffic.size), traffic.senders, traffic.target)
        case Permutation():
            return flows.permutation(ranks, int(traffic.size), traffic.seed)
        case Collective():
            return collective(Op[traffic.operation.upper()], ranks, int(traffic.size), traffic.count)


def sizes_of(given: SizesGiven, folder: Path = Path()) -> Sizes:
    """Return the distribution of flow sizes for a size, a name, a file or points. Raises WorkloadError."""
    if not isinstance(given, str):
        return Sizes(tuple((int(size), share) for size, share in given))
    if given in NAMED_SIZES:
        return NAMED_SIZES[given]
    try:
        return Sizes(((int(parse_size(given)), 1.0),))
    except ValueError:
        return read_sizes(folder / given)


def _why_no_text(wrong: ValueError) -> str:
    return str(wrong) if isinstance(wrong, ContentError) else "it is not text"


def read_sizes(path: Path) -> Sizes:
    """Read a distribution's file, as traffic generators of ns-3 have it.

    Each line has a size in bytes and the percentage of flows of at most this size. Raises WorkloadError.
    """
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError, ContentError) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) else _why_no_text(wrong)
        known = ", ".join(NAMED_SIZES)
        raise WorkloadError(f"sizes {path}: cannot be read ({why}): give a size, {known} or such a file") from wrong
    points = []
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            try:
                size, percent = map(float, words)
                points.append((round(size), percent / 100))
            except (ValueError, OverflowError) as wrong:
                raise WorkloadError(
                    f"{path}:{number}: '{line.strip()}': give a size in bytes and a percentage"
                ) from wrong
    try:
        return Sizes(tuple(points))
    except WorkloadError as wrong:
        raise WorkloadError(f"{path}: {wrong}") from wrong
