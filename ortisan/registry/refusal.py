"""The exception for ONNX nodes that can't be lowered."""

from __future__ import annotations


class Refused(Exception):
    """An ONNX node can't be lowered. The text is the reason a person reads in `ortisan inspect`."""
