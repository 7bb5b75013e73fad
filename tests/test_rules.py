"""Rules of the sources: imports between rooms, includes of pure native code, and the form of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Room -> the rooms that it may import. Every folder of Python is a room; nothing may import genie.cli.
CORE = "genie_core"
PROTOBUF = "chakra_protobuf"  # generated from the schema
ROOMS: dict[str, set[str]] = {
    "chakra_schemas": {PROTOBUF},
    "genie": {"genie.config", "genie.figures", "genie.record", "genie.scripting", "genie.verdict"},  # on first use
    "genie.errors": set(),
    "genie.invocation": set(),
    "genie.progress": {"genie.invocation", "genie.inputs"},
    "genie.config": set(),
    "genie.figures": {"genie.page"},
    "genie.record": {"genie.figures", "genie.page"},
    "genie.page": set(),
    "genie.workload": {"chakra_schemas", PROTOBUF},
    "genie.compute": set(),
    "genie.generate": {"genie.compute", "genie.workload", "genie.page"},
    "genie.capture": {"genie.compute", "genie.workload"},
    "genie.extrapolate": {"genie.compute", "genie.generate", "genie.workload"},
    "genie.collectives": set(),
    "genie.plan": {"genie.workload", "genie.collectives", "genie.record", CORE},
    "genie.live": {"genie.workload", "genie.collectives", "genie.config", "genie.plan", "genie.record", CORE},
    "genie.bench": {"genie.live", "genie.workload", "genie.config", "genie.plan", "genie.record", CORE},
    "genie.check": {"genie.bench", "genie.live", "genie.workload", "genie.config", "genie.plan", "genie.record", CORE},
    "genie.probe": {"genie.check", "genie.live", "genie.plan", "genie.record", CORE},
    "genie.verdict": {"genie.record", "genie.figures", "genie.page"},
    "genie.scripting": {"genie.config", "genie.live", "genie.record", "genie.verdict"},
    "genie.report": {"genie.verdict", "genie.record", "genie.page"},
    "simtwin": {
        "genie.workload",
        "genie.compute",
        "genie.generate",
        "genie.collectives",
        "genie.config",
        "genie.plan",
        "genie.record",
        "genie.figures",
        "genie.page",
        CORE,
    },
    "genie.lab": {"genie.config", "simtwin"},
}
INPUTS = "genie.inputs"  # common parts of all readers of files
for allowed in ROOMS.values():
    allowed |= {INPUTS, "genie.errors", "genie.invocation", "genie.progress"}
ROOMS[INPUTS] = set()
ROOMS["genie.job"] = {*ROOMS, CORE}
ROOMS["genie.cli"] = {*ROOMS, CORE}
ROOMS["genie.__main__"] = {"genie.cli"}

OURS = {CORE, PROTOBUF, *(room.split(".")[0] for room in ROOMS)}

# Distribution -> the name under which it is imported, where the two differ.
IMPORT_NAMES = {"protobuf": "google", "pyyaml": "yaml"}
# Packages that a rank must not load, so that it starts fast and on any machine.
HEAVY = {"polars", "typer", "rich", "perfetto", "pyarrow", "scipy"}

# Native room -> the rooms whose headers it may include.
PURE = {"core": set(), "congestion": {"core"}, "walker": {"core"}, "roce": {"core", "congestion"}}
UNDER_MEMO = {f"twin/{room}" for room in ("kernel", "fabric", "network", "host", "packet_level", "skip")}
TWIN = {
    "twin/kernel": {"core"},
    "twin/fabric": {"core", "roce", "walker"},
    "twin/port": {"core", "congestion", "roce", "twin/kernel", "twin/fabric"},
    "twin/network": {"core", "congestion", "roce", "twin/kernel", "twin/fabric", "twin/port"},
    "twin/levels": {*PURE, "twin/kernel", "twin/fabric"},
    "twin/host": {*PURE, "twin/kernel", "twin/fabric", "twin/port", "twin/network"},
    "twin/packet_level": {*PURE, "twin/kernel", "twin/fabric", "twin/network", "twin/host"},
    "twin/skip": {*PURE, "twin/kernel", "twin/fabric", "twin/network", "twin/host", "twin/packet_level"},
    "twin/memo": {*PURE, *UNDER_MEMO},
    "twin/components": {*PURE, *UNDER_MEMO, "twin/memo"},
    "twin/episodes": {*PURE, *UNDER_MEMO, "twin/memo", "twin/components"},
    "twin/estimate": {*PURE, "twin/packet_level"},
}
NATIVE: dict[str, set[str]] = {
    **PURE,
    **TWIN,
    "live": {*PURE},
    "bindings": {*PURE, *TWIN, "live"},
    "tests": {*PURE, *TWIN, "live"},
    "fuzz": {*PURE, "tests"},
}
# Clocks, threads, random sources and I/O, which a pure step(state, event, now) does not need.
IMPURE = re.compile(
    r"(sys|linux|netinet|arpa|net|asm)/.*|(unistd|poll|fcntl|time|pthread|sched|signal|stdio)\.h|"
    r"chrono|thread|mutex|shared_mutex|condition_variable|atomic|future|semaphore|barrier|latch|stop_token|random|"
    r"iostream|fstream|ostream|istream|iomanip|print|filesystem|cstdio|ctime|csignal|cstdlib"
)
STANDARD_HEADER = re.compile(r"[a-z_]+")

PARAMETERS_MAX = 12
LINES_MAX = 460  # the aim is about 400; a longer file should be two files


def room_of(module: str) -> str:
    """`genie.live.rank.worker` → `genie.live`; `simtwin.fabric.reading` → `simtwin`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "genie" and len(parts) > 1 else parts[0]


def imports_of(source: str, package: str) -> set[str]:
    """Full names of all modules that a source imports, also inside functions and by importlib."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            # `from genie import live` imports a room, `from genie.record import Run` a name in one.
            names.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                names.add(node.args[0].value)
    return names


def python_files() -> list[Path]:
    """All sources of the product."""
    return sorted(path for top in ("chakra_schemas", "genie", "simtwin") for path in (ROOT / top).rglob("*.py"))


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parts[:-1])


def module_of(path: Path) -> str:
    return package_of(path) if path.name == "__init__.py" else f"{package_of(path)}.{path.stem}"


def tracked() -> Iterator[Path]:
    """Files in git that hold text."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix not in (".gz", ".png", ".parquet"):
            yield path


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_import_finder_sees_every_form() -> None:
    source = """
import genie.cli.main
from genie import verdict
from .worker import run_rank
from .. import plan
def later():
    from simtwin.play.run import simulate_to_folder
    return importlib.import_module("genie.record")
"""
    assert {room_of(name) for name in imports_of(source, "genie.live")} == {
        "genie.cli", "genie.verdict", "genie.live", "genie.plan", "simtwin", "genie.record",
    }  # fmt: skip


def test_every_folder_of_python_is_a_room() -> None:
    found = {room_of(module_of(path)) for path in python_files()}
    assert found <= set(ROOMS), "a new room: say in ROOMS and in ARCHITECTURE.md what it may import"


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_import_what_they_may(room: str) -> None:
    files = [path for path in python_files() if room_of(module_of(path)) == room]
    assert files
    broken = []
    for path in files:
        for name in sorted(imports_of(path.read_text(), package_of(path))):
            target = room_of(name)
            ours = target.split(".")[0] in OURS
            if ours and target != room and target not in ROOMS[room]:
                broken.append(f"{relative(path)} imports {name}")
    assert not broken


def test_third_party_imports_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = [re.split(r"[<>=\[ ]", line)[0] for line in project["dependencies"]]
    declared = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in distributions}
    used = {name.split(".")[0] for path in python_files() for name in imports_of(path.read_text(), package_of(path))}
    used -= {*sys.stdlib_module_names, *OURS}
    used.remove("torch")  # of the recorder, which runs in the user's own Python
    assert used - declared == set()
    assert declared - used == set(), "declared, and imported nowhere"


@pytest.mark.parametrize("module", ["genie.live.rank.process", "genie.bench.rank", "genie.check.rank"])
def test_a_rank_loads_little(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "numpy" in done.stdout.split()
    assert HEAVY & set(done.stdout.split()) == set()


def test_a_command_loads_what_tables_take_when_it_comes_to_one() -> None:
    """Ranks that a cluster's launcher starts as commands, and refused commands, never load it."""
    code = "import sys, genie.cli.main; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "typer" in done.stdout.split()
    assert {"polars", "perfetto", "prometheus_client"} & set(done.stdout.split()) == set()


def native_room(path: str) -> str:
    """`roce/wire.hpp` → `roce`; `twin/kernel/schedule.hpp` → `twin/kernel`."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "twin" else 1])


@pytest.mark.parametrize("room", sorted(NATIVE))
def test_native_rooms_include_what_they_may(room: str) -> None:
    broken = []
    for path in sorted((ROOT / "native" / room).rglob("*.?pp")):
        for opening, header in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE):
            if opening == '"':
                target = native_room(header) if "/" in header else room
                allowed = target == room or target in NATIVE[room]
            elif room in PURE or room in TWIN:
                windows = room == "twin/packet_level" and header in ("thread", "barrier")  # threads change no result
                # The place of memory changes no result either.
                windows = windows or (path.name == "huge_pages.cpp" and header in ("sys/mman.h", "cstdlib"))
                allowed = (windows or IMPURE.fullmatch(header) is None) and (
                    STANDARD_HEADER.fullmatch(header) is not None or header in ("immintrin.h", "sys/mman.h")
                )
            else:
                allowed = room == "bindings" or not header.startswith(("nanobind", "Python"))
            if not allowed:
                broken.append(f"{relative(path)} includes {header}")
    assert not broken


def test_native_folders_are_rooms() -> None:
    native = ROOT / "native"
    assert {native_room(str(path.relative_to(native))) for path in native.rglob("*.?pp")} <= set(NATIVE)


def test_functions_take_few_parameters() -> None:
    """Outside the command line, whose options typer reads from a function's parameters."""
    found = []
    for path in python_files():
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and "cli" not in path.parts:
                taken = function.args
                count = len(taken.posonlyargs) + len(taken.args) + len(taken.kwonlyargs)
                if count > PARAMETERS_MAX:
                    found.append(f"{relative(path)}:{function.lineno}: {function.name} has {count} parameters")
    assert not found


def test_generated_code_is_not_in_git() -> None:
    assert not [relative(path) for path in tracked() if "_pb2" in path.name or path.suffix in (".so", ".pyi", ".pyc")]


def test_files_are_not_too_long() -> None:
    sources = [path for path in tracked() if path.suffix in (".py", ".cpp", ".hpp", ".js")]
    long = {relative(path): lines for path in sources if (lines := len(path.read_text().splitlines())) > LINES_MAX}
    assert not long


def test_files_end_with_a_newline_and_lines_with_a_letter() -> None:
    untidy = []
    for path in tracked():
        text = path.read_bytes()
        if text and (not text.endswith(b"\n") or b"\r" in text or re.search(rb"[ \t]$", text, re.MULTILINE)):
            untidy.append(relative(path))
    assert not untidy


def test_names_say_what_is_inside() -> None:
    vague = re.compile(r"(^|_)(new|old|utils?|helpers?|misc|common|tmp|v?[0-9])$")
    sources = [path for path in tracked() if path.suffix in (".py", ".cpp", ".hpp")]
    assert not [relative(path) for path in sources if vague.search(path.stem)]


def test_names_of_test_modules_differ() -> None:
    # pytest imports a test module by its bare name, and one of a package by its full name.
    names = [path for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    counts = Counter(path.name for path in names if path.name != "conftest.py")
    assert not [name for name, count in counts.items() if count > 1]


def test_no_path_of_this_machine_is_in_a_file() -> None:
    homes = re.compile(r"(?<![\w.])/(home|root|work|Users)/\w")
    here = f"{ROOT}/"
    own = Path(__file__).resolve()
    assert not [relative(p) for p in tracked() if p != own and (here in p.read_text() or homes.search(p.read_text()))]
