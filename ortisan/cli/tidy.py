"""What happens when a command fails."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ortisan.cli.screen import show_error
from ortisan.errors import OrtisanError

INTERRUPTED = 130

P = ParamSpec("P")
R = TypeVar("R")


def tidy(command: Callable[P, R]) -> Callable[P, R]:
    """Errors become one message and exit code 1; an interrupt becomes exit code 130."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except OrtisanError as error:
            show_error(str(error))
            raise SystemExit(1) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            show_error(f"{error.filename or 'the output'} can't be written or read: {error.strerror or error}")
            raise SystemExit(1) from error
        except KeyboardInterrupt as error:
            show_error("interrupted; nothing was left behind")
            raise SystemExit(INTERRUPTED) from error

    return run
