"""The folders of templates/ whose headers and sources are used as they are."""

from __future__ import annotations

_FAMILIES = (
    "attention",
    "cache",
    "elementwise",
    "gather",
    "generate",
    "images",
    "move",
    "products",
    "reduce",
    "rotary",
    "rows",
    "sampling",
)

KERNEL_FOLDERS = ("cpu/base", "cpu/math", *(f"cpu/{family}" for family in _FAMILIES))
"""The headers of kernels, which include each other by name: a folder per family of ops, and what families share."""

LIBRARY_FOLDERS = ("graph", *KERNEL_FOLDERS, "ort", "cpu/glue", "binding")
"""What a library for CPUs is made of, beside what is rendered."""

TIMER_FOLDERS = (*KERNEL_FOLDERS, "cpu/tune")
"""What the module that times products is made of, beside what is rendered and the thread pool of the binding."""
