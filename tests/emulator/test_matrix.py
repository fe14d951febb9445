"""mma.sync and ldmatrix against numpy, laid out as the instruction set says."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ortisan.emulator import Device
from ortisan.errors import EmulationError
from tests.emulator.ptx import Array, run

pytestmark = pytest.mark.build

TYPES = {"f16": np.dtype("f2"), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype("f4")}
SHAPES = [(4, "tf32"), (8, "tf32"), (8, "bf16"), (16, "bf16"), (8, "f16"), (16, "f16")]


def fragments(a: Array, b: Array, kind: str) -> tuple[Array, Array]:
    """A's and B's registers: [register, lane] words of consecutive elements of a row of A and of a column of B."""
    per = 1 if kind == "tf32" else 2
    k = a.shape[1]
    lanes = np.arange(32)
    group, thread = lanes // 4, lanes % 4
    left, right = [], []
    for column in range(0, k, 4 * per):
        inner = column + thread[:, None] * per + np.arange(per)
        for row in (group, group + 8):
            left.append(np.ascontiguousarray(a[row[:, None], inner]).view("u4").ravel())
        right.append(np.ascontiguousarray(b[inner, group[:, None]]).view("u4").ravel())
    return np.array(left), np.array(right)


def sums(lanes: Array) -> Array:
    """C's or D's matrix out of [register, lane]."""
    found = np.zeros((16, 8), lanes.dtype)
    for lane in range(32):
        for register in range(4):
            found[lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2] = lanes[register, lane]
    return found


def product_text(shape: str, types: str, counts: tuple[int, int, int]) -> str:
    a, b, c = counts
    names = [[f"%r{10 + k}" for k in range(a)], [f"%r{20 + k}" for k in range(b)], [f"%r{30 + k}" for k in range(c)]]
    lines = [".reg .b32 %lane; mov.u32 %lane, %laneid;"]
    for index, (letter, registers) in enumerate(zip("abc", names, strict=True)):
        lines += [f"ld.param.u64 %d{index}, [{letter}]; mad.wide.u32 %d{index}, %lane, 4, %d{index};"]
        lines += [f"ld.global.u32 {register}, [%d{index}+{128 * k}];" for k, register in enumerate(registers)]
    d = [f"%r{40 + k}" for k in range(c)]
    lists = ", ".join("{" + ", ".join(part) + "}" for part in (d, *names))
    lines += [f"mma.sync.aligned.{shape}.row.col.{types} {lists};"]
    lines += [f"st.global.u32 [%d2+{128 * k}], {register};" for k, register in enumerate(d)] + ["ret;"]
    return "\n".join(lines)


@pytest.mark.parametrize("k,kind", SHAPES)
def test_products(device: Device, k: int, kind: str) -> None:
    random = np.random.default_rng(k)
    a, b = random.standard_normal((16, k)).astype(TYPES[kind]), random.standard_normal((k, 8)).astype(TYPES[kind])
    left, right = fragments(a, b, kind)
    c = random.standard_normal((4, 32)).astype("f4")
    before = sums(c).astype("f8")
    text = product_text(f"m16n8k{k}", f"f32.{kind}.{kind}.f32", (len(left), len(right), 4))
    run(device, ["u64 a", "u64 b", "u64 c"], text, left, right, c)
    if kind == "tf32":  # the low bits are not read
        a, b = ((x.view("u4") & np.uint32(0xFFFFE000)).view("f4") for x in (a, b))
    np.testing.assert_allclose(sums(c), before + a.astype("f8") @ b.astype("f8"), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("k", [8, 16])
def test_products_with_float16_sums(device: Device, k: int) -> None:
    random = np.random.default_rng(k)
    a, b = random.standard_normal((16, k)).astype("f2"), random.standard_normal((k, 8)).astype("f2")
    left, right = fragments(a, b, "f16")
    c = random.standard_normal((2, 32, 2)).astype("f2")
    before = sums(c.transpose(0, 2, 1).reshape(4, 32)).astype("f8")
    text = product_text(f"m16n8k{k}", "f16.f16.f16.f16", (len(left), len(right), 2))
    run(device, ["u64 a", "u64 b", "u64 c"], text, left, right, c)
    want = (before + a.astype("f8") @ b.astype("f8")).astype("f2").astype("f8")
    np.testing.assert_allclose(sums(c.transpose(0, 2, 1).reshape(4, 32)).astype("f8"), want, rtol=1e-3)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_loaded(device: Device, count: int, transposed: bool) -> None:
    data = np.arange(8 * 8 * 4, dtype="u2")
    out = np.zeros((count, 32, 2), "u2")
    registers = ", ".join(f"%r{10 + k}" for k in range(count))
    stores = "".join(f"st.global.u32 [%d2+{128 * k}], %r{10 + k};" for k in range(count))
    text = f"""
 .shared .align 16 .b8 tile[512];
 ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, %laneid; mov.u32 %r2, tile;
 mad.wide.u32 %d1, %r1, 16, %d1; mad.lo.u32 %r3, %r1, 16, %r2;
 ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d1]; st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}};
 bar.sync 0;
 ldmatrix.sync.aligned.x{count}.m8n8{".trans" if transposed else ""}.shared.b16 {{{registers}}}, [%r3];
 mad.wide.u32 %d2, %r1, 4, %d2; {stores} ret;"""
    run(device, ["u64 in", "u64 out"], text, data, out)
    matrices = data.reshape(4, 8, 8)[:count]
    want = matrices.transpose(0, 2, 1) if transposed else matrices
    np.testing.assert_array_equal(out.reshape(count, 8, 8), want)


def test_a_product_needs_the_whole_warp(device: Device) -> None:
    text = product_text("m16n8k8", "f32.tf32.tf32.f32", (4, 2, 4))
    arrays = [np.zeros((n, 32), "f4") for n in (4, 2, 4)]
    with pytest.raises(
        EmulationError, match=r"mma\.sync.*needs all 32 lanes of the warp, but only 0x0000ffff are there"
    ):
        run(device, ["u64 a", "u64 b", "u64 c"], text, *arrays, block=(16,))
    divergent = text.replace("mma.sync", "setp.lt.u32 %p1, %lane, 5; @%p1 bra $out; mma.sync").replace(
        "ret;", "bra $end; $out: bar.sync 0; $end: ret;"
    )
    with pytest.raises(
        EmulationError, match=r"lanes 0xffffffff of the warp have to reach it together, but only 0xffffffe0 do"
    ):
        run(device, ["u64 a", "u64 b", "u64 c"], divergent, *arrays)
