"""What each PTX instruction is to the machine: a handler, its operands, and bits that tell it more."""

from ortisan.emulator.forms import arithmetic, bits, control, convert, floats, matrix, memory, warp
from ortisan.emulator.forms.form import FORMS, Emitted, lower

__all__ = [
    "FORMS",
    "Emitted",
    "arithmetic",
    "bits",
    "control",
    "convert",
    "floats",
    "lower",
    "matrix",
    "memory",
    "warp",
]
