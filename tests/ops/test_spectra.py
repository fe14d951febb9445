"""DFT and STFT, which are products with a matrix and convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import BLOCK, WIDE


def _stft(name: str, samples: int, step: int, size: int, *, batch: int = 2, rank: int = 3, **more: object) -> Case:
    """`window` and `length` say which of both are given."""
    window, length = more.pop("window", True), more.pop("length", True)
    signal = values(*((batch, samples, 1) if rank == 3 else (batch, samples)))
    inputs = {
        "signal": signal,
        "step": np.array(step, np.int64),
        "window": np.hanning(size + 2)[1:-1].astype(np.float32) if window else None,
        "length": np.array(size, np.int64) if length else None,
    }
    tolerance = BLOCK if size < 512 else WIDE  # sums of hundreds of terms that cancel
    return Case(name, "STFT", inputs, more, ("step", "window", "length"), tolerance=tolerance)  # type: ignore[arg-type]


def _dft(name: str, shape: tuple[int, ...], axis: int, opset: int = 20, **attributes: int) -> Case:
    inputs = {"x": values(*shape), "length": None, "axis": np.array(axis, np.int64)}
    if opset < 20:
        inputs, attributes = {"x": inputs["x"]}, {**attributes, "axis": axis}
    return Case(name, "DFT", inputs, attributes, ("axis",), dynamic=False, opset=opset, tolerance=BLOCK)  # type: ignore[arg-type]


CASES = [_stft(f"frames_of_{size}_by_{step}", 700, step, size) for size in (1, 2, 16, 64, 512) for step in (1, 13, 160)]
CASES += [
    _stft("both_sides", 100, 10, 32, onesided=0),
    _stft("no_window", 100, 7, 16, window=False),
    _stft("no_length", 100, 7, 16, length=False),
    _stft("one_frame", 64, 5, 64),
    _stft("one_signal", 333, 16, 32, batch=1),
    _stft("no_signal", 100, 10, 32, batch=0),
]
CASES += [_dft(f"real_{size}", (3, size, 1), -2, onesided=1) for size in (1, 2, 8, 64, 128)]
CASES += [_dft(f"both_sides_{size}", (2, size, 1), 1) for size in (4, 16)]
CASES += [
    _dft(f"complex_{size}_{inverse}", (2, size, 2), 1, inverse=inverse) for size in (1, 8, 32) for inverse in (0, 1)
]
CASES += [_dft(f"axis_{axis}", (4, 8, 16, 2), axis) for axis in (0, 1, 2, -3)]
CASES += [
    _dft("opset_17", (2, 16, 1), 1, opset=17, onesided=1),
    _dft("opset_17_inverse", (2, 16, 2), 1, opset=17, inverse=1),
]


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_spectra(case: Case, batch) -> None:
    batch(CASES).check(case)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (_stft("long", 9000, 100, 4096), "powers of two up to 2048, not for 4096"),
        (_stft("no_power_of_two", 900, 160, 400), "powers of two up to 2048, not for 400"),
        (Case("computed_step", "STFT", {"signal": values(1, 9, 1), "step": np.array(2), "window": np.ones(4, np.float32)}, {}, ("window",)), "the step of STFT is computed"),
        (Case("computed_window", "STFT", {"signal": values(1, 9, 1), "step": np.array(2), "window": np.ones(4, np.float32)}, {}, ("step",)), "a constant window"),
        (Case("complex", "STFT", {"signal": values(1, 9, 2), "step": np.array(2), "window": np.ones(4, np.float32)}, {"onesided": 0}, ("step", "window")), "real signals"),
        (Case("padded", "DFT", {"x": values(1, 9, 1), "length": np.array(16)}, {}, ("length",), dynamic=False), "the whole of an axis"),
        (Case("dynamic", "DFT", {"x": values(1, 9, 1)}, {}), "of known length"),
        (_dft("half_of_complex", (1, 8, 2), 1, onesided=1), "one side is supported for real inputs"),
    ],
    ids=lambda each: str(each) if isinstance(each, Case) else "",
)  # fmt: skip
def test_what_is_refused(case: Case, reason: str) -> None:
    refused(case, reason)
