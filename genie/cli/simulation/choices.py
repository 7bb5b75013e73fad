"""Options of `genie simulate` that are checked together, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from genie.config.units import parse_size
from genie.errors import UsageError
from genie.job.levels import level_of
from genie.job.options import TwinOptions
from simtwin.levels.names import Level
from simtwin.play.series import SAMPLED_LEVELS, simulated_time

SKIP_ERROR_MAX = 10  # percent
SKIP_MEMORY = "1GiB"
UNLIMITED_BYTES = 1 << 62  # more than any machine has


@dataclass(frozen=True)
class Choices:
    """Choices of a simulation that agree with each other.

    `series_ps`: interval of samples. `stop_after_ps`: simulated time of an iteration. Both are None if not given.
    `skip_error`: a share, 0 for no estimates.
    """

    level: Level
    series_ps: int | None
    stop_after_ps: int | None
    band: bool
    verify_skip: bool
    skip_memory_bytes: int
    skip_error: float

    def option_without_episodes(self, threads: int) -> str:
        """Return an option with which a simulation plays no episodes; "" for none."""
        options = {
            "--skip-error": self.skip_error > 0,
            "--series": self.series_ps is not None,
            "--stop-after": self.stop_after_ps is not None,
            f"--threads {threads}": threads > 1,
        }
        return next((option for option, is_given in options.items() if is_given), "")


def checked_choices(
    simulated: TwinOptions,
    out: Path,
    *,
    iterations: int | None,
    follow: Path | None,
    series: str | None,
    stop_after: str | None,
    band: bool,
    verify_skip: bool,
    skip_memory: str | None,
    skip_error: str,
) -> Choices:
    """Return the choices of the options, all as given on the command line.

    Raises UsageError where a value is wrong, where two options exclude each other, and where the level lacks an option.
    """
    level = level_of(simulated)
    series_ps = time_option("--series", "10us", series, level.name)
    stop_after_ps = time_option("--stop-after", "5ms", stop_after, level.name)
    if follow is not None and iterations is not None:
        raise UsageError("--iterations: a followed run has its own number of iterations; leave one of the two out")
    if follow is not None and out.resolve() in (follow.resolve(), *follow.resolve().parents):
        raise UsageError(f"-o {out}: holds the run to follow, which would be replaced; choose another -o")
    memory_bytes, error = _memory_of(SKIP_MEMORY if skip_memory is None else skip_memory), _error_of(skip_error)
    if skip_memory is not None and not level.skips:
        raise UsageError(f"--skip-memory: level {level.name} skips nothing; give --level packet+skip")
    if error and not level.skips:
        raise UsageError(f"--skip-error: level {level.name} skips nothing; give --level packet+skip")
    if error and series is not None:
        raise UsageError("--skip-error: samples of --series would end each estimate; leave one of the two out")
    if error and verify_skip:
        raise UsageError("--verify-skip: estimates differ from level packet; leave --skip-error out")
    if verify_skip and not level.skips:
        raise UsageError(f"--verify-skip: level {level.name} skips nothing; give --level packet+skip")
    if verify_skip and stop_after is not None:
        raise UsageError("--verify-skip: compares whole iterations; leave --stop-after out")
    if band and (follow is not None or stop_after is not None):
        other = "--stop-after" if follow is None else "--follow"
        raise UsageError(f"--band: {other} fixes times of the iteration; leave one of the two out")
    return Choices(level, series_ps, stop_after_ps, band, verify_skip, memory_bytes, error)


def time_option(option: str, example: str, text: str | None, level: str) -> int | None:
    """Return an option's time in ps, above 0 and a whole number of ns; None if not given. Raises UsageError."""
    if text is None:
        return None
    if level not in SAMPLED_LEVELS:
        raise UsageError(
            f"{option}: level {level} has no queues to sample and no packets to stop at: give --level packet+skip"
        )
    try:
        return simulated_time(text, example)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


def _memory_of(text: str) -> int:
    """Return the bytes of --skip-memory; unlimited: more than any machine has."""
    try:
        size_bytes = int(parse_size(text))
    except ValueError as problem:
        raise UsageError(
            f"--skip-memory {text}: {problem}: give a size above 0, such as 500MiB, or unlimited"
        ) from None
    return UNLIMITED_BYTES if size_bytes < 0 else size_bytes


def _error_of(text: str) -> float:
    """Return --skip-error as a share."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= SKIP_ERROR_MAX:
        raise UsageError(f"--skip-error {text}: must be a percentage from 0 to {SKIP_ERROR_MAX}, such as 1%")
    return percent / 100
