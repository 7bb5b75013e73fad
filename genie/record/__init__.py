"""A run is a folder: how it is written and read, the same for both worlds. The schemas of its tables: `schemas`."""

from genie.record.folder import (
    RUN_FILES,
    RecordError,
    RecordWriteError,
    Run,
    open_run,
    prepare_folder,
    write_run,
)

__all__ = [
    "RUN_FILES",
    "RecordError",
    "RecordWriteError",
    "Run",
    "open_run",
    "prepare_folder",
    "write_run",
]
