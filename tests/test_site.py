"""The site of the documents: its parts, its checks, and a build with warnings as errors."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from genie.cli.main import COMMANDS
from genie.report.json_outputs import OUTPUTS

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))

import check_site  # noqa: E402
import site_api  # noqa: E402
import site_commands  # noqa: E402
import site_slim  # noqa: E402
import site_tree  # noqa: E402


def test_the_gallery_has_every_picture_and_its_script() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text()
    for picture in (ROOT / "docs").glob("*.svg"):
        assert f"]({picture.name})" in text, picture.name
    for script in re.findall(r"`(tests/support/\w+\.py)`", text):
        assert (ROOT / script).is_file(), script
        assert script in (ROOT / "Makefile").read_text(), f"make picture does not start {script}"


def test_the_python_reference_names_all() -> None:
    text = (ROOT / "docs" / "reference-api.md").read_text()
    for module, table in zip(("simtwin", "genie"), text.split("| name of ")[1:], strict=True):
        names = set(import_module(module).__all__)
        told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\|.*", f"| {table}"))))
        assert names <= told, names - told


def test_lines_of_docstrings_become_fields() -> None:
    lines = ["Do it.", "", "fabric: a file, or", "tables.", "size: in bytes.", "Returns a run.", "Raises OSError or",
             "ValueError."]  # fmt: skip
    site_api.as_fields(None, "", "", lambda fabric, size: None, None, lines)
    assert lines == [
        "Do it.", "", "", ":param fabric: a file, or", "    tables.", ":param size: in bytes.", ":returns: a run.",
        ":raises: OSError or", "    ValueError.",
    ]  # fmt: skip

    class Result:
        size_bytes: int

    lines = ["size_bytes: of all", "messages."]
    site_api.as_fields(None, "", "", Result, None, lines)
    assert lines == ["", ":ivar size_bytes: of all", "    messages.", ":vartype size_bytes: int"]


def test_a_notebook_is_a_page() -> None:
    assert site_tree.place_of("docs/tutorial.ipynb") == "tutorial.md"
    assert site_tree.relinked("[a](tutorial.ipynb#a-verdict)", "docs/p.md") == "[a](tutorial.md#a-verdict)"


def test_the_navigation_is_that_of_the_index() -> None:
    sections = site_tree.sections_of(
        "# T\n\n## One\n\n- [A](a.md): words\n  of two lines.\n\n"
        "## Two\n\n### B\n\n- [C](../C.md): c.\n- [D](d.md): d.\n"
    )
    assert [section.name for section in sections] == ["a", "two"]
    assert sections[0].entries == [site_tree.Entry("A", "docs/a.md", "words of two lines.")]
    assert [entry.name for entry in sections[1].groups["B"]] == ["c", "d"]


def test_links_follow_the_pages() -> None:
    text = "[a](../ARCHITECTURE.md#rooms) [b](../hosts/README.md) [c](x.svg)\n```\n[d](../d.md)\n```\n"
    assert site_tree.relinked(text, "docs/p.md") == (
        "[a](architecture.md#rooms) [b](hosts.md) [c](x.svg)\n```\n[d](../d.md)\n```\n"
    )


def test_the_page_of_a_command_has_its_options() -> None:
    page = site_commands.page_of("simulate", "TABLE", "Exit codes: 0 done ([more](#x)).")
    for part in (
        "--level",
        "--series",
        "WORKLOAD",
        "TABLE",
        "genie simulate TRACE --fabric",
        "/reference-commands.md#x",
    ):
        assert part in page, part
    assert site_commands.spelled("-n, --iterations <int range>") == "-n, --iterations N"
    assert site_commands.option("--rate <str>", "Rate of `[link]`.  [default: 1]  [1<=x<=2]").splitlines()[1] == (
        "Rate of `[link]`. Default: 1. Allowed: `1<=x<=2`."
    )
    assert site_commands.option("-o <path>", "Folder.  [default: 1; twice; 0<=x<=1; required]").splitlines()[1] == (
        "Folder. Default: 1; twice. Allowed: `0<=x<=1`. Required."
    )
    generate = site_commands.page_of("generate", "TABLE", "")
    assert "replaces earlier results in this folder. Required.\n" in generate
    assert "Default: 1, or with `--pp` twice its stages. Allowed: `x>=1`.\n" in generate


def test_styles_without_a_use_go() -> None:
    css = "@font-face{a}.used,.un{b:1}.un{c:1}.used:not(.un){d:1}@media x{.un{e:1}p{f:1}}"
    assert site_slim.slimmed(css, {"used"}).splitlines() == [".used{b:1}", ".used:not(.un){d:1}", "@media x{p{f:1}}"]


def test_broken_pages_are_found(tmp_path: Path) -> None:
    most = check_site.BYTES_MAX
    (tmp_path / "a.html").write_text(
        '<a href="b.html">no file</a><a href="#no">no anchor</a><a id="x" href="#x">good</a>'
        '<script src="https://example.org/x.js"></script><img src="data:image/png,">'
    )
    (tmp_path / "big.html").write_text(" " * (most + 1))
    (tmp_path / "c.css").write_text('@import "//fonts.example.org/a.css"; p { background: url(x.png) }')
    assert list(check_site.problems(tmp_path)) == [
        "a.html: loads https://example.org/x.js from another server",
        "a.html: link b.html: no such file",
        "a.html: link #no: no such anchor",
        f"big.html: {most + 1} bytes with its scripts, styles and pictures, at most {most}",
        "c.css: loads //fonts.example.org/a.css from another server",
    ]


@pytest.fixture(scope="module")
def built(sphinx: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site, its man pages and its pages."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, SITE / "build.py", out], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.extended
def test_the_site_has_all_generated_pages(built: Path) -> None:
    for name in COMMANDS:
        assert (built / "html" / "commands" / f"{name}.html").is_file()
        assert f"genie-{name} \\-" in (built / "man" / f"genie-{name}.1").read_text()
    for name in OUTPUTS:
        assert (built / "html" / "schemas" / f"{name}.html").is_file()
    reference = re.sub(r"<[^>]+>|\s", "", (built / "html" / "reference-api.html").read_text())
    for module in site_api.MODULES:
        for name in import_module(module).__all__:
            assert f"{module}.{name}" in reference.partition(f"Functionsof{module}")[2], name
    assert "require_coverage:Literal['nics','links','none']|None=None" in reference
    assert "Raises:VerdictErrorwheretherunscannotbecompared" in reference
    assert (built / "html" / "tutorial.html").read_text().count('<svg xmlns="http://www.w3.org/2000/svg"') == 4
    loaded = {path.name for path in (built / "html" / "_downloads").glob("*/*")}
    assert {"slurm.sbatch", "genie.nhc", "mpijob.yaml", "lab-8.toml", "transformer.0.et.gz"} <= loaded
    listed = re.findall(r"\]\(([^)]+)\)", (built / "html" / "llms.txt").read_text())
    assert len(listed) > 50
    assert not [name for name in listed if not (built / "html" / name).is_file()]


@pytest.mark.extended
@pytest.mark.parametrize("width", [390, 1400])
def test_pages_fit_the_screen_and_ask_no_server(built: Path, browser: Any, width: int) -> None:
    html, asked = built / "html", list[str]()
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    for path in sorted(html.rglob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path.relative_to(html)} is wide"
    page.close()
    assert asked
    assert not [url for url in asked if not url.startswith((html.as_uri(), "data:"))]
