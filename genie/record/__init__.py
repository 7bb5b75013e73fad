"""A run is a folder: how it is written and read, the same for both worlds. The schemas of its tables: `schemas`."""

from genie.record.errors import RecordError, RecordWriteError
from genie.record.folder import RUN_FILES, Run, open_run, prepare_folder, write_run
from genie.record.hold import hold_folder, let_go_of_folders, temporary_folder
from genie.record.remarks import begin_record, forget_remarks, kept_remarks, remark
from genie.record.whole import unwritable, whole_name, write_whole

__all__ = [
    "RUN_FILES",
    "RecordError",
    "RecordWriteError",
    "Run",
    "begin_record",
    "forget_remarks",
    "hold_folder",
    "kept_remarks",
    "let_go_of_folders",
    "open_run",
    "prepare_folder",
    "remark",
    "temporary_folder",
    "unwritable",
    "whole_name",
    "write_run",
    "write_whole",
]
