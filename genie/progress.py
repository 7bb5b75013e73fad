"""Progress of long work on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

from genie.inputs.printable import one_line
from genie.invocation import is_quiet

if TYPE_CHECKING:
    from rich.progress import BarColumn, Progress

BAR_MIN, BAR_MAX = 5, 24  # columns


class Display:
    """The only place where progress is shown.

    `logs`: whether a file or a pipe gets a line for each update; `file`: standard error by default.
    """

    def __init__(self, *, logs: bool = True, file: Any = None) -> None:
        self._logs = logs
        file = sys.stderr if file is None else file
        self._file = getattr(file, "unescaped", file)  # the bar is made of control sequences
        self._bar: Progress | None = None
        self._column: BarColumn

    @property
    def is_terminal(self) -> bool:
        """Whether updates change a line in place."""
        return bool(self._file.isatty())

    def update(self, text: str, share: float | None = None) -> None:
        """Show the state of the work. `share`: the part that is done, 0 to 1; None where it is unknown."""
        if is_quiet():
            return
        text = one_line(text)
        if self.is_terminal:
            self._on_terminal(text, share)
        elif self._logs:
            print(f"genie: {text}", file=self._file, flush=True)

    def end(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _on_terminal(self, text: str, share: float | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        if self._bar is None:
            # Other text on standard error goes above the bar; standard output may be a pipe.
            self._column = BarColumn(bar_width=BAR_MIN)
            self._bar = Progress(
                self._column,
                TextColumn("{task.description}", markup=False),
                console=Console(file=self._file),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
            )
            self._bar.add_task(text, total=None)
            self._bar.start()
        width = self._bar.console.width
        text = text[: width - BAR_MIN - 2]
        self._column.bar_width = max(BAR_MIN, min(BAR_MAX, width - len(text) - 2))
        done = {"total": 1.0, "completed": share} if share is not None else {"total": None, "completed": 0.0}
        self._bar.update(self._bar.tasks[0].id, description=text, refresh=True, **done)
