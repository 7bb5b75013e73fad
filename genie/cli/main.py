"""`genie`: the command line's entry, where every expected error becomes one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from genie.cli.exits import signal_in_words, text_of
from genie.errors import EXIT_ENVIRONMENT, EXIT_FAULT, EXIT_USAGE, exit_code_of, import_problem
from genie.inputs.fault import fault_line, install_thread_handler, memory_line
from genie.inputs.printable import safe_streams
from genie.invocation import chosen, set_command
from genie.live.launched import ENDING_SIGNALS, launched_by, speaks

BEFORE, AFTER, WITHOUT = "Test a network", "Simulate", "Files and results"
# Command -> its module below genie.cli, its panel, and its help in one line. Running it imports the module.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("demo", BEFORE, "Validate a small training step on this machine: without a fault, and with a slow NIC."),
    "validate": (
        "validate",
        BEFORE,
        "Play a workload on the real network and in the twin, and report the differences.",
    ),
    "check": ("check", BEFORE, "Find faults of the network between hosts before a job, each with a remedy."),
    "run": ("run", BEFORE, "Play a workload on the real network: one process for each rank, with real RDMA traffic."),
    "bench": (
        "bench.collective",
        BEFORE,
        "Measure collectives and paths, and print the tables of nccl-tests and perftest.",
    ),
    "calibrate": ("calibrate", BEFORE, "Measure the latency of the hosts, and store it in the hosts file."),
    "lab": ("lab", BEFORE, "Build the network of a fabric file on this machine, from network namespaces."),
    "doctor": ("doctor", BEFORE, "Check whether live runs can work on this machine, and say what to install."),
    "simulate": ("simulate", AFTER, "Play a workload in the twin, packet by packet or at a coarser level."),
    "sweep": ("sweep", AFTER, "Simulate each combination of a grid of parameters, on all cores or under mpiexec."),
    "diff": ("diff", WITHOUT, "Compare a live run with a simulated run, and name the component to blame."),
    "compare": ("history.compare", WITHOUT, "Compare runs of one workload, and say what became slower."),
    "runs": (
        "history.runs",
        WITHOUT,
        "List the runs of a folder, and mark those at which a job became slower.",
    ),
    "generate": (
        "workload.generate",
        AFTER,
        "Generate the workload of a training job from a model's configuration, for any number of GPUs.",
    ),
    "capture": (
        "workload.capture",
        AFTER,
        "Capture the workload of a PyTorch script on a CPU, for any number of ranks.",
    ),
    "extrapolate": (
        "workload.extrapolate",
        AFTER,
        "Make a job of many GPUs out of one GPU's trace of a training step.",
    ),
    "inspect": ("inspect", WITHOUT, "Report the contents of a workload, its critical path and its errors."),
    "expand": ("workload.expand", WITHOUT, "Write one trace for each rank of a workload whose ranks share traces."),
    "convert": (
        "convert.command",
        WITHOUT,
        "Convert traces, experiments, algorithms and fabrics of other tools into files of Genie.",
    ),
    "schema": ("results.schema", WITHOUT, "Print the JSON Schema of a JSON file that Genie writes."),
    "metrics": ("results.metrics", WITHOUT, "Write the results of a run or of a verdict as metrics for Prometheus."),
}
_HELP = {"--help", "-h"}


class LazyCommands(TyperGroup):
    """The commands of `genie`. A module is imported when its command runs; listing the commands imports none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder with the name, panel and help of a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        _, panel, text = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, help=text, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command to run, imported from its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if command is not None and name is not None else command, rest


@cache
def load_command(name: str) -> Any:
    """Import and return the command of this name."""
    from genie.cli.guard import guard

    part = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    import_module(f"genie.cli.{COMMANDS[name][0]}").register(part)
    guard(part)
    return typer.main.get_group(part).commands[name]


app = typer.Typer(
    name="genie",
    cls=LazyCommands,
    help="Test the network of a training cluster without its GPUs. Genie sends real RDMA traffic, simulates the same "
    "traffic in a twin, and explains the differences.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from genie.plan.facts import facts_of_build

        facts = facts_of_build()
        version = facts["versions"].get("genie-fabric", "(not installed)")
        commit = f", commit {facts['commit']}" if facts["commit"] else ""
        print(f"genie {version}, native core {facts['native']}, Python {facts['versions']['python']}{commit}")
        raise typer.Exit


@app.callback()
def genie(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version of Genie and the build of its native core.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only results and errors: no progress, no notes, no warnings.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print the mpirun command line that starts the ranks.")
    ] = False,
    read_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size limit of one trace, after decompression: bytes, or a number with KiB, MiB, GiB or TiB. The "
            "environment variable `GENIE_READ_LIMIT` sets it too.  [default: 1GiB; 256MiB for JSON traces of PyTorch]",
        ),
    ] = None,
) -> None:
    """Handle the options of genie itself. Ranks and workers inherit the read limit through the environment."""
    context.call_on_close(chosen(quiet=quiet, verbose=verbose))
    if read_limit is not None:
        from genie.cli.doctor import limited

        context.call_on_close(limited(read_limit))


class Interrupted(BaseException):
    """A signal that ends the command. The command-line library would swallow a KeyboardInterrupt silently."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    """Run the command; an error is one line and an exit code, never a traceback."""
    install_thread_handler()
    given = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    if _HELP & set(given) or len(sys.argv) < 3:
        _run()  # the help has colours on a terminal, and no text from files
    else:
        with safe_streams():
            _run()


def _run() -> NoReturn:
    # A rank that waits in MPI can react to Ctrl-C only.
    numbers = ENDING_SIGNALS if launched_by() is None else (signal.SIGINT,)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):  # unless the shell ignores it
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    with suppress(OSError):  # the working directory may have been removed
        set_command(sys.argv[1:])
    if (warnings := sys.modules.get("genie.record.warnings")) is not None:
        warnings.forget_warnings()  # of an earlier command in the same process
    try:
        code = app(standalone_mode=False)
        _flush_output()
        sys.exit(code if isinstance(code, int) else 0)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except typer.TyperException as error:
        text = " ".join(error.format_message().split())  # empty when the help has been printed
        context = getattr(error, "ctx", None)
        if text.startswith("Missing") and context is not None:
            text += f" `{context.command_path} --help` shows examples."
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
    except ImportError as error:
        _say(import_problem(error))
        sys.exit(EXIT_ENVIRONMENT)
    except BaseException as error:  # a panic of polars is not an Exception
        _end_with(error)
    finally:
        if (lock := sys.modules.get("genie.record.lock")) is not None:
            lock.unlock_folders()
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
    """Flush standard output. Raises OSError: a full disk behind it is an error like any other."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):
            raise
        raise OSError(error.errno, error.strerror, "standard output") from error


def _drop_output() -> None:
    """Send pending output to /dev/null: at exit Python would try to write it again, and complain."""
    with suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.__stdout__.fileno())  # type: ignore[union-attr]
        os.close(nothing)


def _say(text: str) -> None:
    with suppress(OSError):  # standard error may be on a full disk too
        print(f"genie: {text}", file=sys.stderr, flush=True)


def _interrupt(number: int, _frame: object) -> None:
    raise Interrupted(number)


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Raise again, 10 ms later, a signal that fell into a destructor, where Python drops exceptions."""
    if not isinstance(dropped.exc_value, Interrupted):
        sys.__unraisablehook__(dropped)
        return
    number = dropped.exc_value.number
    signal.signal(signal.SIGALRM, lambda *_: _interrupt(number, None))
    signal.setitimer(signal.ITIMER_REAL, 0.01)


def _leave(number: int) -> NoReturn:
    """Exit with the code that shells give to a signal: 128 plus its number."""
    print(f"genie: {signal_in_words(number)}", file=sys.stderr)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
