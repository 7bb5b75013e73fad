"""A theme without its weight: styles that no page uses, the icon font, and source maps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CODE_SPAN = re.compile(r'<span class="pre">([^<]*)</span>')  # keeps a word of code on one line
COMMENT, NOTICE = re.compile(r"/\*.*?\*/", re.DOTALL), re.compile(r"/\*!.*?\*/", re.DOTALL)
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
ARGUMENTS = re.compile(r"\([^()]*\)")
GROUPING = ("@media", "@supports", "@layer", "@container")
UNUSED = ("**/*.map", "**/webpack-macros.html", "vendor/**/*.woff2", "scripts/fontawesome.js*", "styles/theme.css")


def used_names(folder: Path) -> set[str]:
    """Return the classes of all pages, and all words of scripts, which may set classes."""
    names: set[str] = set()
    for page in folder.rglob("*.html"):
        for classes in re.findall(r'class="([^"]*)"', page.read_text()):
            names |= set(classes.split())
    for script in folder.rglob("_static/**/*.js"):
        names |= set(re.findall(r"[A-Za-z_][\w-]*", script.read_text()))
    return names


def rules_of(css: str) -> Iterator[tuple[str, str]]:
    """Yield the rules of a style sheet without comments: selector or at-rule, and the text between its braces."""
    depth = start = opened = 0
    for place, character in enumerate(css):
        if character == "{":
            if depth == 0:
                opened = place
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                yield css[start:opened].rpartition(";")[2].strip(), css[opened + 1 : place]
                start = place + 1


def selectors_of(prelude: str) -> list[str]:
    """Return the selectors of a rule: commas between brackets do not separate them."""
    parts, depth = [""], 0
    for character in prelude:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def is_used(selector: str, names: set[str]) -> bool:
    """Whether all classes of a selector exist. Classes between brackets are alternatives, or excluded."""
    while ARGUMENTS.search(selector):
        selector = ARGUMENTS.sub("", selector)
    return set(CLASS.findall(selector)) <= names


def slimmed(css: str, names: set[str]) -> str:
    """Return the rules that a page with these classes can use."""
    kept = []
    for prelude, body in rules_of(COMMENT.sub("", css)):
        if prelude.startswith(GROUPING):
            if inner := slimmed(body, names):
                kept.append(f"{prelude}{{{inner}}}")
        elif prelude.startswith("@"):
            if prelude != "@font-face":
                kept.append(f"{prelude}{{{body}}}")
        elif selectors := [each for each in selectors_of(prelude) if is_used(each, names)]:
            kept.append(f"{','.join(selectors)}{{{body}}}")
    return "\n".join(kept)


def slim(folder: Path) -> None:
    """Remove from a built site all that no page uses."""
    static = folder / "_static"
    for pattern in UNUSED:
        for path in static.glob(pattern):
            path.unlink()
    for page in folder.rglob("*.html"):
        page.write_text(CODE_SPAN.sub(r"\1", page.read_text()))
    names = used_names(folder)
    path = static / "styles" / "pydata-sphinx-theme.css"
    css = path.read_text()
    path.write_text("\n".join([*NOTICE.findall(css), slimmed(css, names)]) + "\n")
    for script in static.glob("scripts/*.js"):
        script.write_text(re.sub(r"(?m)^//# sourceMappingURL=.*$", "", script.read_text()))
