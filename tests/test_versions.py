"""One source of the version, and lists of parts that are complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import genie

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_changelog_has_the_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "docs" / "changelog.md").read_text(), re.MULTILINE)
    assert versions[0] == genie.__version__
    assert len(set(versions)) == len(versions)


def test_the_version_is_written_once() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "genie/__init__.py"


def test_every_dependency_has_its_license_listed() -> None:
    text = (ROOT / "docs" / "third-party.md").read_text()
    listed = set(re.findall(r"^\| ([\w-]+)", text, re.MULTILINE))
    needed = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["mpich"]]
    names = {re.split(r"[>=<\[]", requirement)[0].strip() for requirement in needed}
    assert names <= listed, names - listed


def test_every_dependency_has_a_lowest_version() -> None:
    groups = [PROJECT["project"]["dependencies"], PROJECT["project"]["optional-dependencies"]["mpich"]]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+(,<\d+)?", requirement) for group in groups for requirement in group)
