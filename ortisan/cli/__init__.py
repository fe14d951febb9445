"""The command line tool: `ortisan`, or `python -m ortisan`."""

from __future__ import annotations

import sys

from ortisan.cli.interrupts import handle_signals
from ortisan.errors import needs_compiler


def main() -> int:
    """Runs the tool on the process' arguments; the exit code is 0, 1 (an error), 2 (bad usage), 130 (interrupted)."""
    handle_signals()
    try:
        from ortisan.cli.app import run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: {needs_compiler('the command line tool', error)}\n")
        return 1
    return run()
