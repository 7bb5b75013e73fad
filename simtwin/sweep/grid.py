"""Sweeps: a grid of parameters of fabric, traffic and options, and the inputs of each run.

A sweep's file:

    [base]                        # and further options of simtwin.simulate
    fabric = "leaf-spine.toml"    # relative to this file, as all paths here
    [base.traffic]                # or workload = "TRACE"
    kind = "incast"
    size = "1MiB"
    [grid]                        # one run for each combination
    fabric.switch.shared_buffer = ["2MiB", "8MiB"]
    traffic.size = ["64KiB", "1MiB"]
    seed = [1, 2, 3]              # also of generated traffic, unless [base.traffic] has its own seed
    [[case]]                      # values that change together: one run for each case and combination
    name = "small"
    job = {model = "llama3-8b", gpus = 64, tp = 8}   # a training job, in place of a workload and of traffic
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from genie.collectives.msccl.algorithm import PREFIX
from genie.config.nccl import CONNECTING, SHAPING, NcclVariables
from genie.config.strict_toml import Document, SettingsError, Tables, changed_tables, parts_of
from genie.config.toml_lines import Key
from genie.errors import UsageError
from genie.generate.training_job import TrainingJob
from genie.record import warn_of_old_name
from genie.workload.files import find_files
from genie.workload.graph import WorkloadError
from simtwin.api import settled
from simtwin.fabric.reading import FabricError, fabric_from, new_key, to_toml, with_new_names, with_old_names
from simtwin.fabric.schema import Fabric
from simtwin.imports.fabric_files import ASTRA_SUFFIXES, read_fabric_file
from simtwin.play.options import SimulateOptions
from simtwin.play.traffic import Permutation, Poisson, Traffic, sizes_of
from simtwin.sweep.training_job import facts_of_job, step_of_job

RUNS_MAX = 100_000
CHUNK_BYTES = 1 << 20
COLUMNS_VERSION = 3  # meaning of a row's columns: rows of another version are played again
FABRIC, CASE, JOB = "fabric", "case", "job"
OLD_CONTROL = "congestion_control"  # in [base] and in the grid, read for one release
Tell = Callable[[int, int], None]  # number done, and total
ALGORITHM_SUFFIX = ".xml"  # of MSCCL's algorithms, which are files


class SweepError(SettingsError):
    """An invalid sweep file: one line that names file, line, key and the allowed values (exit code 2)."""


class Base(SimulateOptions, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Options that all runs share, or the default where the grid gives no value."""

    fabric: str  # path of a fabric file
    workload: str | None = None  # folder or prefix of traces
    traffic: Traffic | None = None  # generated traffic, in place of traces
    job: TrainingJob | None = None  # a generated training job, in place of traces
    hosts: tuple[str, ...] = ()  # names of the fabric's hosts on which ranks 0, 1, ... are


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    base: dict[str, Any]
    grid: dict[str, Any] = {}
    case: list[dict[str, Any]] = []
    keep: bool = False


class _Point(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file with one run's values in place."""

    base: Base
    grid: dict[str, Any] = {}
    case: list[Any] = []
    keep: bool = False


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: its inputs, and its identity, a hash of all inputs that decide its result."""

    identity: str
    parameters: dict[str, Any]  # key of the grid -> value, as in the file
    base: Base  # with absolute paths
    fabric: dict[str, Any]  # tables of the fabric file
    folder: Path  # of the sweep's file


@dataclass(frozen=True)
class Axis:
    """A key of the grid."""

    key: str  # dotted, such as "fabric.switch.shared_buffer"
    place: Key  # in the file
    values: tuple[Any, ...]


_Change = tuple[str, Key, Any]  # dotted key, place in the file, value


class Sweep:
    """A sweep's file, checked."""

    def __init__(
        self,
        document: Document,
        folder: Path,
        tell: Tell = lambda done, total: None,
        patterns: Sequence[str] = (),
    ) -> None:
        """Read and check the grid. `patterns`: of the names of cases to play; all without.

        `tell`: called now and then with the number of the grid's values that are checked, and the total. Raises
        SettingsError for a value that is impossible beside the first values of the other keys, even with one of these
        changed.
        """
        self.document = document
        self.folder = folder
        base = document.data.get("base")
        if isinstance(base, dict) and OLD_CONTROL in base:
            warn_of_old_name(f"{document.name}:{document.line_of(('base', OLD_CONTROL))}", OLD_CONTROL, "congestion")
            document.rename(("base", OLD_CONTROL), "congestion")
        file = document.convert(_File)
        self.keep = file.keep
        self._cases = self._chosen(self._named_cases(file.case), patterns)
        self.axes = [Axis(CASE, (CASE,), tuple(self._cases))] if self._cases else []
        self.axes += [self._axis(*found) for found in _flat(file.grid, (), ("grid",))]
        if self.size > RUNS_MAX:
            raise document.error(("grid",), f" has {self.size} runs: give at most {RUNS_MAX}")
        for axis in self.axes:
            if len(set(map(repr, axis.values))) < len(axis.values):
                raise document.error(axis.place, " has a value twice: give each once")
        self._base = {**document.data, "grid": {}, CASE: []}  # a run's tables are copies of it
        self._files: dict[Path, Document] = {}  # fabric files
        self._fabrics: dict[str, Tables] = {}
        self._digests: dict[str, str] = {}
        self.inputs: set[tuple[str, Path]] = set()  # files that the runs read: key of the sweep's file, and path
        self._variables = NcclVariables()
        first = self._possible([axis.values[0] for axis in self.axes], None)
        checked, total = 0, sum(len(axis.values) for axis in self.axes)
        for at, axis in enumerate(self.axes):
            for value in axis.values:
                tell(checked, total)
                checked += 1
                self._possible([*first[:at], value, *first[at + 1 :]], axis)

    @property
    def is_of_jobs(self) -> bool:
        """Whether the runs play traces or training jobs, and not generated traffic."""
        return "traffic" not in self._base["base"]

    @property
    def size(self) -> int:
        """Number of runs."""
        return prod(len(axis.values) for axis in self.axes)

    def runs(self) -> Iterator[SweepRun]:
        """Yield all runs in the order of the grid; the last key changes fastest.

        Raises SettingsError and WorkloadError.
        """
        for values in itertools.product(*(axis.values for axis in self.axes)):
            base, fabric = self._resolved(values)
            parameters = {axis.key: value for axis, value in zip(self.axes, values, strict=True)}
            yield SweepRun(self._identity(base, fabric.data), parameters, base, fabric.data, self.folder)

    def _axis(self, key: str, place: Key, values: Any) -> Axis:
        if not isinstance(values, list) or not values:
            raise self.document.error(place, f" = {values!r}: give a list of values")
        if key.startswith(f"{FABRIC}."):
            key = f"{FABRIC}.{new_key(key.removeprefix(f'{FABRIC}.'))}"
        elif key == OLD_CONTROL:
            key = "congestion"
            warn_of_old_name(f"{self.document.name}:{self.document.line_of(place)}", OLD_CONTROL, key)
        return Axis(key, place, tuple(values))

    def _named_cases(self, cases: list[dict[str, Any]]) -> dict[str, list[_Change]]:
        """Return name -> changes of each case. Raises SettingsError."""
        found: dict[str, list[_Change]] = {}
        for at, case in enumerate(cases):
            name, place = case.get("name"), (CASE, at)
            if not isinstance(name, str) or not name or name in found:
                raise self.document.error((*place, "name") if "name" in case else place, ": give a name of its own")
            rest = {key: value for key, value in case.items() if key != "name"}
            found[name] = list(_flat(rest, (), place))
        return found

    def _chosen(self, cases: dict[str, list[_Change]], patterns: Sequence[str]) -> dict[str, list[_Change]]:
        """Return the cases that match any pattern. Raises UsageError for one that matches none."""
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in cases):
                known = f"the cases are {', '.join(cases)}" if cases else f"{self.document.name} has no [[case]]"
                raise UsageError(f"--case {pattern}: matches no case; {known}")
        return {
            name: case
            for name, case in cases.items()
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        }

    def _changes(self, values: tuple[Any, ...] | list[Any]) -> Iterator[tuple[str, str, Any]]:
        """Yield key, place for errors, and value of all that a run's values change."""
        name = self.document.name
        for axis, value in zip(self.axes, values, strict=True):
            if axis.key != CASE:
                yield axis.key, f"{name}:{self.document.line_of(axis.place)}: grid.{axis.key}", value
            for key, place, own in self._cases[value] if axis.key == CASE else ():
                yield key, f"{name}:{self.document.line_of(place)}: case '{value}': {key}", own

    def _possible(self, values: list[Any], axis: Axis | None) -> list[Any]:
        """Return these values, or possible ones with one value of another axis than `axis` changed.

        An impossible combination is a run that fails; a value without any possible combination is a mistake. Raises
        SettingsError.
        """
        try:
            self._check(values, axis)
            return values
        except (SettingsError, WorkloadError) as error:
            for at, other in enumerate(self.axes):
                for value in other.values if other is not axis else ():
                    changed = [*values[:at], value, *values[at + 1 :]]
                    with suppress(SettingsError, WorkloadError):
                        self._check(changed, axis)
                        return changed
            raise error

    def _check(self, values: list[Any], axis: Axis | None) -> None:
        """Check everything about a run that is known before it is played. `axis`: the axis of the new value."""
        base, tables = self._resolved(values)
        fabric = _checked(tables)
        try:
            settled(base, fabric)
            if base.workload is not None:
                self._digest(base.workload)
            elif base.job is not None:
                step_of_job(base.job)
            elif isinstance(base.traffic, Poisson):
                sizes_of(base.traffic.sizes, self.folder)
        except (SettingsError, WorkloadError) as error:
            given = {a.key: value for a, value in zip(self.axes, values, strict=True)}
            named = f" = {given[axis.key]!r}: " if axis else ": "
            raise self.document.error(axis.place if axis else ("base",), f"{named}{error}") from error

    def _resolved(self, values: tuple[Any, ...] | list[Any]) -> tuple[Base, Tables]:
        """Return one run's options and its fabric's tables; errors name the grid's line."""
        data = self._base
        places: dict[Key, str] = {}
        fabric_changes: dict[str, Any] = {}
        fabric_places: dict[Key, str] = {}
        for name, where, value in self._changes(values):
            table, _, key = name.partition(".")
            if table == FABRIC and key:
                fabric_changes[key] = value
                fabric_places[parts_of(key)] = where
                continue
            try:
                data = changed_tables(data, {f"base.{name}": value})
            except KeyError as wrong:
                raise SweepError(f"{where}: there is nothing below {wrong.args[0]} to change") from None
            places[parts_of(f"base.{name}")] = where
        tables = Tables(data, self.document.name, SweepError, changed_from=self.document, places=places)
        base = tables.convert(_Point).base
        if sum(each is not None for each in (base.workload, base.traffic, base.job)) != 1:
            one_of = "workload = a folder or prefix of traces, [base.traffic] or [base.job]"
            raise self.document.error(("base",), f": give one of {one_of}")
        if base.workload is not None:
            base = msgspec.structs.replace(base, workload=str((self.folder / base.workload).resolve()))
            trace = Path(str(base.workload))
            self.inputs.add(("workload", trace if trace.exists() else trace.parent))
        if base.job is not None:
            base = msgspec.structs.replace(base, job=base.job.below(self.folder))
        if isinstance(base.traffic, Poisson | Permutation) and "seed" not in tables.data["base"]["traffic"]:
            base = msgspec.structs.replace(base, traffic=msgspec.structs.replace(base.traffic, seed=base.seed))
        algorithms = {op: self._algorithm(name) for op, name in base.algorithms.items()}
        base = msgspec.structs.replace(base, algorithms=algorithms)
        return base, self._fabric(self.folder / base.fabric, fabric_changes, fabric_places)

    def _fabric(self, path: Path, changes: dict[str, Any], places: dict[Key, str]) -> Tables:
        """Return a fabric file's tables with the grid's values; runs with the same values share them."""
        key = json.dumps([str(path), changes], default=str)
        if key not in self._fabrics:
            if path not in self._files:
                self._files[path] = _fabric_document(path)
                self.inputs.add(("fabric", path))
            file = self._files[path]
            tables = file.data
            for name, value in changes.items():
                try:
                    tables = changed_tables(tables, {name: value})
                except KeyError as wrong:
                    where = places[parts_of(name)]
                    raise SweepError(f"{where}: there is nothing below {wrong.args[0]} to change") from None
            self._fabrics[key] = Tables(tables, file.name, FabricError, changed_from=file, places=places)
        return self._fabrics[key]

    def _algorithm(self, name: str) -> str:
        """Return an algorithm's name; for a file, its absolute path."""
        if not name.endswith(ALGORITHM_SUFFIX):
            return name
        path = (self.folder / name.removeprefix(PREFIX)).resolve()
        self.inputs.add(("algorithms", path))
        return str(path)

    def _digest(self, workload: str) -> str:
        """Return the digest of all files of a workload."""
        if workload not in self._digests:
            files = find_files(workload)
            digest = hashlib.sha256()
            for path in [*files.traces.values(), *([files.groups] if files.groups else [])]:
                digest.update(f"{path.name} {path.stat().st_size}\n".encode())
                with path.open("rb") as file:
                    while part := file.read(CHUNK_BYTES):
                        digest.update(part)
            self._digests[workload] = digest.hexdigest()
        return self._digests[workload]

    def _identity(self, base: Base, fabric: Mapping[str, Any]) -> str:
        options = msgspec.to_builtins(base, enc_hook=int)
        for name in (
            "threads",
            "fabric",
            "workload",
            "traffic",
            JOB,
        ):  # threads change nothing, the others are added below
            options.pop(name, None)
        options[OLD_CONTROL] = options.pop("congestion")  # old names: sweeps of earlier versions go on
        files = [name for name in base.algorithms.values() if name.endswith(ALGORITHM_SUFFIX)]
        traffic = base.traffic
        if isinstance(traffic, Poisson):
            traffic = msgspec.structs.replace(traffic, sizes=list(sizes_of(traffic.sizes, self.folder).points))
        variables = self._variables
        inputs = {
            "genie": _version(),
            "columns": COLUMNS_VERSION,
            "options": options,
            "fabric": with_old_names(fabric),
            "workload": None if base.workload is None else self._digest(base.workload),
            "algorithms": [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in files],
            "traffic": msgspec.to_builtins(traffic, enc_hook=int),
            JOB: None if base.job is None else facts_of_job(base.job),
            "nccl": {name: variables[name] for name in sorted(variables) if name in SHAPING or name in CONNECTING},
        }
        text = json.dumps(inputs, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fabric_document(path: Path) -> Document:
    if path.suffix not in ASTRA_SUFFIXES:
        return with_new_names(Document.open(path, FabricError))
    return Tables(Document(to_toml(read_fabric_file(path)), path.name).data, str(path), FabricError)


@lru_cache(maxsize=16)
def _checked(tables: Tables) -> Fabric:
    """Return the checked fabric; most runs of a grid have the fabric of the run before."""
    return fabric_from(tables)


@cache
def _version() -> str:
    """Return the version of Genie, as another version may give other results."""
    with suppress(PackageNotFoundError):
        return version("genie-fabric")
    return ""


def load_sweep(path: Path, tell: Tell = lambda done, total: None, patterns: Sequence[str] = ()) -> Sweep:
    """Read and check a sweep's file; `tell` and `patterns` as in Sweep. Raises SettingsError and UsageError."""
    return Sweep(Document.open(path, SweepError), path.resolve().parent, tell, patterns)


def _flat(table: Mapping[str, Any], names: tuple[str, ...], place: Key) -> Iterator[tuple[str, Key, Any]]:
    """Yield dotted key, place in the file and value; `a.b = 1` and `"a.b" = 1` are equal."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*names, name), (*place, name))
        else:
            yield ".".join((*names, name)), (*place, name), value
