"""A run is a folder: how it is written and read, the same for both worlds. The schemas of its tables: `schemas`."""

from genie.record.contents import (
    BENCH,
    CALIBRATION,
    CHECK,
    LIVE,
    METRICS_FILE,
    RUN_FILES,
    TWIN,
    VALIDATION,
    launch_mark,
)
from genie.record.errors import RecordError, RecordWriteError
from genie.record.folder import prepare_folder, refuse_foreign, refuse_inputs_in, replace_own, write_run
from genie.record.hold import hold_folder, let_go_of_folders, temporary_folder
from genie.record.marks import kind_of, mark, marked_json, marked_text
from genie.record.reading import Run, open_run, read_object
from genie.record.remarks import begin_record, forget_remarks, kept_remarks, remark
from genie.record.whole import is_special, unwritable, whole_file, whole_name, write_whole

__all__ = [
    "BENCH",
    "CALIBRATION",
    "CHECK",
    "LIVE",
    "METRICS_FILE",
    "RUN_FILES",
    "TWIN",
    "VALIDATION",
    "RecordError",
    "RecordWriteError",
    "Run",
    "begin_record",
    "forget_remarks",
    "hold_folder",
    "is_special",
    "kept_remarks",
    "kind_of",
    "launch_mark",
    "let_go_of_folders",
    "mark",
    "marked_json",
    "marked_text",
    "open_run",
    "prepare_folder",
    "read_object",
    "refuse_foreign",
    "refuse_inputs_in",
    "remark",
    "replace_own",
    "temporary_folder",
    "unwritable",
    "whole_file",
    "whole_name",
    "write_run",
    "write_whole",
]
