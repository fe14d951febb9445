"""PTX is found in what nvcc made, however it is packed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ortisan.codegen.tools.cuda import find_cuda
from ortisan.emulator.fatbin import ptx_of, unpack
from ortisan.errors import ToolchainError

SOURCE = """
__global__ void first(float* x) { x[threadIdx.x] *= 2.0f; }
template <int N> __global__ void second(float* x) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[N - 1 - threadIdx.x];
}
void go(float* x) { first<<<1, 32>>>(x); second<64><<<1, 64>>>(x); }
"""


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x30abc", b"abc"),
        (b"\x12a\x01\x00\x10b", b"aaaaaaab"),
        (b"\x44abcd\x04\x00\x10e", b"abcdabcdabcde"),
        (b"\xf0\x05" + b"x" * 20, b"x" * 20),
        (b"\x1f-\x01\x00\xff\x03\x10+", b"-" * (1 + 4 + 15 + 255 + 3) + b"+"),
    ],
)
def test_blocks(block: bytes, text: bytes) -> None:
    assert unpack(block, len(text)) == text


def test_a_damaged_block() -> None:
    with pytest.raises(ToolchainError, match="damaged: 3 bytes came of it, and 9 should"):
        unpack(b"\x30abc", 9)


def compiled(folder: Path, *options: str) -> Path:
    (folder / "a.cu").write_text(SOURCE)
    both = "-gencode=arch=compute_75,code=[sm_75,compute_75]", "-gencode=arch=compute_80,code=[sm_80,compute_80]"
    command = [str(find_cuda().nvcc), "-c", *both, *options, str(folder / "a.cu"), "-o", str(folder / "a.o")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "a.o"


@pytest.mark.nvcc
@pytest.mark.parametrize("option", ["--no-compress", "--compress-mode=speed"])
def test_what_nvcc_makes(option: str, tmp_path: Path) -> None:
    parts = ptx_of(compiled(tmp_path, option))
    assert sorted(part.architecture for part in parts) == ["75", "80"]
    for part in parts:
        assert f".target sm_{part.architecture}" in part.text
        assert part.text.count(".visible .entry") + part.text.count(".weak .entry") >= 2
        assert part.text.rstrip().endswith("}")


@pytest.mark.nvcc
def test_what_is_packed_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="compressed in a way that can't be read"):
        ptx_of(compiled(tmp_path, "--compress-mode=size"))
