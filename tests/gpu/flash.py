"""The kernels of templates/cuda/attention, compiled to PTX and launched one by one in the emulator."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ortisan.codegen.render import TEMPLATES
from ortisan.codegen.tools.cuda import find_cuda
from ortisan.emulator import Device
from ortisan.registry.ops import Attention

Array = np.ndarray[Any, Any]

TYPES = {"float": np.dtype("f4"), "__half": np.dtype("f2"), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
_ROWS = np.dtype([("data", "u8"), ("batch", "i8"), ("head", "i8"), ("row", "i8")])
_MASK = np.dtype([("data", "u8"), ("batch", "i8"), ("head", "i8"), ("row", "i8"), ("key", "i8")])
_SIZES = ("batch", "heads", "group", "queries", "past", "keys")
_CALL = np.dtype(
    [
        *((name, _ROWS) for name in ("q", "past_k", "k", "past_v", "v")),
        ("mask", _MASK),
        ("y", _ROWS),
        *((name, "i4") for name in _SIZES),
        *((name, "f4") for name in ("scale", "softcap", "hidden")),
    ],
    align=True,
)
_THREADS = 128


@dataclass(frozen=True)
class Kind:
    """An instance of the kernels."""

    element: str
    head: int
    value: int
    op: Attention

    @property
    def name(self) -> str:
        op = self.op
        rules = f"{op.mask}_{op.causal}{'_empty' * op.empty_rows_zero}{'_nan' * op.nan_rows_zero}"
        return f"K{self.element.strip('_')}_{self.head}_{self.value}_{rules}"

    @property
    def declared(self) -> str:
        op = self.op
        flags = ", ".join(str(flag).lower() for flag in (op.empty_rows_zero, op.nan_rows_zero))
        arguments = f"{self.element}, {self.head}, {self.value}, Mask::{op.mask}, Causal::{op.causal}, {flags}"
        lines = [f"struct {self.name} : ortisan::FlashKind<{arguments}> {{}};"]
        for wide in ("true", "false") if self.may_be_wide else ("false",):
            kernels = [f"flash_thin<{self.name}, {rows}, {wide}>" for rows in self.rows]
            kernels += [f"flash_tiles<{self.name}, {wide}>"] * self.has_tiles
            lines += [f"template __global__ void ortisan::{k}(FlashCall<{self.element}>);" for k in kernels]
        return "\n".join(lines)

    @property
    def step(self) -> int:
        """Elements of 16 bytes."""
        return 16 // TYPES[self.element].itemsize

    @property
    def may_be_wide(self) -> bool:
        return self.head % self.step == 0 and self.value % self.step == 0

    @property
    def has_tiles(self) -> bool:
        return self.shared <= (99 if self.element == "float" else 64) * 1024

    @property
    def large(self) -> bool:
        return max(self.head, self.value) > 256

    @property
    def rows(self) -> tuple[int, ...]:
        return (1, 4) if max(self.head, self.value) <= 128 else (1,)

    @property
    def shared(self) -> int:
        """Bytes of a block of tiles."""
        size = TYPES[self.element].itemsize
        depth = 8 if size == 4 else 16
        d, e = (-(-width // depth) * depth for width in (self.head, self.value))
        e = min(e, 128) if self.large else e
        keys = 16 if max(d, e) > 128 else 32 if size == 4 else 64
        k_stride = (d + 8 if d // 8 % 2 == 0 else d) if size == 4 else d + 8
        return ((self.tile + keys) * k_stride + keys * (e + (4 if size == 4 else 8))) * size

    @property
    def tile(self) -> int:
        """Queries of a block of tiles."""
        return 16 if self.large else 64


def compile_kinds(kinds: Sequence[Kind], folder: Path, architecture: str = "80") -> str:
    """PTX of all kernels of these kinds."""
    source = folder / "flash.cu"
    text = ['#include "flash_attention.cuh"', "using namespace ortisan;", *(kind.declared for kind in kinds)]
    source.write_text("\n".join(text) + "\n")
    headers = TEMPLATES / "cuda"
    options = [
        "-std=c++17",
        "-lineinfo",
        f"-arch=compute_{architecture}",
        "-I",
        str(headers),
        "-I",
        str(headers / "attention"),
    ]
    subprocess.run([str(find_cuda().nvcc), "-ptx", *options, "-o", str(folder / "flash.ptx"), str(source)], check=True)
    return (folder / "flash.ptx").read_text()


@dataclass(frozen=True)
class Run:
    """Tensors as views of some memory: [B,H,S,D], and [B,K,T,D] in two parts along T."""

    q: Array
    k: tuple[Array, Array]
    v: tuple[Array, Array]
    mask: Array | None
    y: Array


def launch(device: Device, ptx: str, kind: Kind, kernel: str, run: Run, *, wide: bool) -> None:
    """`kernel` is "tiles" or "thin1", "thin4"."""
    call = np.zeros((), _CALL)
    for name, x in zip(("q", "past_k", "k", "past_v", "v", "y"), (run.q, *run.k, *run.v, run.y), strict=True):
        strides = [stride // x.itemsize for stride in x.strides]
        assert strides[3] == 1 or x.size == 0
        call[name] = (x.ctypes.data, *strides[:3])
    if run.mask is not None:
        shown = np.broadcast_to(run.mask, (*run.q.shape[:3], run.k[0].shape[2] + run.k[1].shape[2]))
        call["mask"] = (run.mask.ctypes.data, *(stride // run.mask.itemsize for stride in shown.strides))
    batch, heads, queries, _ = run.q.shape
    past, keys = run.k[0].shape[2], run.k[0].shape[2] + run.k[1].shape[2]
    sizes = (batch, heads, heads // run.k[1].shape[1], queries, past, keys)
    for name, size in zip(_SIZES, sizes, strict=True):
        call[name] = size
    call["scale"], call["softcap"], call["hidden"] = kind.op.scale, kind.op.softcap, kind.op.hidden_logit
    if kernel == "tiles":
        blocks = -(-queries // kind.tile) * (-(-kind.value // 128) if kind.large else 1) * heads * batch
        threads, shared = 2 * kind.tile, kind.shared
    else:
        blocks = -(-queries * sizes[2] // int(kernel[4:])) * sizes[1] // sizes[2] * batch
        threads, shared = _THREADS, 0
    arrays = [owner(x) for x in (run.q, *run.k, *run.v, run.y)] + ([] if run.mask is None else [owner(run.mask)])
    unique = list({array.ctypes.data: array for array in arrays if array.size}.values())
    with device.memory(*unique):
        device.launch(_entry(ptx, kind, kernel, wide), (blocks,), (threads,), call[()], shared=shared)


def owner(x: Array) -> Array:
    """The whole memory of a view."""
    return x if x.base is None else owner(x.base)


def _entry(ptx: str, kind: Kind, kernel: str, wide: bool) -> str:
    name = f"{len(kind.name)}{kind.name}"
    middle = f"flash_tilesI{name}" if kernel == "tiles" else f"flash_thinI{name}Li{kernel[4:]}E"
    mangled = f"{middle}Lb{int(wide)}E"
    found = {word.split("(")[0] for word in ptx.split() if mangled in word and word.startswith("_Z")}
    (entry,) = {word for word in found if f".entry {word}" in ptx}
    return entry
