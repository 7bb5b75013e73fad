"""`genie`: the command line's entry, and where every expected error becomes one line and an exit code."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

import typer

from genie.cli import (
    benching,
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
from genie.cli.exits import exit_code_of, signal_in_words, text_of
from genie.live.endings import ENDING_SIGNALS, EXIT_USAGE
from genie.live.rendezvous import launched_by, speaks
from genie.record import forget_remarks, let_go_of_folders

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


class Interrupted(BaseException):
    """A signal that ends the command. Not KeyboardInterrupt, which the command line's library ends without a word."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command; never a traceback for an expected error."""
    forget_remarks()
    # A rank that waits in MPI could not heed more than Ctrl-C.
    numbers = ENDING_SIGNALS if launched_by() is None else (signal.SIGINT,)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):  # not when a shell has it ignored
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    try:
        code = app(standalone_mode=False)
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
        sys.exit(0)
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        if code != EXIT_USAGE or speaks():
            print(f"genie: {text_of(error)}", file=sys.stderr)
        sys.exit(code)
    finally:
        let_go_of_folders()
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


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
