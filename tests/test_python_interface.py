"""The public names of `simtwin` and `genie`: documented, typed, light to import, and the same as the commands."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from live_runs import in_this_process

import genie
import simtwin

ROOT = Path(__file__).resolve().parent.parent
USER = ROOT / "tests" / "support" / "interface_user.py"
RECORDED = ROOT / "examples" / "recorded"
MODULES = ("simtwin", "genie")
# Words that give a number's unit or range, or a quantity's.
UNITS = re.compile(
    r"\b(number|numbers|bytes|ns|seconds|unit|share|shares|rank|0|1|ranks|fraction|percent|fractions|%|log10|rows?)\b"
)
QUANTITIES = {"size", "duration", "series_interval", "slice_delay", "sizes"}  # text with a unit


def public(module: str) -> Iterator[tuple[str, Any]]:
    """The names of a module's interface, and the public methods and properties of its classes."""
    for name in import_module(module).__all__:
        named = getattr(import_module(module), name)
        yield f"{module}.{name}", named
        if inspect.isclass(named) and not issubclass(named, Exception):
            for member, value in vars(named).items():
                if not member.startswith("_") and (callable(value) or hasattr(value, "__get__")):
                    found = getattr(value, "func", getattr(value, "fget", getattr(value, "__func__", value)))
                    if inspect.isfunction(found):
                        yield f"{module}.{name}.{member}", found


NAMES = dict(each for module in MODULES for each in public(module))
FUNCTIONS = {name: named for name, named in NAMES.items() if inspect.isfunction(named)}
CLASSES = {name: named for name, named in NAMES.items() if inspect.isclass(named) and not issubclass(named, Exception)}


def described(doc: str) -> dict[str, str]:
    """Argument -> words, of the lines `argument: words` of a docstring, with the lines that go on."""
    found: dict[str, str] = {}
    last = ""
    for line in inspect.cleandoc(doc).splitlines():
        if match := re.match(r"(\w+): (.+)", line):
            last = match[1]
            found[last] = match[2]
        elif re.match(r"(Returns|Raises) |$", line):
            last = ""
        elif last:
            found[last] += f" {line}"
    return found


def lacking(named: Any) -> list[str]:
    """The parts of a documented signature that a function or a class lacks."""
    doc = inspect.getdoc(named) or ""
    words = described(doc)
    if not doc:
        return ["a docstring"]
    if inspect.isclass(named):
        types = {name: str(kind) for name, kind in inspect.get_annotations(named).items()}
        parts = [name for name in types if not name.startswith("_")]
        problems = []
    else:
        signature = inspect.signature(named)
        parts = [name for name in signature.parameters if name not in ("self", "cls")]
        types = {name: str(signature.parameters[name].annotation) for name in parts}
        problems = [f"a type of {name}" for name in parts if signature.parameters[name].annotation is inspect._empty]
        problems += ["a type of its result"] * (signature.return_annotation is inspect._empty)
    for name in parts:
        if name not in words:
            problems.append(f"words on {name}")
        elif (re.search(r"\b(int|float)\b", types[name]) or name in QUANTITIES) and not UNITS.search(words[name]):
            problems.append(f"the unit or the range of {name}")
    return problems


def test_every_name_is_documented_with_types_and_units() -> None:
    assert len(FUNCTIONS) > 15
    assert {"simtwin.Simulated.links", "genie.Run.series", "simtwin.Fabric.load"} <= set(FUNCTIONS)
    found = {name: problems for name, named in {**FUNCTIONS, **CLASSES}.items() if (problems := lacking(named))}
    assert found == {}


def test_what_a_docstring_lacks_is_found() -> None:
    def given(size, count: int, name: str, late_ns: int):  # type: ignore[no-untyped-def]
        """Do it.

        size: of a message.
        count: of messages.
        late_ns: delay
        in ns.
        """

    assert lacking(given) == [
        "a type of size", "a type of its result", "the unit or the range of size", "the unit or the range of count",
        "words on name",
    ]  # fmt: skip
    assert lacking(lambda: None) == ["a docstring"]


def test_errors_in_docstrings_are_public() -> None:
    every = {name for module in MODULES for name in import_module(module).__all__}
    for name, named in FUNCTIONS.items():
        own = set(import_module(name.split(".")[0]).__all__)
        for line in re.findall(r"(?ms)^\s*Raises .*", named.__doc__ or ""):
            errors = set(re.findall(r"\b\w+Error\b", line))
            assert errors, name
            assert all(error in own or hasattr(builtins, error) for error in errors), (name, errors - own)
    assert all(issubclass(getattr(genie, name), genie.GenieError) for name in genie.__all__ if name.endswith("Error"))
    assert "RecordError" in every


@pytest.mark.parametrize("module", MODULES)
def test_importing_is_light_and_names_are_found(module: str) -> None:
    loads = f"import {module}; assert dir({module})"
    code = f"import sys; before = set(sys.modules); {loads}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.split(".")[0] in ("genie", "simtwin")} == {module}
    assert {"polars", "numpy", "msgspec"} & loaded == set()
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        getattr(import_module(module), "nothing")  # noqa: B009
    assert set(import_module(module).__all__) <= set(dir(import_module(module)))


@pytest.mark.parametrize("module", MODULES)
def test_checkers_and_python_see_the_same_names(module: str) -> None:
    tree = ast.parse((ROOT / module / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(import_module(module).__all__)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the packages as pip installs them, so that py.typed counts."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "genie.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return folder


def check_types(environment: Path, script: Path) -> subprocess.CompletedProcess[str]:
    """The result of `mypy --strict` on a script outside the checkout, without this project's settings."""
    words = ["--strict", "--config-file=", "--python-executable", environment / "bin" / "python"]
    cache = ["--cache-dir", environment / "cache"]
    command = [sys.executable, "-m", "mypy", *words, *cache, script]
    return subprocess.run(command, cwd=environment, capture_output=True, text=True, timeout=220, check=False)


@pytest.mark.slow
def test_a_script_of_a_user_has_types(environment: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(USER.read_text())
    done = check_types(environment, script)
    assert done.returncode == 0, done.stdout + done.stderr
    script.write_text(re.sub(r"  # type: ignore.*", "", USER.read_text()))
    done = check_types(environment, script)
    assert done.stdout.count("error:") == USER.read_text().count("# type: ignore[") == 10, done.stdout


@pytest.mark.parametrize("name", ["slow-nic", "clean"])
def test_the_verdict_is_that_of_the_command(name: str, tmp_path: Path) -> None:
    live, twin = RECORDED / name / "live", RECORDED / name / "twin"
    in_this_process("diff", str(live), str(twin), "--require-coverage", "nics", "-o", str(tmp_path))
    written = json.loads((tmp_path / "verdict.json").read_text())
    verdict = genie.diff(genie.load_run(live), twin, require_coverage="nics")
    ours = json.loads(json.dumps(verdict.to_dict()))
    assert {key: value for key, value in ours.items() if key != "schema"} == {
        key: value for key, value in written.items() if key not in ("schema", "runs")
    }
    assert genie.diff(str(live), genie.load_run(twin), require_coverage="nics").to_dict() == verdict.to_dict()


def test_a_known_fault_fails_no_run(tmp_path: Path) -> None:
    known, runs = tmp_path / "known.toml", RECORDED / "slow-nic"
    known.write_text('[[known]]\ncomponent = "rank 5"\nnote = "ticket 7"\n')
    verdict = genie.diff(runs / "live", runs / "twin", known=known)
    assert verdict.result != "fail"
    assert [suspect.note for suspect in verdict.known] == ["ticket 7"]
    known.write_text('[[known]]\ncomponent = "rank 99"\n')
    with pytest.raises(genie.UsageError, match=r"^known .*'rank 99' is no component of this fabric"):
        genie.diff(runs / "live", runs / "twin", known=known)
    known.write_text("[[known]]\nparts = 3\n")
    with pytest.raises(genie.SettingsError, match="parts"):
        genie.diff(runs / "live", runs / "twin", known=known)


def test_wrong_runs_are_one_line(tmp_path: Path) -> None:
    live, twin = RECORDED / "clean" / "live", RECORDED / "clean" / "twin"
    with pytest.raises(genie.RecordError, match="does not exist; give a folder of"):
        genie.load_run(tmp_path / "nothing")
    with pytest.raises(genie.RecordError, match=r"is not a run folder, run\.json is missing"):
        genie.load_run(RECORDED / "clean")
    with pytest.raises(genie.VerdictError, match="is a run of the twin world"):
        genie.diff(twin, live)
    with pytest.raises(genie.UsageError, match="require_coverage 'all': give links, nics, none"):
        genie.diff(live, twin, require_coverage="all")  # type: ignore[arg-type]
    assert issubclass(genie.VerdictError, genie.RecordError)
    assert genie.RecordError is simtwin.RecordError
