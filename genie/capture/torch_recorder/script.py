"""The user's script: running it, and the line of it that is being executed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

_SCRIPT: list[Path] = []


def run(words: list[str]) -> None:
    """Run a script with its arguments, as `python SCRIPT ARGUMENTS` would."""
    path = Path(words[0]).resolve()
    _SCRIPT[:] = [path]
    sys.argv = list(words)
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


def line_of_script() -> str:
    """Return `FILE:LINE` of the innermost frame in the script, or in a file beside it."""
    folder = _SCRIPT[0].parent if _SCRIPT else Path.cwd()
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path == (_SCRIPT[0] if _SCRIPT else None) or (path.parent == folder and "site-packages" not in path.parts):
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return _SCRIPT[0].name if _SCRIPT else "the script"
