"""The documents: their commands parse and run, their links lead somewhere, and their names are those of the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from common.skip_table import table_of
from documents import (
    BLOCKS,
    FENCED,
    GENIE,
    GROUPS,
    OUTPUTS,
    PAGES,
    PLACEHOLDER,
    QUICK,
    ROOT,
    SAMPLES,
    Block,
    blocks_of,
    command_of,
    ids,
    loaded,
    parsed,
    words_of,
    written,
)

from genie.cli.main import COMMANDS
from genie.config.hosts import Calibration, HostEntry, load_hosts, write_calibration
from genie.generate.training_job import TrainingJob
from genie.job.option import fields_of
from genie.live.settings import CongestionFault, DelayFault, LossFault, RateFault
from genie.record.schemas import PATHS_SCHEMA, SERIES_SCHEMA, TIMELINE_SCHEMA, TRANSFERS_SCHEMA
from simtwin.fabric import schema
from simtwin.fabric.placement import host_of_rank
from simtwin.fabric.reading import load_fabric
from simtwin.fabric.topology import build_network
from simtwin.play import traffic
from simtwin.sweep.grid import Base
from simtwin.sweep.rows import RESULTS

README_LINES_MAX, README_WIDTH_MAX = 120, 100


def test_enough_commands_are_found() -> None:
    assert len(FENCED) > 60
    assert {command.name for command in FENCED} == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_parse(page: Path) -> None:
    choices = {each.name: each.option.choices for group in GROUPS for each in fields_of(group) if each.option.choices}
    for command in written():
        if command.page != page:
            continue
        try:
            values = parsed(command)
        except Exception as error:
            raise AssertionError(f"{command.where}: {error}") from error
        for name, allowed in choices.items():
            value = values.get(name)
            assert value is None or not isinstance(value, str) or value in allowed, f"{command.where}: {value}"


def test_a_wrong_command_is_found() -> None:
    for line in ("genie simulat TRACE", "genie simulate TRACE --fabrc FABRIC.toml", "genie lab hold FABRIC.toml"):
        command = command_of(words_of(line), line, PAGES[0])
        assert command is not None
        with pytest.raises(Exception, match=r"no command|No such option|no such command"):
            parsed(command)


# -- files ------------------------------------------------------------------------------------------------------------


def outputs_of(page: Path) -> set[str]:
    """Paths that the commands of a page write."""
    made = {word for block in blocks_of(page) for word in re.findall(r"^cp \S+ (\S+)", block.text, re.MULTILINE)}
    for command in written():
        if command.page == page:
            for name, value in parsed(command).items():
                if name in OUTPUTS and value is not None:
                    made.add(str(value))
    return made


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_files_of_commands_exist(page: Path) -> None:
    """An input is a file of the project, a placeholder in capitals, or the output of a command of the same page."""
    made = outputs_of(page)
    for command in written():
        if command.page != page:
            continue
        for name, value in parsed(command).items():
            is_input = isinstance(value, Path) or name == "workload"
            if not is_input or name in OUTPUTS or value is None:
                continue
            path = str(value)
            exists = (ROOT / path).exists() or any(path == out or path.startswith(f"{out}/") for out in made)
            assert exists or PLACEHOLDER.match(path) or path.startswith("runs/"), f"{command.where}: {path} is missing"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_named_samples_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"(?<![\w/.-])(?:hosts|examples)/[\w./-]*\w", text))
    if page.parent.name in ("hosts", "fabrics"):
        named |= {
            str((page.parent / name).relative_to(ROOT)) for name in re.findall(r"^\| \[?`([^`]+)`", text, re.MULTILINE)
        }
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing, missing


def test_all_samples_are_named() -> None:
    for folder in SAMPLES:
        text = (folder / "README.md").read_text()
        for sample in folder.iterdir():
            if sample.name != "README.md":
                assert f"`{sample.name}" in text, f"{sample} is not in {folder / 'README.md'}"


def test_all_files_of_samples_are_linked() -> None:
    """The site carries only files that a page links to."""
    root = ROOT / "hosts"
    linked = {
        (page.parent / target).resolve()
        for page in (root / "README.md", root / "fabrics" / "README.md")
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    }
    missing = {path for path in root.rglob("*") if path.is_file() and path.name != "README.md"} - linked
    assert not missing, missing


def test_the_small_cluster_is_complete(tmp_path: Path) -> None:
    """The hosts file and the fabric file of docs/validate-a-fabric.md fit each other, and take a calibration."""
    texts = re.findall(r"(?ms)^```toml\n(.*?)^```", section("validate-a-fabric.md", "A small cluster"))
    hosts_file, fabric_file = tmp_path / "HOSTS.toml", tmp_path / "FABRIC.toml"
    for path, text in zip((hosts_file, fabric_file), texts, strict=True):
        path.write_text(text)
    network = build_network(load_fabric(fabric_file))
    ports = [place.port for place in load_hosts(hosts_file).places]
    assert host_of_rank(network, 4, ports).tolist() == list(range(network.hosts)) == [0, 1, 2, 3]
    write_calibration(hosts_file, Calibration(packet_latency_ns=5))
    hosts = load_hosts(hosts_file)
    assert hosts.mpirun_hosts() == "gpu01:1,gpu02:1,gpu03:1,gpu04:1"
    assert hosts.calibration == Calibration(packet_latency_ns=5)


# -- commands that run ------------------------------------------------------------------------------------------------


MSCCL = """<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1"
 outofplace="0" minBytes="0" maxBytes="0">
{gpus}</algo>
"""
MSCCL_GPU = """ <gpu id="{rank}" i_chunks="0" o_chunks="2" s_chunks="0">
  <tb id="0" send="{peer}" recv="{peer}" chan="0">
   <step s="0" type="s" srcbuf="o" srcoff="{rank}" dstbuf="o" dstoff="{rank}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="r" srcbuf="o" srcoff="{peer}" dstbuf="o" dstoff="{peer}" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the samples, and small files in place of the documents' placeholders."""
    place = tmp_path_factory.mktemp("docs")
    (place / "examples").symlink_to(ROOT / "examples")
    (place / "hosts").symlink_to(ROOT / "hosts")
    (place / "TRACE").symlink_to(ROOT / "examples" / "transformer")
    (place / "FABRIC.toml").symlink_to(ROOT / "hosts" / "fabrics" / "leaf-spine.toml")
    (place / "NETWORK.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    )
    (place / "SYSTEM.json").write_text(json.dumps({
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
        "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["ring"],
        "collective-optimization": "localBWAware", "local-mem-bw": 50,
    }))  # fmt: skip
    gpus = "".join(MSCCL_GPU.format(rank=rank, peer=1 - rank) for rank in (0, 1))
    (place / "ALLREDUCE.xml").write_text(MSCCL.format(gpus=gpus))
    return place


def genie(place: Path, *words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", **(variables or {})}
    return subprocess.run(
        [GENIE, *words], cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


CODES = {"doctor": (0, 3)}


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_quick_commands_run(words: tuple[str, ...], workplace: Path) -> None:
    done = genie(workplace, *words)
    assert done.returncode in CODES.get(words[0], (0,)), done.stderr


def test_run_folders_are_judged_and_exported(workplace: Path) -> None:
    """`genie diff` and `genie metrics`, on a recorded live run and its twin, as docs/try-it.md has them."""
    live, twin = ROOT / "benchmarks" / "recorded" / "clean", workplace / "runs" / "twin"
    trace = "examples/transformer"
    done = genie(workplace, "simulate", trace, "--rate", "200Mb/s", "--follow", str(live), "-o", str(twin))
    assert done.returncode == 0, done.stderr
    done = genie(workplace, "diff", str(live), str(twin), "-o", "runs/verdict")
    assert done.returncode in (0, 1, 4), done.stderr
    assert done.stdout.startswith(("PASS", "FAIL", "INCONCLUSIVE"))
    keys = set(json.loads((workplace / "runs" / "verdict" / "verdict.json").read_text()))
    told = set(re.findall(r"`(\w+)`", section("reference-formats.md", "verdict.json")))
    assert keys - {"schema"} <= told, keys - told
    for folder in (twin, live):
        info = json.loads((folder / "run.json").read_text())
        told = set(re.findall(r"`(\w+)`", section("reference-formats.md", "run.json")))
        missing = set(info) - told - {"remarks"}
        assert not missing, missing
    done = genie(workplace, "metrics", "runs/verdict", "-o", "genie.prom")
    assert done.returncode == 0, done.stderr
    told = set(re.findall(r"`(genie_\w+)`", (ROOT / "docs" / "counters-and-metrics.md").read_text()))
    written = set(re.findall(r"^# TYPE (\w+)", (workplace / "genie.prom").read_text(), re.MULTILINE))
    assert written <= told, written - told


PYTHON = [block for block in BLOCKS if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.page.name}:{block.line}")
def test_snippets_run(block: Block, workplace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=workplace, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


# -- links ------------------------------------------------------------------------------------------------------------


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    fenced, found = False, set()
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.match(r"#+ (.+)", line)):
            text = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            found.add(text.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=[*ids, "ARCHITECTURE.md"])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```", "", page.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            file = path / "README.md" if path.is_dir() else path
            assert anchor in anchors_of(file), f"{page.name}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES_MAX
    assert not [line for line in lines if len(line) > README_WIDTH_MAX]
    assert "make test" in lines or any(line.startswith("make test ") for line in lines)


# -- glossary and references ------------------------------------------------------------------------------------------

NOUNS = """
    rank, host, NIC, link, cable, switch, port, path, hop, tier, queue pair, message, packet, flow, collective, group,
    iteration, warm-up iteration, workload, trace, fabric, run, run folder, live run, twin, level, execution site, lab,
    calibration, congestion control, verdict, finding, coverage, warning, job, job file, node leader,
    duplicate address, slice, channel, dilation
"""


def test_the_glossary_has_each_term_once() -> None:
    terms = re.findall(r"^- \*\*([^*]+)\*\*:", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len({term.lower() for term in terms}) == len(terms)
    assert terms == sorted(terms, key=str.lower)
    missing = {" ".join(noun.split()) for noun in NOUNS.split(",")} - set(terms)
    assert not missing, missing


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its kind."""
    found = re.split(rf"(?m)^(#+) {re.escape(heading)}$", (ROOT / "docs" / page).read_text(), maxsplit=1)
    assert len(found) == 3, f"{page} has no {heading}"
    return re.split(rf"(?m)^#{{1,{len(found[1])}}} ", found[2])[0]


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        ("timeline", TIMELINE_SCHEMA),
        ("transfers", TRANSFERS_SCHEMA),
        ("paths", PATHS_SCHEMA),
        ("series", SERIES_SCHEMA),
        ("Sweep tables", RESULTS),
    ],
)
def test_every_column_is_told(heading: str, columns: Mapping[str, Any]) -> None:
    cells = re.findall(r"(?m)^\| ([^|]+) \|", section("reference-formats.md", heading))
    told = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert set(columns) <= told, set(columns) - told
    if heading != "Sweep tables":
        assert told == set(columns)


def structs_of(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) or (kind,)


FABRIC_TABLES = (
    schema.Link, schema.Downlink, schema.Transport, schema.Frame, schema.Host, schema.Switch, schema.Ecn, schema.Pfc,
    schema.Priority, schema.LoadBalancing, schema.Routing, schema.Path, schema.Fault, schema.SingleSwitch,
    schema.Photonic, schema.LeafSpine, schema.FatTree, schema.RailOptimized, schema.Domain, schema.DualPlane,
    schema.Dragonfly, schema.Torus, schema.NamedHost, schema.NamedSwitch, schema.NamedLink,
)  # fmt: skip


@pytest.mark.parametrize(
    ("heading", "tables"),
    [
        ("Fabric files", FABRIC_TABLES),
        ("Hosts files", (HostEntry, Calibration)),
        ("Fault plans", (RateFault, LossFault, DelayFault, CongestionFault)),
        ("Sweeps", (Base, TrainingJob, *structs_of(traffic.Traffic))),
    ],
)
def test_every_key_is_told(heading: str, tables: tuple[Any, ...]) -> None:
    told = set(re.findall(r"`(\w+)`", section("reference-files.md", heading)))
    keys = {key for table in tables for key in table.__struct_fields__}
    assert keys <= told, keys - told


def leaves(name: str, parser: Any) -> Iterator[tuple[str, Any]]:
    commands = getattr(parser, "commands", None)
    if not commands:
        yield name, parser
    for each, inner in (commands or {}).items():
        if not inner.hidden:
            yield from leaves(f"{name} {each}", inner)


def test_the_reference_has_every_command_and_option() -> None:
    text = (ROOT / "docs" / "reference-commands.md").read_text()
    told = set(re.findall(r"`(--?[\w-]+)`", text))
    known = {"-q", "-v", "--version", "--quiet", "--verbose", "--read-limit", "--install-completion"}
    known |= {"--show-completion", "--help"}
    for name in COMMANDS:
        for command, parser in leaves(f"genie {name}", loaded(name)):
            last = command.split()[-1]
            assert command in text or f"`{last}`" in text, f"{command} is missing"
            for parameter in parser.params:
                flags = {flag for flag in (*parameter.opts, *parameter.secondary_opts) if flag.startswith("-")}
                known |= flags
                assert not flags or flags & told or parameter.name == "help", f"{command}: {sorted(flags)} is missing"
    assert told <= known, told - known


@pytest.mark.parametrize("page", [ROOT / "docs" / "where-things-are.md"], ids=lambda page: page.name)
def test_places_in_the_code_exist(page: Path) -> None:
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("|")]
    places = 0
    for row in rows:
        paths = re.findall(r"`([\w/.-]+\.\w+)`", row[1])
        for path in re.findall(r"`([\w.-]+/[\w/.-]+\.\w+)`", "|".join(row)):
            assert (ROOT / path).is_file(), path
        for name in re.findall(r"`(\w+)`", row[2]):
            text = (ROOT / paths[0]).read_text()
            assert re.search(
                rf"\b(def|class|struct(?: alignas\(\d+\))?) {name}\b|^{name}\b.*=|\b{name}\(", text, re.MULTILINE
            ), f"{paths[0]} has no {name}"
            places += 1
    assert places > 80


def test_each_cause_of_a_refused_episode_is_told() -> None:
    native = ROOT / "native" / "twin"
    sources = [path.read_text() for room in ("memo", "episodes") for path in (native / room).glob("*.[ch]pp")]
    told = r'(?:give_up|refuse)\([^;"]*"([a-z][^"]+)"|return "([a-z][^"]+)"|(?:refusal_?|kSameLinks) = "([a-z][^"]+)"'
    causes = {next(filter(None, found)) for source in sources for found in re.findall(told, source)}
    causes.remove("what is expected ends at once")  # the component is then forecast without it
    assert len(causes) > 25
    rows = re.findall(r"^\|([^|]*`[^|]*)\|", (ROOT / "docs" / "simulate-a-job.md").read_text(), re.MULTILINE)
    patterns = [
        re.escape(cell).replace(re.escape("..."), ".*") for row in rows for cell in re.findall(r"`([^`]+)`", row)
    ]
    assert [cause for cause in sorted(causes) if not any(re.fullmatch(each, cause) for each in patterns)] == []


def test_the_table_of_skips_has_the_recorded_figures() -> None:
    rows = json.loads((ROOT / "benchmarks" / "recorded" / "twin_skip.json").read_text())["rows"]
    assert table_of(rows) in (ROOT / "ARCHITECTURE.md").read_text()
