"""One page a command, from the command itself; the man pages are made of the same pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from genie.cli.main import COMMANDS, app, load_command

FOLDER = "commands"
OWN_LINK, REFERENCE = re.compile(r"\]\((?=#)"), "](/reference-commands.md"
KINDS = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "list[str]": "TEXT"}
RANGE = re.compile(r"[-\d.e]*[<>=]*x[<>=]+[-\d.e]+")
EXAMPLES = re.compile(r"(?s)```\w*\n(.*?)```")
EXIT_CODES = re.compile(r"(?ms)^Exit codes?\b.*?(?=\n\n|\Z)")


def page_of(name: str, exit_codes: str, section_text: str) -> str:
    """Return the page of a command.

    `exit_codes`: the table of all commands. `section_text`: the section of this command in the reference.
    """
    own = EXIT_CODES.search(section_text)
    own_codes = OWN_LINK.sub(REFERENCE, own[0]) if own else ""
    command = load_command(name)
    words, *paragraphs = paragraphs_of(command)
    parts = [f"# genie {name}"]
    if commands := getattr(command, "commands", None):
        parts += [*section("Synopsis", [f"```text\ngenie {name} COMMAND [ARGS]...\n```"], 2)]
        parts += section("Description", [words, *paragraphs], 2)
        shown = {each: inner for each, inner in commands.items() if not inner.hidden}
        parts += ["## Commands", *(f"- [genie {name} {each}](#genie-{name}-{each})" for each in shown)]
        first: dict[str, str] = {}  # options -> the command that has them first
        for each, inner in shown.items():
            path = f"genie {name} {each}"
            options = "\n\n".join(options_of(inner, path, 3)[1:])
            same = first.setdefault(options, path)
            anchor = same.replace(" ", "-")
            parts += [f"## {path}", *body_of(inner, path, "" if same == path else f"[{same}](#{anchor})")]
    else:
        parts += [*section("Synopsis", [synopsis(command, f"genie {name}")], 2)]
        parts += [*section("Description", [words, *paragraphs], 2), *options_of(command, f"genie {name}", 2)]
        parts += section("Examples", examples_of(command), 2)
    parts += section("Exit codes", [*([own_codes] if own_codes else []), exit_codes], 2)
    seen = [f"[genie {name}](/reference-commands.md#genie-{name}) explains more."] if section_text else []
    parts += section("See also", ["[genie(1)](genie.md) has the options of all commands.", *seen], 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def main_page(exit_codes: str) -> str:
    """Return the page of `genie` itself: its commands by panel, and its options."""
    group = typer.main.get_command(app)
    parts = ["# genie", *section("Synopsis", ["```text\ngenie [OPTIONS] COMMAND [ARGS]...\n```"], 2)]
    parts += section("Description", [str(group.help)], 2)
    parts.append("## Commands")
    for panel in dict.fromkeys(panel for _, panel, _ in COMMANDS.values()):
        listed = [f"- [genie {name}]({name}.md): {words}" for name, (_, own, words) in COMMANDS.items() if own == panel]
        parts += [f"### {panel}", "\n".join(listed)]
    parts += [*options_of(group, "genie", 2), *section("Exit codes", [exit_codes], 2)]
    return "\n\n".join(parts) + "\n"


def pages(reference: str) -> dict[str, str]:
    """Return place -> text of all pages of commands. `reference`: docs/reference-commands.md, for the exit codes."""
    lines = section_of(reference, "Exit codes").splitlines()
    table = "\n".join(["All commands have these exit codes:", "", *(line for line in lines if line.startswith("|"))])
    made = {f"{FOLDER}/genie.md": main_page(table)}
    for name in COMMANDS:
        made[f"{FOLDER}/{name}.md"] = page_of(name, table, section_of(reference, f"genie {name}"))
    return made


def section_of(text: str, heading: str) -> str:
    """Return the text below a heading of the second level, "" without one."""
    found = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    return found[1].strip() if found else ""


def body_of(command: Any, path: str, same: str) -> list[str]:
    """Return the parts of a command of a group. `same`: link to a command with the same options, "" for none."""
    words, *paragraphs = paragraphs_of(command)
    options = [f"Arguments and options are those of {same}."] if same else options_of(command, path, 3)
    return [words, synopsis(command, path), *paragraphs, *options, *examples_of(command)]


def section(title: str, parts: list[str], level: int) -> list[str]:
    """Return the parts below a heading, nothing without parts."""
    return [f"{'#' * level} {title}", *parts] if parts else []


def paragraphs_of(command: Any) -> list[str]:
    """Return the help without its exit codes, which have a section of their own."""
    text = EXIT_CODES.sub("", command.help or "")
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def synopsis(command: Any, path: str) -> str:
    """Return the usage line."""
    context = command.context_class(command, info_name=path)
    pieces = [re.sub(r"\{(\w+)\}", r"\1", piece) for piece in command.collect_usage_pieces(context)]
    pieces = [piece if piece.startswith("[OPTIONS") else piece.upper() for piece in pieces]
    return f"```text\n{' '.join([path, *pieces])}\n```"


def options_of(command: Any, path: str, level: int) -> list[str]:
    """Return arguments and options, by panel of the help."""
    context = command.context_class(command, info_name=path)
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or (record := parameter.get_help_record(context)) is None:
            continue
        is_option = parameter.param_type_name == "option"
        panel = (getattr(parameter, "rich_help_panel", None) or "Options") if is_option else "Arguments"
        flags, words = record
        panels.setdefault(panel, []).append(option(flags if is_option else argument(flags), words))
    parts = [f":::{{program}} {path}\n:::"] if panels else []
    for panel in sorted(panels, key=lambda panel: panel != "Arguments"):
        title = panel if panel in ("Arguments", "Options") else f"{panel} options"
        parts += [f"{'#' * level} {title}", *panels[panel]]
    return parts


def option(flags: str, words: str) -> str:
    """Return one option with its text, its default and its range, and whether it is required."""
    text, limits = words, list[str]()
    while text.endswith("]") and "  [" in text:
        text, _, limit = text.rpartition("  [")
        limits.insert(0, limit[:-1])
    notes = [note for limit in limits for note in notes_of(limit)]
    return f":::{{option}} {spelled(flags)}\n{' '.join([text, *notes])}\n:::"


def notes_of(limit: str) -> list[str]:
    """Return the sentences of `default: 1; x>=1; required`; the words of a default may have semicolons too."""
    parts, notes = limit.split("; "), list[str]()
    while parts and (parts[-1] == "required" or RANGE.fullmatch(parts[-1])):
        last = parts.pop()
        notes.insert(0, "Required." if last == "required" else f"Allowed: `{last}`.")
    default = "; ".join(parts)
    return [f"{default[0].upper()}{default[1:].rstrip('.')}.", *notes] if default else notes


def argument(flags: str) -> str:
    """Return the spelling of an argument: its name alone, as in the synopsis."""
    return flags.partition(" ")[0].upper()


def spelled(flags: str) -> str:
    """Return the spelling of an option: `-n, --iterations N`, `--split, --in-turn`."""
    flags = re.sub(r"<([^<>]+)>", lambda kind: KINDS.get(kind[1], kind[1].upper()), flags.strip())
    return flags.removeprefix("/ ").replace(" / ", ", ")


def examples_of(command: Any) -> list[str]:
    """Return the examples of the help as one block of shell."""
    return [f"```sh\n{found[1].strip()}\n```" for found in EXAMPLES.finditer(command.epilog or "")]


def man_pages() -> Iterator[tuple[str, str, str, list[str], int]]:
    """Yield the man pages as Sphinx wants them: page, name, one line, authors, section of the manual."""
    yield f"{FOLDER}/genie", "genie", "test the network of a training cluster without its GPUs", [], 1
    for name, (_, _, words) in COMMANDS.items():
        yield f"{FOLDER}/{name}", f"genie-{name}", f"{words[0].lower()}{words[1:].rstrip('.')}", [], 1
