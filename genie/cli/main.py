"""`genie`: the command line's entry, and where every expected error becomes one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import typer

from genie.cli import (
    checking,
    compare,
    inspecting,
    lab_commands,
    live_commands,
    machine,
    metrics,
    sweeping,
    twin_commands,
)
from genie.cli.bench import collective as benching
from genie.cli.exits import exit_code_of, signal_in_words, text_of
from genie.cli.guard import guard
from genie.errors import EXIT_ENVIRONMENT, EXIT_FAULT, EXIT_USAGE
from genie.inputs.fault import fault_line, install_thread_handler, memory_line
from genie.inputs.printable import safe_streams
from genie.live.parts import ENDING_SIGNALS
from genie.live.rendezvous.meeting import launched_by, speaks
from genie.record import forget_warnings, unlock_folders

app = typer.Typer(
    name="genie",
    help="Test the network of a training cluster without its GPUs: real RDMA traffic, a packet-level twin, and the "
    "difference explained.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for room in (
    live_commands,
    twin_commands,
    compare,
    benching,
    inspecting,
    lab_commands,
    machine,
    metrics,
    checking,
    sweeping,
):
    room.register(app)
guard(app)


_HELP = {"--help", "-h"}


class Interrupted(BaseException):
    """A signal that ends the command. Not KeyboardInterrupt, which the command line's library ends without a word."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command; an error is one line and an exit code, never a traceback."""
    install_thread_handler()
    forget_warnings()
    given = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if _HELP & set(given) or len(sys.argv) < 3:
        _run()  # the help has colours on a terminal, and nothing of a file
    else:
        with safe_streams():
            _run()


def _run() -> NoReturn:
    # A rank that waits in MPI could not heed more than Ctrl-C.
    numbers = ENDING_SIGNALS if launched_by() is None else (signal.SIGINT,)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):  # not when a shell has it ignored
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    try:
        code = app(standalone_mode=False)
        _flush_output()
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except typer.TyperException as error:
        text = " ".join(error.format_message().split())  # none when it has printed the help
        if text and speaks():
            print(f"genie: {text}", file=sys.stderr)
        sys.exit(EXIT_USAGE)
    except Interrupted as told:
        _leave(told.number)
    except (KeyboardInterrupt, typer.Abort):
        _leave(signal.SIGINT)
    except BrokenPipeError:
        _drop_output()
        sys.exit(0)
    except MemoryError:
        _say(memory_line())
        sys.exit(EXIT_ENVIRONMENT)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of polars is not an Exception
        _end_with(error)
    finally:
        unlock_folders()
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_with(error: BaseException) -> NoReturn:
    code = exit_code_of(error)
    if code is None:
        _say(fault_line(error))
        sys.exit(EXIT_FAULT)
    if code != EXIT_USAGE or speaks():
        _say(text_of(error))
    sys.exit(code)


def _flush_output() -> None:
    """A full disk behind standard output is an error like any other."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):
            raise
        raise OSError(error.errno, error.strerror, "standard output") from error


def _drop_output() -> None:
    """Send pending output to /dev/null: at its end Python would try to write it again, and complain."""
    with suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.__stdout__.fileno())  # type: ignore[union-attr]
        os.close(nothing)


def _say(text: str) -> None:
    with suppress(OSError):  # a full disk behind standard error, too
        print(f"genie: {text}", file=sys.stderr, flush=True)


def _interrupt(number: int, _frame: object) -> None:
    raise Interrupted(number)


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """A signal that fell into a destructor, where Python drops what is raised, comes again a little later."""
    if not isinstance(dropped.exc_value, Interrupted):
        sys.__unraisablehook__(dropped)
        return
    number = dropped.exc_value.number
    signal.signal(signal.SIGALRM, lambda *_: _interrupt(number, None))
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def _leave(number: int) -> NoReturn:
    """As shells say it."""
    print(f"genie: {signal_in_words(number)}", file=sys.stderr)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
