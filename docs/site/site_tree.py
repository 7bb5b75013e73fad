"""The tree of pages: the project's Markdown under the names of the site, and the navigation of docs/README.md."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from posixpath import normpath, relpath

import site_notebook

INDEX = "docs/README.md"
NOTEBOOK = ".ipynb"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"(?ms)^ *```.*?^ *```[^\n]*$")
ENTRY = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\): (.+)", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """A page in the navigation."""

    title: str
    path: str  # in the project
    words: str  # one line

    @property
    def name(self) -> str:
        """The page's name on the site."""
        return page_name(self.path)


@dataclass(frozen=True)
class Section:
    """A section of the navigation: pages below captions. The caption "" has the pages without one."""

    title: str
    groups: Mapping[str, list[Entry]]

    @property
    def entries(self) -> list[Entry]:
        """All pages of the section."""
        return [entry for group in self.groups.values() for entry in group]

    @property
    def name(self) -> str:
        """The name of the section's page: that of its only entry, or one of its own."""
        return self.entries[0].name if len(self.entries) == 1 else self.title.lower().replace(" ", "-")


def page_name(path: str) -> str:
    """Return the name of a page on the site: docs/ is the top, and a README stands for its folder."""
    if path == INDEX:
        return "index"
    name = path.removeprefix("docs/").removesuffix(".md").removesuffix(NOTEBOOK).removesuffix("/README")
    return name.lower() if "/" not in path else name


def place_of(path: str) -> str:
    """Return the place of a file in the tree: of a page, or of another file that a page links to."""
    return f"{page_name(path)}.md" if is_page(path) else path.removeprefix("docs/")


def is_page(path: str) -> bool:
    """Whether a file of the project is a page of the site."""
    return path.endswith((".md", NOTEBOOK))


def is_file_link(target: str) -> bool:
    """Whether a link's target is a file of the project."""
    return not target.startswith(("http:", "https:", "mailto:", "#"))


def path_of(target: str, page: str) -> str:
    """Return the project's path of a link's target, without its anchor."""
    return normpath(os.path.join(os.path.dirname(page), target.partition("#")[0]))


def targets_of(text: str, page: str) -> Iterator[str]:
    """Yield the paths of the project's files that a page links to."""
    for target in LINK.findall(FENCE.sub("", text)):
        if is_file_link(target):
            yield path_of(target, page)


def relinked(text: str, page: str) -> str:
    """Return the page's text with links between the places of the tree."""
    folder = os.path.dirname(place_of(page)) or "."

    def moved(found: re.Match[str]) -> str:
        target = found[1]
        if not is_file_link(target):
            return found[0]
        _, hash_mark, anchor = target.partition("#")
        return f"]({relpath(place_of(path_of(target, page)), folder)}{hash_mark}{anchor})"

    pieces, end = [], 0
    for fence in FENCE.finditer(text):
        pieces += [LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, LINK.sub(moved, text[end:])])


def sections_of(index: str) -> list[Section]:
    """Return the navigation: headings of the second level are sections, those below are captions."""
    sections = []
    for part in re.split(r"(?m)^## ", index)[1:]:
        title, _, rest = part.partition("\n")
        groups: dict[str, list[Entry]] = {}
        for group in re.split(r"(?m)^### ", f"\n{rest}"):
            caption, _, body = group.partition("\n")
            entries = [
                Entry(found[1], path_of(found[2], INDEX), " ".join(found[3].split()))
                for item in re.split(r"(?m)^- ", body)
                if (found := ENTRY.match(item))
            ]
            if entries:
                groups[caption.strip()] = entries
        sections.append(Section(title.strip(), groups))
    return sections


def toctree(names: Mapping[str, str], caption: str = "") -> str:
    """Return a hidden table of contents of pages: name -> title."""
    lines = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join([*lines, "", *(f"{title} </{name}>" for name, title in names.items()), "```", ""])


def section_page(section: Section) -> str:
    """Return the page of a section: its captions and pages."""
    parts = [f"# {section.title}\n"]
    for caption, entries in section.groups.items():
        parts.append(f"## {caption}\n" if caption else "")
        parts.append("\n".join(f"- [{each.title}](/{each.name}.md): {each.words}" for each in entries) + "\n")
        parts.append(toctree({each.name: each.title for each in entries}, caption))
    return "\n".join(part for part in parts if part)


def linked_pages(root: Path) -> dict[str, str]:
    """Return path -> text of the pages that links lead to, from the index on."""
    pages: dict[str, str] = {}
    waiting = [INDEX]
    while waiting:
        page = waiting.pop()
        if page not in pages:
            path = root / page
            pages[page] = site_notebook.page_of(path) if page.endswith(NOTEBOOK) else path.read_text()
            waiting += [target for target in targets_of(pages[page], page) if is_page(target)]
    return pages


def write_tree(root: Path, tree: Path, appended: Mapping[str, str], generated: Mapping[str, str]) -> list[Section]:
    """Write the pages of the project and the generated ones, and return the navigation.

    `appended`: name of a page -> text at its end. `generated`: place -> text of a file.
    """
    pages = linked_pages(root)
    sections = sections_of(pages[INDEX])
    listed = {entry.path for section in sections for entry in section.entries} | {INDEX}
    files: dict[str, str] = dict(generated)
    for section in sections:
        if section.name not in {entry.name for entry in section.entries}:
            files[f"{section.name}.md"] = section_page(section)
    for page, text in pages.items():
        head = "" if page in listed else "---\norphan: true\n---\n"
        files[place_of(page)] = head + relinked(text, page) + appended.get(page_name(page), "")
        for path in targets_of(text, page):
            if not is_page(path) and (root / path).is_file():
                copy = tree / place_of(path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, copy)
    titles = {section.name: section.title for section in sections}
    files["index.md"] += "\n" + toctree(titles)
    for place, text in files.items():
        write_changed(tree / place, text)
    remove_others(tree, {*files, *(place_of(path) for page, text in pages.items() for path in targets_of(text, page))})
    return sections


def write_changed(path: Path, text: str) -> None:
    """Write a file, unless it has this text: Sphinx reads again only pages with a new time."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def remove_others(tree: Path, kept: set[str]) -> None:
    """Remove files of an earlier build."""
    for path in tree.rglob("*"):
        if path.is_file() and str(path.relative_to(tree)) not in kept:
            path.unlink()


def llms_text(sections: list[Section], title: str, summary: str, others: Mapping[str, list[Entry]]) -> str:
    """Return llms.txt: a line a page, by section, then the generated pages by heading."""
    lines = [f"# {title}", "", f"> {summary}", ""]
    lines += ["The Markdown of a page `NAME.html` is `_sources/NAME.md.txt`.", ""]
    named = [*((section.title, section.entries) for section in sections), *others.items()]
    for heading, entries in named:
        lines += [f"## {heading}", "", *(f"- [{each.title}]({each.name}.html): {each.words}" for each in entries), ""]
    return "\n".join(lines)


summary_of = partial(re.search, r"(?ms)^# [^\n]+\n\n(.+?)\n\n")
