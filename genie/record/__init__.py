"""Run folders: writing and reading them, for both worlds. `schemas` has the columns of their tables."""

from genie.record.atomic_write import atomic_file, final_name, is_special, unwritable, write_atomically
from genie.record.contents import (
    BENCH,
    CALIBRATION,
    CHECK,
    COLLECTIVES,
    COLLECTIVES_FILE,
    EXPECTED,
    JUNIT_KIND,
    LIMITS,
    LIMITS_FILE,
    LIVE,
    METRICS_FILE,
    PROBE,
    RUN_FILES,
    TWIN,
    VALIDATION,
    launch_mark,
)
from genie.record.errors import RecordError, RecordWriteError
from genie.record.folder import prepare_folder, refuse_foreign, refuse_inputs_in, replace_own, write_run
from genie.record.lock import lock_folder, temporary_folder, unlock_folders
from genie.record.marks import kind_of, mark, marked_json, marked_text
from genie.record.reading import Run, open_run, read_object
from genie.record.warnings import begin_record, forget_warnings, kept_warnings, warn, warn_of_old_name

__all__ = [
    "BENCH",
    "CALIBRATION",
    "CHECK",
    "COLLECTIVES",
    "COLLECTIVES_FILE",
    "EXPECTED",
    "JUNIT_KIND",
    "LIMITS",
    "LIMITS_FILE",
    "LIVE",
    "METRICS_FILE",
    "PROBE",
    "RUN_FILES",
    "TWIN",
    "VALIDATION",
    "RecordError",
    "RecordWriteError",
    "Run",
    "atomic_file",
    "begin_record",
    "final_name",
    "forget_warnings",
    "is_special",
    "kept_warnings",
    "kind_of",
    "launch_mark",
    "lock_folder",
    "mark",
    "marked_json",
    "marked_text",
    "open_run",
    "prepare_folder",
    "read_object",
    "refuse_foreign",
    "refuse_inputs_in",
    "replace_own",
    "temporary_folder",
    "unlock_folders",
    "unwritable",
    "warn",
    "warn_of_old_name",
    "write_atomically",
    "write_run",
]
