"""The last handler: an internal error becomes one line that names a file with the traceback."""

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

WORDS_MAX = 300  # of the error's own text, in the line


def memory_limit_kib() -> int | None:
    """Memory limit of this process in KiB (`ulimit -v`); None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit // 1024


def memory_advice() -> str:
    """Advice for a shortage of memory."""
    limit = memory_limit_kib()
    if limit is None:
        return "give a smaller input, fewer ranks on this machine, or more memory"
    return f"ulimit -v is {limit} KiB here, raise it (ulimit -v unlimited)"


def memory_line() -> str:
    """The line for a command that ran out of memory."""
    return f"memory ran out: {memory_advice()}"


def fault_line(error: BaseException) -> str:
    """The line for an internal error. Writes the traceback to a file here, or else in the temporary folder."""
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
    """Write a traceback to the first place that takes it; return a phrase that names the file or says that none was
    written.
    """
    name = f"genie-fault-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (_here, tempfile.gettempdir):
        try:
            path = Path(folder()) / name
            with path.open("ab") as file:  # several faults of a process share a file
                file.write(text)
        except OSError:
            continue
        return f"its traceback is in {printable(path)}"
    return "its traceback could not be written"


def install_thread_handler() -> None:
    """Report an error in a thread with the same line."""
    threading.excepthook = _of_thread


def _of_thread(given: threading.ExceptHookArgs) -> None:
    if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
        print(f"genie: {fault_line(given.exc_value)}", file=sys.stderr, flush=True)


def _here() -> str:
    return os.getcwd()


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the error's own text cannot be made
        return "no words"
