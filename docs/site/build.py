"""Build the site and the man pages: `python docs/site/build.py [OUT]`, by default into build/site and build/man."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent
ROOT = SITE.parent.parent
sys.path.insert(0, str(SITE))

import check_site  # noqa: E402
import site_api  # noqa: E402
import site_commands  # noqa: E402
import site_schemas  # noqa: E402
import site_slim  # noqa: E402
import site_tree  # noqa: E402
from sphinx.cmd.build import build_main  # noqa: E402

from genie.cli.main import COMMANDS  # noqa: E402
from genie.report.json_outputs import OUTPUTS  # noqa: E402


def main(out: Path) -> int:
    """Build everything below a folder, and check it. The result is the exit code."""
    tree = out / "pages"
    commands = {"genie": "Options and exit codes of all commands.", **{name: COMMANDS[name][2] for name in COMMANDS}}
    entries = {
        "Commands": [
            site_tree.Entry(f"genie {name}" if name != "genie" else name, f"docs/commands/{name}.md", words)
            for name, words in commands.items()
        ],
        "Schemas": [
            site_tree.Entry(f"Schema {name}", f"docs/schemas/{name}.md", site_schemas.words_of(name))
            for name in OUTPUTS
        ],
    }
    appended = {
        "reference-commands": children("Pages of commands", entries["Commands"]),
        "reference-formats": children("Pages of schemas", entries["Schemas"]),
        "reference-api": site_api.directives(),
    }
    reference = (ROOT / "docs" / "reference-commands.md").read_text()
    sections = site_tree.write_tree(ROOT, tree, appended, {**site_commands.pages(reference), **site_schemas.pages()})
    shutil.rmtree(out / "html", ignore_errors=True)  # site_slim.py changes it
    for builder, folder in (("html", out / "html"), ("man", out / "man")):
        words = ["-q", "-W", "--keep-going", "-b", builder, "-c", str(SITE), "-d", str(out / "doctrees")]
        if code := build_main([*words, str(tree), str(folder)]):
            return code
    site_slim.slim(out / "html")
    index = (tree / "index.md").read_text()
    found = site_tree.summary_of(index)
    summary = " ".join(found[1].split()) if found else ""
    (out / "html" / "llms.txt").write_text(site_tree.llms_text(sections, "Genie", summary, entries))
    return check_site.main(out / "html")


def children(title: str, entries: list[site_tree.Entry]) -> str:
    """Return the end of a page that lists generated pages."""
    listed = "\n".join(f"- [{each.title}](/{each.name}.md): {each.words}" for each in entries)
    return f"\n## {title}\n\n{listed}\n\n{site_tree.toctree({each.name: each.title for each in entries})}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()))
