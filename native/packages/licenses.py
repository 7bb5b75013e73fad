"""Write the licenses and versions of what the native module contains: `licenses.py FOLDER [TEXT_OF_LIBCXX]`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path


def main(folder: Path, others: list[str]) -> None:
    """Take the text of nanobind's package, and the first comment of robin-map's header inside it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {str(each): Path(str(each.locate())) for each in metadata.files("nanobind") or []}
    (own,) = (path for name, path in files.items() if name.endswith("licenses/LICENSE"))
    shutil.copyfile(own, folder / "nanobind.txt")
    (header,) = (path for name, path in files.items() if name.endswith("robin_map.h"))
    comment = re.match(r"\s*/\*\*(.*?)\*/", header.read_text(), re.DOTALL)
    assert comment is not None, f"{header} begins without its license"
    assert "MIT" in comment[1], f"the license of {header} has changed"
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment[1].strip("\n").splitlines()]
    (folder / "robin-map.txt").write_text("\n".join(lines).strip() + "\n")
    (policy,) = (path for name, path in files.items() if name.endswith("robin_growth_policy.h"))
    numbers = re.findall(r"#define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", policy.read_text())
    assert len(numbers) == 3, f"{policy} has no version"
    versions = {"nanobind": metadata.version("nanobind"), "robin-map": ".".join(numbers)}
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
    for name in others:
        shutil.copyfile(name, folder / "libcxx.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
