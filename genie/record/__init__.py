"""A run is a folder: the schema of its tables and how they are written and read, the same for both worlds."""

from genie.record.folder import (
    TIMELINE_SCHEMA,
    TRANSFERS_SCHEMA,
    RecordError,
    Run,
    open_run,
    prepare_folder,
    write_run,
)

__all__ = [
    "TIMELINE_SCHEMA",
    "TRANSFERS_SCHEMA",
    "RecordError",
    "Run",
    "open_run",
    "prepare_folder",
    "write_run",
]
