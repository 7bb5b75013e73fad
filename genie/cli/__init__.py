"""The command line: parses arguments, calls the rooms, prints. No other room imports it."""

from __future__ import annotations

import sys


def entry() -> None:
    """Run the `genie` command. Its imports take a moment, in which Ctrl-C may come."""
    try:
        from genie.cli.main import main
    except KeyboardInterrupt:
        print("genie: interrupted", file=sys.stderr)
        sys.exit(130)
    except ImportError as error:
        from genie.errors import import_problem

        print(f"genie: {import_problem(error)}", file=sys.stderr)
        sys.exit(3)
    main()
