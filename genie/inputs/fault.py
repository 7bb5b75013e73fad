"""The last handler: a fault of Genie becomes one line, and its traceback a file that the line names."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from genie.inputs.printable import printable

WORDS_MAX = 300  # of the error itself, in the line


def memory_limit_kib() -> int | None:
    """The limit that `ulimit -v` shows in this process; None where there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit // 1024


def memory_advice() -> str:
    """Advice for when memory is too small."""
    limit = memory_limit_kib()
    if limit is None:
        return "give a smaller input, fewer ranks on this machine, or more memory"
    return f"ulimit -v is {limit} KiB here, raise it (ulimit -v unlimited)"


def memory_line() -> str:
    """The line about memory that ran out."""
    return f"memory ran out: {memory_advice()}"


def fault_line(error: BaseException) -> str:
    """The line about a fault of Genie. Writes the traceback to a file here, or else in the temporary folder."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    words = printable(" ".join(_words(error).split()))
    words = words if len(words) <= WORDS_MAX else f"{words[:WORDS_MAX]}..."
    text = "".join(traceback.format_exception(error)).encode("utf-8", "backslashreplace")
    kept = keep_traceback(text)
    return (
        f"this is a fault of Genie: {type(error).__name__}{where}: {words}; {kept}; please report it with the command "
        "and its input"
    )


def keep_traceback(text: bytes) -> str:
    """Write a traceback to the first place that takes it; says where it is, or that it could not be written."""
    name = f"genie-fault-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (_here, tempfile.gettempdir):
        try:
            path = Path(folder()) / name
            with path.open("ab") as file:  # of several faults of a process, all
                file.write(text)
        except OSError:
            continue
        return f"its traceback is in {printable(path)}"
    return "its traceback could not be written"


def install_thread_handler() -> None:
    """A thread that fails says so in the same line."""
    threading.excepthook = _of_thread


def _of_thread(given: threading.ExceptHookArgs) -> None:
    if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
        print(f"genie: {fault_line(given.exc_value)}", file=sys.stderr, flush=True)


def _here() -> str:
    return os.getcwd()


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error whose own words fail
        return "no words"
