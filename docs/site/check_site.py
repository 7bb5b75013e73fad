"""Checks of the built site: `python docs/site/check_site.py FOLDER`.

Every link inside the site leads to a file and an anchor, no page makes a browser ask another server, and every page is
small.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

BYTES_MAX = 500_000  # of a page with its scripts, styles and pictures
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "license"}  # relations of <link>
SEARCH_INDEX = "searchindex.js"  # of the search page: it grows with the site
STYLE_URL = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


@dataclass
class Page(HTMLParser):
    """The links, the anchors and the loaded files of a page."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag names."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values[LOADED[tag]])
        self.loaded += style_urls(values.get("style", ""))


def style_urls(text: str) -> list[str]:
    """Return the addresses in a style sheet."""
    return [first or second for first, second in STYLE_URL.findall(text)]


def is_elsewhere(address: str) -> bool:
    """Whether an address is on another server."""
    return bool(urlsplit(address).scheme not in ("", "data") or address.startswith("//"))


def read_pages(folder: Path) -> dict[Path, Page]:
    """Return the parsed pages below a folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text())
    return pages


def problems(folder: Path) -> Iterator[str]:
    """Yield one line for each problem."""
    folder = folder.resolve()
    pages = read_pages(folder)
    for path, page in pages.items():
        name = path.relative_to(folder)
        files = {path} | {target_of(path, address) for address in page.loaded if not is_elsewhere(address)}
        if (size := sum(size_of(file) for file in files)) > BYTES_MAX:
            yield f"{name}: {size} bytes with its scripts, styles and pictures, at most {BYTES_MAX}"
        for address in page.loaded:
            if is_elsewhere(address):
                yield f"{name}: loads {address} from another server"
            elif not address.startswith("data:") and not target_of(path, address).is_file():
                yield f"{name}: loads {address}, which does not exist"
        for link in page.links:
            if not is_elsewhere(link) and (problem := link_problem(pages, path, link)):
                yield f"{name}: link {link}: {problem}"
    for path in sorted(folder.rglob("*.css")):
        for address in style_urls(path.read_text()):
            if is_elsewhere(address):
                yield f"{path.relative_to(folder)}: loads {address} from another server"


def size_of(file: Path) -> int:
    """Return the size of a file that counts for a page."""
    return file.stat().st_size if file.is_file() and file.name != SEARCH_INDEX else 0


def target_of(page: Path, address: str) -> Path:
    """Return the file that an address names, the page itself for an anchor."""
    path = unquote(urlsplit(address).path)
    return (page.parent / path).resolve() if path else page


def link_problem(pages: dict[Path, Page], page: Path, link: str) -> str:
    """Return what is wrong with a link inside the site, "" for a good one."""
    target, anchor = target_of(page, link), unquote(urlsplit(link).fragment)
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""


def main(folder: Path) -> int:
    """Print the problems of a site, and return the exit code."""
    found = list(problems(folder))
    print("\n".join(found) if found else f"{len(read_pages(folder))} pages: no problem")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
