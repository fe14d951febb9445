"""Exporters talk and warn a lot."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any


@contextlib.contextmanager
def quiet() -> Any:
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
