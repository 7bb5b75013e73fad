"""pyverbs, if available: installed for this Python, or the distribution's package for the same Python version."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

DISTRIBUTION = Path("/usr/lib/python3/dist-packages")
MODULES = ("addr", "cq", "device", "enums", "mr", "pd", "pyverbs_error", "qp", "wr")


class LibraryMissingError(Exception):
    """pyverbs cannot be loaded: a phrase that says why and what to do."""


class Pyverbs:
    """pyverbs' modules by name. Loaded by name, because Genie does not install pyverbs."""

    def __init__(self) -> None:
        package = _package()
        try:
            for name in MODULES:
                setattr(self, name, importlib.import_module(f"{package.__name__}.{name}"))
        except ImportError as error:  # for example when libibverbs.so.1 is missing
            raise LibraryMissingError(f"pyverbs cannot be loaded: {error}; apt install python3-pyverbs") from error

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _package(folder: Path = DISTRIBUTION) -> ModuleType:
    name = "pyverbs"
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    if not (folder / name / "__init__.py").exists():
        raise LibraryMissingError("pyverbs is not installed (apt install python3-pyverbs)")
    suffix = next(iter(importlib.machinery.EXTENSION_SUFFIXES))
    if not (folder / name / f"device{suffix}").exists():
        built = sorted(path.name.split(".", 1)[1] for path in (folder / name).glob("device.*.so"))
        raise LibraryMissingError(
            f"{folder / name} is built for another Python ({', '.join(built) or 'none'}) than this one ({suffix}): "
            "start Genie with the distribution's Python"
        )
    # Only this package: the folder holds other packages of the distribution, which must not shadow this Python's.
    spec = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    if spec is None or spec.loader is None:
        raise LibraryMissingError(f"{folder / name} is not a package: apt install --reinstall python3-pyverbs")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
