"""Small PTX modules for tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from ortisan.emulator import Device

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
_names = count()

Array = np.ndarray[Any, Any]
_LETTERS = {8: "b16", 16: "b16", 32: "b32", 64: "b64"}
REGISTERS = """
 .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<32>; .reg .f32 %f<32>;
"""


def module(name: str, parameters: Sequence[str], body: str, *, outside: str = "") -> str:
    """A kernel; `parameters` are "u64 x", and registers of all sizes are declared."""
    declared = ", ".join(f".param .{parameter.split()[0]} {parameter.split()[1]}" for parameter in parameters)
    return f"{HEAD}{outside}\n.visible .entry {name}({declared})\n{{{REGISTERS}{body}\n}}\n"


def fresh(prefix: str) -> str:
    """A kernel's name that no other test has."""
    return f"{prefix}_{next(_names)}"


def run(
    device: Device, parameters: Sequence[str], body: str, *arguments: Any, outside: str = "", grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,), shared: int = 0,
) -> None:  # fmt: skip
    """Loads and launches a kernel."""
    name = fresh("kernel")
    device.load(module(name, parameters, body, outside=outside))
    device.launch(name, grid, block, *arguments, shared=shared)


def apply(device: Device, text: str, result: str, *operands: Array) -> Array:
    """The instruction for each element: `text` with $d, $a, $b and $c for the result and the operands; $p is a predicate."""
    size = operands[0].size
    out = np.zeros(size, result)
    letters = "abc"[: len(operands)]
    lines = [".reg .b32 %n<4>; .reg .b64 %at<9>; .reg .pred %q;", "mov.u32 %n0, %ctaid.x; mov.u32 %n1, %tid.x;"]
    lines += ["mov.u32 %n2, %ntid.x; mad.lo.s32 %n3, %n0, %n2, %n1;", f"setp.ge.s32 %q, %n3, {size}; @%q bra $done;"]
    for index, (letter, array) in enumerate([*zip(letters, operands, strict=True), ("d", out)]):
        kind = _LETTERS[8 * array.itemsize]
        lines += [f".reg .{kind} %{letter};", f"ld.param.u64 %at{index}, [{letter}];"]
        lines += [f"mad.wide.s32 %at{index}, %n3, {array.itemsize}, %at{index};"]
        if letter != "d":
            lines += [f"ld.global.{'u8' if array.itemsize == 1 else kind} %{letter}, [%at{index}];"]
    for letter in (*letters, "d"):
        text = text.replace(f"${letter}", f"%{letter}")
    text = text.replace("$p", "%p1")
    store = "u8" if out.itemsize == 1 else _LETTERS[8 * out.itemsize]
    lines += [text, f"st.global.{store} [%at{len(letters)}], %d;", "$done: ret;"]
    parameters = [f"u64 {letter}" for letter in (*letters, "d")]
    run(device, parameters, "\n".join(lines), *operands, out, grid=(-(-size // 128),), block=(128,))
    return out


def integers(kind: str, size: int = 999, seed: int = 1) -> Array:
    """Random numbers, with the extreme ones among them in every combination with each other."""
    info = np.iinfo(kind)
    random = np.random.default_rng(seed)
    values = random.integers(info.min, info.max, size, dtype=kind, endpoint=True)
    small = random.integers(0, 70, size).astype(kind)
    chosen = np.where(random.random(size) < 0.3, small, values)
    extreme = np.array([0, 1, 2, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], kind)
    chosen[: extreme.size**2] = np.tile(extreme, extreme.size) if seed % 2 else np.repeat(extreme, extreme.size)
    return chosen


def floats(kind: str = "f4", size: int = 999, seed: int = 1) -> Array:
    """Random numbers of many sizes, with NaN, infinities, zeros and subnormal numbers in every combination."""
    random = np.random.default_rng(seed)
    info = np.finfo(kind)
    spread = {"f2": 4, "f4": 20, "f8": 200}[kind]
    values = (random.standard_normal(size) * np.exp2(random.integers(-spread, spread, size))).astype(kind)
    tiny = info.smallest_subnormal
    extreme = np.array(
        [0, -0.0, 1, -1.5, info.max, info.min, np.inf, -np.inf, np.nan, tiny, -tiny, info.tiny, info.tiny * 0.75, 2.5],
        kind,
    )
    values[: extreme.size**2] = np.tile(extreme, extreme.size) if seed % 2 else np.repeat(extreme, extreme.size)
    return values


def same(got: Array, want: Array) -> None:
    """Equal bits, any NaN for a NaN."""
    assert got.dtype == want.dtype
    if got.dtype.kind == "f":
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        got, want = got[~nan], want[~nan]
        bits = f"u{got.itemsize}"
        got, want = got.view(bits), want.view(bits)
    np.testing.assert_array_equal(got, want)
