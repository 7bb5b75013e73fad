"""Exit codes of every command."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_FAULT = 0, 1, 2, 3, 4, 70
