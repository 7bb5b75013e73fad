"""The command line: parses arguments, calls the rooms, prints; nothing imports it."""

from __future__ import annotations

import sys


def entry() -> None:
    """The `genie` command: what is imported for it takes a moment, in which one may be interrupted."""
    try:
        from genie.cli.main import main
    except KeyboardInterrupt:
        print("genie: interrupted", file=sys.stderr)
        sys.exit(130)
    except ImportError as error:  # of code that was not built, or built from another version
        hint = "" if "does not match" in str(error) else ": run pip install . in the checkout, or make build"
        print(f"genie: {error}{hint}", file=sys.stderr)
        sys.exit(3)
    main()
