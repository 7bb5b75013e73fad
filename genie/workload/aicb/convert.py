"""Conversion of AICB's and SimAI's workloads; the caller adds facts that the file lacks, and notes report them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.workload.aicb.build import SerialRank, job
from genie.workload.aicb.communicators import ListFile, read_list
from genie.workload.aicb.layers import MICRO, LayerFile, read_layers
from genie.workload.aicb.parallel import Domain, Parallelism
from genie.workload.aicb.passes import play_layers
from genie.workload.graph import Workload, WorkloadError

RANKS_MAX = 1 << 20
OPTIONS = {
    "ranks": "--ranks",
    "tensor": "--tensor-parallel",
    "pipeline": "--pipeline-parallel",
    "expert": "--expert-parallel",
}


@dataclass(frozen=True)
class Given:
    """Values from the caller; None: from the file, or the default."""

    ranks: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    expert: int | None = None


@dataclass(frozen=True)
class Converted:
    workload: Workload
    parallelism: Parallelism
    compute_ns: int  # of each rank
    notes: list[str]  # one line each: defaults, and parts that are not played


def convert_aicb(path: str | Path, given: Given, passes: int = 1, skip_init: bool = False) -> Converted:
    """Convert a workload for SimAI (text) or a list of communications (CSV).

    `passes`: iterations of a workload for SimAI; a list has its own epochs. `skip_init`: leave out a list's first
    epoch. Raises WorkloadError, and OSError if the file cannot be opened.
    """
    if Path(path).suffix.lower() == ".csv":
        if passes != 1:
            raise WorkloadError(f"{path}: --passes {passes}: a list has its own epochs")
        return _convert_list(read_list(path), given, skip_init)
    if skip_init:
        raise WorkloadError(f"{path}: --skip-init is for lists (.csv)")
    return _convert_layers(read_layers(path), given, passes)


def _convert_layers(file: LayerFile, given: Given, passes: int) -> Converted:
    alone = {"tensor": 1, "pipeline": 1, "expert": 1} if file.policy == MICRO else {}
    parallelism, notes = _parallelism(file.where, {**alone, **file.sizes}, given)
    rank = SerialRank(parallelism)
    play_layers(file, rank, passes)
    if parallelism.pipeline > 1:
        notes.append(
            f"pipeline {parallelism.pipeline}: every stage plays the file's rows at once; messages between stages "
            f"(pp_comm {file.sizes.get('pipeline_bytes', 0)} B) and bubbles are not played (SimAI adds them by formula)"
        )
    if file.policy == MICRO:
        notes.append(
            "MICRO: each row's last communication among all ranks, one after another (SimAI plays the first row)"
        )
    return _converted(file.where, rank, [*file.notes, *notes])


def _convert_list(file: ListFile, given: Given, skip_init: bool) -> Converted:
    sizes = {} if file.ranks is None else {"ranks": file.ranks}
    known = {domain: members for domain, (members, _) in file.members.items()}
    if Domain.EXPERT in known:
        sizes["expert"] = known[Domain.EXPERT]
    if Domain.TENSOR in known:
        sizes["tensor"] = known[Domain.TENSOR]
    elif Domain.DATA in known and file.ranks is not None:
        sizes["tensor"] = max(file.ranks // known[Domain.DATA], 1)
    parallelism, notes = _parallelism(file.where, {"pipeline": 1, **sizes}, given)
    for domain, (members, line) in file.members.items():
        if parallelism.members(domain) != members:
            raise WorkloadError(
                f"{file.where}:{line}: {domain.value} groups of {members}; {_shape(parallelism)} make groups of "
                f"{parallelism.members(domain)}"
            )
    epochs = [epoch for epoch in (file.epochs[1:] if skip_init else file.epochs) if epoch]
    if not epochs:
        raise WorkloadError(f"{file.where}: has one epoch only: leave --skip-init out")
    if len(file.epochs) > 1:
        counts = ", ".join(str(len(epoch)) for epoch in file.epochs if epoch)
        notes.append(f"epochs of {counts} rows{', the first of which is left out' * skip_init}")
    rank = SerialRank(parallelism)
    for row in (row for epoch in epochs for row in epoch):
        if row.communication is None:
            rank.compute(row.name, row.compute_ns, row.num_ops, row.tensor_bytes)
        else:
            rank.communicate(row.name, row.communication)
    return _converted(file.where, rank, [*file.notes, *notes])


def _parallelism(where: str, sizes: dict[str, int], given: Given) -> tuple[Parallelism, list[str]]:
    """(parallelism, notes): the parallel degrees, with a note for each default and each value that overrides
    the file.
    """
    notes = []
    found = {}
    for name, option in OPTIONS.items():
        asked, said = getattr(given, name), sizes.get(name)
        if asked is None and said is None:
            if name == "ranks":
                raise WorkloadError(f"{where}: does not say how many ranks there are: give --ranks")
            notes.append(f"{name} parallelism 1, as the file says none ({option})")
        elif asked is not None and said not in (None, asked):
            notes.append(f"{option} {asked} where the file has {said}; its sizes and times stay as they are")
        found[name] = asked or said or 1
        if found[name] > RANKS_MAX:
            raise WorkloadError(f"{where}: {name} {found[name]}: at most {RANKS_MAX}")
    parallelism = Parallelism(**found)
    try:
        parallelism.check()
    except WorkloadError as error:
        raise WorkloadError(f"{where}: {error}") from None
    return parallelism, notes


def _shape(parallelism: Parallelism) -> str:
    return (
        f"{parallelism.ranks} ranks with tensor {parallelism.tensor}, pipeline {parallelism.pipeline} and expert "
        f"{parallelism.expert}"
    )


def _converted(where: str, rank: SerialRank, notes: list[str]) -> Converted:
    if not len(rank.builder):
        raise WorkloadError(f"{where}: no row is left to play: {'; '.join(rank.notes())}")
    workload = job(rank, Path(where).stem)
    durations = workload.ranks[0].duration_ns
    return Converted(workload, rank.parallelism, int(durations[durations > 0].sum()), [*notes, *rank.notes()])
