"""The command line tool: `ortisan`, or `python -m ortisan`."""

from __future__ import annotations

from ortisan.cli.app import main

__all__ = ["main"]
