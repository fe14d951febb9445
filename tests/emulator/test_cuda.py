"""CUDA kernels by way of nvcc's PTX."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ortisan.codegen.tools.cuda import find_cuda
from ortisan.emulator import Device
from ortisan.errors import EmulationError

pytestmark = [pytest.mark.build, pytest.mark.nvcc]

SOURCE = Path(__file__).parent / "kernels.cu"
_RANDOM = np.random.default_rng(1)


@pytest.fixture(scope="module")
def cuda(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Device:
    out = tmp_path_factory.mktemp("ptx") / "kernels.ptx"
    command = [str(find_cuda().nvcc), "-ptx", "-lineinfo", "-arch=compute_80", "-o", str(out), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    device.load(out.read_text())
    return device


def test_elementwise(cuda: Device) -> None:
    x, y = _RANDOM.standard_normal(1000).astype("f4"), np.zeros(1000, "f4")
    cuda.launch("scale", (8,), (128,), x, y, np.float32(3), np.int32(1000))
    np.testing.assert_allclose(y, 3 * x + np.exp(-(x.astype("f8") ** 2)), rtol=1e-6, atol=1e-6)


def test_a_function_with_shuffles(cuda: Device) -> None:
    x, y = _RANDOM.standard_normal((13, 77)).astype("f4"), np.zeros(13, "f4")
    cuda.launch("norms", (4,), (128,), x, y, np.int32(13), np.int32(77))
    np.testing.assert_allclose(y, np.linalg.norm(x, axis=1), rtol=1e-6)


def test_shared_memory(cuda: Device) -> None:
    x, y = _RANDOM.standard_normal((35, 50)).astype("f4"), np.zeros((50, 35), "f4")
    cuda.launch("transposed", (4, 3), (16, 16), x, y, np.int32(35), np.int32(50))
    np.testing.assert_array_equal(y, x.T)
    with pytest.raises(EmulationError, match=r"racing, line \d+ \(\w+\.shared\.\w+@kernels\.cu:(27|30)\).*race: "):
        cuda.launch("racing", (4, 3), (16, 16), x, y, np.int32(35), np.int32(50))


def test_loops_that_lanes_leave_one_by_one(cuda: Device) -> None:
    x, y = np.arange(1, 129), np.zeros(128, "i4")
    cuda.launch("collatz", (1,), (128,), x, y)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    np.testing.assert_array_equal(y, [steps(int(n)) for n in x])
