"""Silences the libraries that the passes are built on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silences warnings about what the passes skip: the result lists it, and warnings would only alarm."""
    loggers = [logging.getLogger(name) for name in ("onnx_ir", "onnxscript", "onnx_shape_inference")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
