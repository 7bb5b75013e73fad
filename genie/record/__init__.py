"""A run is a folder: the schema of its tables and how they are written and read, the same for both worlds."""

from genie.record.folder import (
    PATHS_SCHEMA,
    RUN_FILES,
    TIMELINE_SCHEMA,
    TRANSFERS_SCHEMA,
    RecordError,
    RecordWriteError,
    Run,
    open_run,
    prepare_folder,
    write_run,
)

__all__ = [
    "PATHS_SCHEMA",
    "RUN_FILES",
    "TIMELINE_SCHEMA",
    "TRANSFERS_SCHEMA",
    "RecordError",
    "RecordWriteError",
    "Run",
    "open_run",
    "prepare_folder",
    "write_run",
]
