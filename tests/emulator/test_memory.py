"""Loads, stores, atomics, copies to shared memory, variables, local memory, calls."""

from __future__ import annotations

import numpy as np
import pytest

from ortisan.emulator import Device
from tests.emulator.ptx import apply, fresh, integers, module, run

pytestmark = pytest.mark.build

INDEX = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %r0;"


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("space", ["global", "shared", "local", ""])
def test_vectors_of_every_width_in_every_space(device: Device, width: int, bits: int, space: str) -> None:
    if width * bits > 128:
        pytest.skip("no access is that wide")
    data = integers("u8", 64 * 2).view("u1")[: 64 * width * bits // 8].copy()
    out = np.zeros_like(data)
    size = width * bits // 8
    vector = f".v{width}" if width > 1 else ""
    names = [f"%{'h' if bits <= 16 else 'r' if bits == 32 else 'd'}{10 + k}" for k in range(width)]
    listed = "{" + ", ".join(names) + "}" if width > 1 else names[0]
    through = {
        "global": "", "": "",
        "shared": f"mov.u32 %r3, tile; mad.lo.u32 %r3, %r0, {size}, %r3; st.shared{vector}.b{bits} [%r3], {listed};"
        f"ld.shared{vector}.b{bits} {listed}, [%r3];",
        "local": f"mov.u64 %d3, frame; st.local{vector}.b{bits} [%d3+16], {listed}; ld.local{vector}.b{bits} {listed}, [%d3+16];",
    }[space]  # fmt: skip
    where = "" if space == "" else ".global"
    text = f"""
 .shared .align 16 .b8 tile[1024]; .local .align 16 .b8 frame[64];
 {INDEX} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
 mad.wide.u32 %d1, %r1, {size}, %d1; mad.wide.u32 %d2, %r1, {size}, %d2;
 ld{where}{vector}.b{bits} {listed}, [%d1]; {through} st{where}{vector}.b{bits} [%d2], {listed}; ret;"""
    run(device, ["u64 in", "u64 out"], text, data, out, grid=(2,))
    np.testing.assert_array_equal(out, data)


def test_loads_extend_and_stores_cut(device: Device) -> None:
    data = integers("u8", 64)
    out = np.zeros((64, 4), "u8")
    text = f"""
 {INDEX} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mad.wide.u32 %d1, %r1, 8, %d1; mad.wide.u32 %d2, %r1, 32, %d2;
 ld.global.s8 %r5, [%d1]; ld.global.nc.L1::no_allocate.u16 %r6, [%d1+2]; ld.volatile.global.s16 %d7, [%d1+4]; ld.global.cg.s32 %d8, [%d1];
 mov.b64 %d6, {{%r5, %r6}}; st.global.u64 [%d2], %d6; st.global.v2.u64 [%d2+16], {{%d7, %d8}}; st.global.u16 [%d2+8], %r6;
 st.global.u8 [%d2+10], %r5; ret;"""
    run(device, ["u64 in", "u64 out"], text, data, out, grid=(2,))
    bytes_, words = data.view("u1").reshape(-1, 8), data.view("u2").reshape(-1, 4)
    got = out.view("u4")
    np.testing.assert_array_equal(got[:, 0].view("i4"), bytes_[:, 0].view("i1"))
    np.testing.assert_array_equal(got[:, 1], words[:, 1])
    np.testing.assert_array_equal(out[:, 2].view("i8"), words[:, 2].view("i2"))
    np.testing.assert_array_equal(out[:, 3].view("i8"), data.view("i4").reshape(-1, 2)[:, 0])
    np.testing.assert_array_equal(
        out.view("u1").reshape(-1, 32)[:, 8:11], np.stack([bytes_[:, 2], bytes_[:, 3], bytes_[:, 0]], 1)
    )


def test_generic_addresses_of_several_windows_in_one_access(device: Device) -> None:
    data, out = np.arange(32, dtype="u4"), np.zeros(32, "u4")
    text = """
 .shared .align 4 .b8 tile[128]; .local .align 4 .b8 frame[4];
 mov.u32 %r0, %tid.x; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mad.wide.u32 %d1, %r0, 4, %d1; mad.wide.u32 %d2, %r0, 4, %d2;
 mov.u64 %d3, tile; cvta.shared.u64 %d3, %d3; mad.wide.u32 %d3, %r0, 4, %d3; mov.u64 %d4, frame; cvta.local.u64 %d4, %d4;
 add.u32 %r1, %r0, 100; st.u32 [%d3], %r1; add.u32 %r1, %r0, 200; st.u32 [%d4], %r1;
 and.b32 %r2, %r0, 3; setp.eq.u32 %p1, %r2, 1; setp.eq.u32 %p2, %r2, 2; selp.b64 %d5, %d3, %d1, %p1; selp.b64 %d5, %d4, %d5, %p2;
 isspacep.shared %p3, %d5; isspacep.local %p4, %d5; isspacep.global %p5, %d5; selp.u32 %r4, 1000, 0, %p3; selp.u32 %r5, 2000, 0, %p4;
 selp.u32 %r6, 4000, 0, %p5; ld.u32 %r3, [%d5]; add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
 cvta.to.shared.u64 %d6, %d3; sub.u64 %d7, %d3, %d6; setp.eq.u64 %p6, %d7, 0; @%p6 trap; st.global.u32 [%d2], %r3; ret;"""
    run(device, ["u64 in", "u64 out"], text, data, out)
    kind = data % 4
    np.testing.assert_array_equal(out, data + np.select([kind == 1, kind == 2], [1100, 2200], 4000).astype("u4"))


def test_variables_and_initial_values(device: Device) -> None:
    name, table, sums, pointer = (fresh(part) for part in ("kernel", "table", "sums", "pointer"))
    outside = (
        f".const .align 4 .f32 {table}[3] = {{0f3F800000, 0f40000000, 0fC0400000}};\n"
        f".global .align 4 .u32 {sums}[2] = {{5, 0x10}};\n.global .align 8 .u64 {pointer} = {table};"
    )
    text = f"""
 ld.param.u64 %d1, [out]; ld.const.f32 %f1, [{table}+8]; mov.u64 %d2, {sums}; ld.global.u32 %r1, [%d2+4];
 ld.global.u64 %d3, [{pointer}]; ld.f32 %f2, [%d3+4]; add.f32 %f1, %f1, %f2; st.global.f32 [%d1], %f1; st.global.u32 [%d1+4], %r1;
 st.global.u32 [{sums}], 77; ret;"""
    out = np.zeros(2, "f4")
    device.load(module(name, ["u64 out"], text, outside=outside))
    device.launch(name, (1,), (1,), out)
    assert out[0] == -1.0
    assert out.view("u4")[1] == 16
    variable = device.variable(sums).view("u4")
    np.testing.assert_array_equal(variable, [77, 16])
    variable[1] = 99
    device.launch(name, (1,), (1,), out)
    assert out.view("u4")[1] == 99


def test_parameters_of_every_size_and_structs(device: Device) -> None:
    name = fresh("kernel")
    body = """
 ld.param.u8 %h1, [a]; ld.param.s16 %r2, [b]; ld.param.v2.u32 {%r3, %r4}, [c+8]; mov.b64 %d5, c; mov.u32 %r9, 4;
 cvt.u64.u32 %d6, %r9; add.u64 %d5, %d5, %d6; ld.param.u32 %r5, [%d5]; ld.param.u64 %d1, [out];
 mov.u64 %d7, c; cvta.param.u64 %d7, %d7; ld.u32 %r6, [%d7+12];
 cvt.u32.u16 %r1, %h1; st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%d1+16], {%r5, %r6}; ret;"""
    text = module(name, ["u8 a", "u16 b", "u64 out"], body).replace(".u64 out)", ".align 8 .b8 c[16], .param .u64 out)")
    text = text.replace(".param .align", ".param .align")
    device.load(text)
    out = np.zeros(6, "i4")
    struct = np.array([(1, 2, 3, 4)], "i4,i4,i4,i4")
    with device.memory(out):
        device.launch(name, (1,), (1,), np.uint8(200), np.int16(-7), struct[0], out)
    np.testing.assert_array_equal(out, [200, -7, 3, 4, 2, 4])


def test_calls_of_device_functions(device: Device) -> None:
    outside = """
.func (.param .b32 result) square(.param .b32 x) { .reg .b32 %r<4>; .reg .pred %p<2>;
 ld.param.u32 %r1, [x]; setp.gt.u32 %p1, %r1, 20; @%p1 bra $big; mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret;
$big: mov.u32 %r3, 9; st.param.b32 [result], %r3; ret; }
.func (.param .b32 result) twice(.param .b32 x) { .reg .b32 %r<4>; ld.param.u32 %r1, [x];
 { .param .b32 p; st.param.b32 [p], %r1; .param .b32 q; call.uni (q), square, (p); ld.param.b32 %r2, [q]; }
 add.u32 %r3, %r2, %r2; st.param.b32 [result], %r3; ret; }"""
    outside = outside.replace("square", fresh("square")).replace("twice", fresh("twice"))
    twice = next(word.partition("(")[0] for word in outside.split() if word.startswith("twice"))
    body = f"""
 mov.u32 %r0, %tid.x; ld.param.u64 %d1, [out]; mad.wide.u32 %d1, %r0, 4, %d1;
 {{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call (b), {twice}, (a); ld.param.b32 %r1, [b]; }}
 st.global.u32 [%d1], %r1; ret;"""
    out = np.zeros(32, "u4")
    run(device, ["u64 out"], body, out, outside=outside)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, 2 * np.where(lanes > 20, 9, lanes**2))


ATOMICS = {
    "add.u32": lambda a: a.sum(), "min.s32": lambda a: a.view("i4").min().view("u4"), "max.u32": lambda a: a.max(),
    "and.b32": np.bitwise_and.reduce, "or.b32": np.bitwise_or.reduce, "xor.b32": np.bitwise_xor.reduce,
}  # fmt: skip


@pytest.mark.parametrize("operation", ATOMICS)
@pytest.mark.parametrize("base", ["red", "atom"])
def test_atomics_over_blocks(device: Device, operation: str, base: str) -> None:
    data = integers("u4", 64 * 8)
    start = {"min.s32": 0x7FFFFFFF, "and.b32": 0xFFFFFFFF}.get(operation, 0)
    total = np.array([start], "u4")
    to = "%r3, " if base == "atom" else ""
    text = f"""
 {INDEX} ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mad.wide.u32 %d1, %r1, 4, %d1; ld.global.u32 %r2, [%d1];
 {base}.global.{operation} {to}[%d2], %r2; ret;"""
    run(device, ["u64 in", "u64 out"], text, data, total, grid=(8,), block=(64,))
    with np.errstate(over="ignore"):
        assert total[0] == np.uint32(int(ATOMICS[operation](data)) & 0xFFFFFFFF)


def test_atomics_give_what_was_there(device: Device) -> None:
    out, cell = np.zeros((4, 96), "u4"), np.zeros(4, "u4")
    cell[3] = 1000
    text = f"""
 {INDEX} ld.param.u64 %d1, [out]; ld.param.u64 %d2, [cell]; mad.wide.u32 %d1, %r1, 4, %d1;
 atom.global.inc.u32 %r3, [%d2], 95; atom.add.relaxed.gpu.global.u32 %r4, [%d2+4], 2; setp.eq.u32 %p1, 1, 1;
 atom.global.cas.b32 %r5, [%d2+8], 0, 7; atom.global.dec.u32 %r6, [%d2+12], 2000;
 st.global.u32 [%d1], %r3; st.global.u32 [%d1+384], %r4; st.global.u32 [%d1+768], %r5; st.global.u32 [%d1+1152], %r6; ret;"""
    text = text.replace("atom.add.relaxed.gpu.global", "atom.relaxed.gpu.global.add")
    run(device, ["u64 out", "u64 cell"], text, out, cell, grid=(3,))
    np.testing.assert_array_equal(np.sort(out[0]), np.arange(96))
    np.testing.assert_array_equal(np.sort(out[1]), 2 * np.arange(96))
    np.testing.assert_array_equal(np.sort(out[2]), [0] + [7] * 95)
    np.testing.assert_array_equal(np.sort(out[3]), np.arange(905, 1001))
    np.testing.assert_array_equal(cell, [0, 192, 7, 904])


def test_float_atomics_in_shared_memory(device: Device) -> None:
    out = np.zeros(2, "f4")
    text = """
 .shared .align 8 .b8 cell[8]; mov.u32 %r0, %tid.x; ld.param.u64 %d1, [out]; mov.u32 %r1, cell; setp.eq.u32 %p1, %r0, 0;
 @%p1 st.shared.v2.f32 [%r1], {0f3F000000, 0f00000000}; bar.sync 0; cvt.rn.f32.u32 %f1, %r0; red.shared.add.f32 [%r1], %f1;
 mov.b32 %r5, 0x3C003C00; red.shared.add.noftz.f16x2 [%r1+4], %r5; bar.sync 0;
 @%p1 ld.shared.v2.f32 {%f2, %f3}, [%r1]; @%p1 st.global.v2.f32 [%d1], {%f2, %f3}; ret;"""
    run(device, ["u64 out"], text, out, block=(64,))
    assert out[0] == 0.5 + 63 * 32
    np.testing.assert_array_equal(out[1:].view("f2"), [64, 64])


def test_copies_arrive_when_they_are_waited_for(device: Device) -> None:
    data = integers("u4", 32 * 12)
    out = np.zeros((3, 32, 4), "u4")
    text = """
 .shared .align 16 .b8 tile[1536]; mov.u32 %r0, %tid.x; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
 mad.wide.u32 %d1, %r0, 16, %d1; mad.wide.u32 %d2, %r0, 16, %d2; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;
 st.shared.v4.u32 [%r1], {1, 2, 3, 4}; st.shared.v4.u32 [%r1+512], {1, 2, 3, 4}; st.shared.v4.u32 [%r1+1024], {1, 2, 3, 4};
 cp.async.cg.shared.global.L2::128B [%r1], [%d1], 16; cp.async.commit_group;
 and.b32 %r2, %r0, 15; min.u32 %r2, %r2, 8; cp.async.ca.shared.global [%r1+512], [%d1+512], 8, %r2;
 cp.async.ca.shared.global [%r1+520], [%d1+520], 4; cp.async.commit_group;
 cp.async.cg.shared.global [%r1+1024], [%d1+1024], 16, 0;
 cp.async.wait_group 1; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1]; st.global.v4.u32 [%d2], {%r4, %r5, %r6, %r7};
 cp.async.wait_group 0; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+512]; st.global.v4.u32 [%d2+512], {%r4, %r5, %r6, %r7};
 cp.async.wait_all; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+1024]; st.global.v4.u32 [%d2+1024], {%r4, %r5, %r6, %r7}; ret;"""
    run(device, ["u64 in", "u64 out"], text, data, out)
    source = data.reshape(3, 32, 4)
    np.testing.assert_array_equal(out[0], source[0])
    kept = np.minimum(np.arange(32) % 16, 8)
    want = source[1].copy().view("u1").reshape(32, 16)
    want[:, :8] *= np.arange(8) < kept[:, None]
    want[:, 12:] = np.array([4, 0, 0, 0])
    np.testing.assert_array_equal(out[1].view("u1"), want)
    np.testing.assert_array_equal(out[2], 0)


def test_what_was_copied_is_not_there_before_the_wait(device: Device) -> None:
    data, out = np.full(32, 5, "u4"), np.zeros(32, "u4")
    text = """
 .shared .align 16 .b8 tile[128]; mov.u32 %r0, %tid.x; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
 mad.wide.u32 %d1, %r0, 4, %d1; mad.wide.u32 %d2, %r0, 4, %d2; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1;
 st.shared.u32 [%r1], 9; cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group;
 ld.shared.u32 %r2, [%r1]; st.global.u32 [%d2], %r2; cp.async.wait_group 0; ret;"""
    with device.checking(0):
        run(device, ["u64 in", "u64 out"], text, data, out)
    np.testing.assert_array_equal(out, 9)


def test_extern_shared_memory_follows_what_has_a_size(device: Device) -> None:
    out = np.zeros(3, "u4")
    text = """
 .shared .align 4 .b8 fixed[20]; ld.param.u64 %d1, [out]; mov.u32 %r1, fixed; mov.u32 %r2, dynamic;
 mov.u32 %r3, %dynamic_smem_size; st.shared.u32 [dynamic+60], %r3; st.global.u32 [%d1], %r1; st.global.u32 [%d1+4], %r2;
 ld.shared.u32 %r4, [%r2+60]; st.global.u32 [%d1+8], %r4; ret;"""
    run(device, ["u64 out"], text, out, outside=".extern .shared .align 16 .b8 dynamic[];", block=(1,), shared=64)
    assert out[2] == 64
    assert out[1] % 16 == 0
    assert out[1] >= out[0] + 20


def test_half_registers_are_kept_apart(device: Device) -> None:
    a = integers("u2", 200)
    got = apply(device, ".reg .b16 %x; mov.u16 %x, $a; add.u16 $d, %x, 1;", "u2", a)
    np.testing.assert_array_equal(got, (a + np.uint16(1)).astype("u2"))
