"""Faults that are put into kernels: each is found, with the kernel, the line, the block and the thread."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from ortisan.emulator import RACES, Device, PtxError, translate
from ortisan.errors import EmulationError
from tests.emulator.ptx import HEAD, fresh, module

pytestmark = pytest.mark.build

SHARED = ".shared .align 16 .b8 tile[4096]; mov.u32 %r0, %tid.x; mov.u32 %r9, tile; mad.lo.u32 %r1, %r0, 4, %r9;"


def fault(device: Device, body: str, *arrays: np.ndarray, block: int = 64, grid: int = 1, checks: int = 7) -> str:
    """What is said of a kernel whose wrong line ends with "// here"; the line is checked. A race has two lines."""
    name = fresh("faulty")
    text = module(name, [f"u64 x{k}" for k in range(len(arrays))], body)
    (line,) = (number for number, content in enumerate(text.splitlines(), 1) if content.endswith("// here"))
    device.load(text)
    with device.checking(checks), pytest.raises(EmulationError) as found:
        device.launch(name, (grid,), (block,), *arrays)
    said = str(found.value)
    assert re.search(rf"\bline {line}\b", said), said
    assert re.match(rf"{name}, line \d+ \([\w.:]+\), block \(\d+, 0, 0\), thread \(\d+, 0, 0\): ", said), said
    return said


def test_loads_behind_the_end(device: Device) -> None:
    body = """
 mov.u32 %r0, %tid.x; ld.param.u64 %d1, [x0]; mad.wide.u32 %d1, %r0, 4, %d1;
 ld.global.u32 %r1, [%d1]; // here
 ret;"""
    said = fault(device, body, np.zeros(60, "u4"))
    assert "thread (60, 0, 0): load of 4 bytes" in said
    assert "0 bytes behind the end of one of 240 bytes" in said


def test_the_name_of_a_kernel_may_be_longer_than_what_is_said_of_it(device: Device) -> None:
    name = fresh("long") + "_name" * 500
    device.load(module(name, [], "ld.global.u32 %r1, [16];\n ret;"))
    with pytest.raises(EmulationError, match=r"_nam\w*\.\.\., line \d+ .*thread \(0, 0, 0\): load of 4 bytes"):
        device.launch(name, (1,), (32,))


def test_stores_before_the_begin_and_to_read_only_memory(device: Device) -> None:
    body = """
 ld.param.u64 %d1, [x0];
 st.global.u32 [%d1-4], 1; // here
 ret;"""
    assert "store of 4 bytes" in fault(device, body, np.zeros(60, "u4"))
    constant = np.zeros(4, "u4")
    constant.flags.writeable = False
    body = body.replace("-4", "+4")
    assert "store to read-only memory" in fault(device, body, constant)


def test_null_pointers(device: Device) -> None:
    body = """
 mov.u64 %d1, 0;
 ld.u32 %r1, [%d1]; // here
 ret;"""
    assert "at 0x0 of global memory" in fault(device, body)


def test_memory_that_was_freed(device: Device) -> None:
    name, data = fresh("kernel"), np.zeros(32, "u4")
    device.load(module(name, ["u64 x"], "ld.param.u64 %d1, [x]; ld.global.u32 %r1, [%d1]; ret;"))
    device.launch(name, (1,), (32,), data)
    with pytest.raises(EmulationError, match="outside of every live allocation"):
        device.launch(name, (1,), (32,), np.uint64(data.ctypes.data))


@pytest.mark.parametrize(
    "access", ["ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1]", "st.shared.v2.u32 [%r1], {%r1, %r2}"]
)
def test_misaligned_vectors(device: Device, access: str) -> None:
    said = fault(device, f"{SHARED}\n {access}; // here\n ret;", checks=1)
    assert "thread (1, 0, 0)" in said
    assert "is not aligned to" in said


def test_misaligned_global_vectors(device: Device) -> None:
    body = """
 ld.param.u64 %d1, [x0];
 ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1+8]; // here
 ret;"""
    data = np.zeros(64, "u8")
    begin = data.ctypes.data // 8 % 2
    assert "is not aligned to 16 bytes" in fault(device, body, data[begin:])


def test_windows(device: Device) -> None:
    said = fault(device, f"{SHARED}\n st.shared.u32 [%r1+3968], 1; // here\n ret;")
    assert "thread (32, 0, 0): 4 bytes at 0x1000 of shared memory, which has 4096 bytes" in said
    local = ".local .align 8 .b8 frame[64]; mov.u64 %d1, frame;\n st.local.u64 [%d1+64], %d1; // here\n ret;"
    assert "of local memory, which has 64 bytes" in fault(device, local)


def test_shared_memory_that_was_never_written(device: Device) -> None:
    read = f"{SHARED} st.shared.u16 [%r1], 1; ld.param.u64 %d1, [x0]; mad.wide.u32 %d1, %r0, 4, %d1; ld.shared.u32 %r2, [%r1]; add.u32 %r3, %r2, 1;"
    out = np.zeros(64, "u4")
    store = f"{read}\n st.global.u32 [%d1], %r3; // here\n ret;"
    assert re.search(
        r"uses what was read in line \d+ from shared memory that was never written", fault(device, store, out)
    )
    branch = f"{read} setp.eq.u32 %p1, %r3, 5;\n @%p1 st.shared.u32 [%r1], 1; // here\n ret;"
    assert "never written" in fault(device, branch, out)
    through = f"{read} st.shared.u32 [%r1+1024], %r3; bar.sync 0; ld.shared.u32 %r4, [%r1+1024]; shfl.sync.idx.b32 %r5, %r4, 0, 0x1f, -1;"
    assert "never written" in fault(device, f"{through}\n st.global.u32 [%d1], %r5; // here\n ret;", out)
    atomic = f"{SHARED}\n red.shared.add.u32 [%r1], 1; // here\n ret;"
    assert "which was never written" in fault(device, atomic)


@pytest.mark.parametrize(
    "operand, register, valued",
    [
        ("a", 0, lambda lane: lane < 16),
        ("a", 1, lambda lane: lane < 16),
        ("a", 2, lambda lane: lane < 32),
        ("b", 0, lambda lane: lane % 4 < 2),
        ("b", 3, lambda lane: lane % 4 < 2),
    ],
)
def test_a_product_has_values_where_its_row_and_column_have(
    operand: str, register: int, valued: Callable[[int], bool], device: Device
) -> None:
    """Rows 0 to 3 of A were written, or columns 0 to 3 of B."""
    matrices = "{%r2, %r3}, {%r3}" if operand == "a" else "{%r3, %r3}, {%r2}"
    body = f"""{SHARED} ld.param.u64 %d1, [x0]; mad.wide.u32 %d1, %r0, 4, %d1; setp.lt.u32 %p1, %r0, 16;
 @%p1 st.shared.u32 [%r1], 0x3f800000; bar.sync 0; ld.shared.u32 %r2, [%r1]; mov.u32 %r3, 0x3f800000; mov.u32 %r9, 0;
 mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {{%r4, %r5, %r6, %r7}}, {matrices}, {{%r9, %r9, %r9, %r9}};
 and.b32 %r8, %r0, 3; setp.{"lt.u32 %p2, %r8, 2" if operand == "b" else f"lt.u32 %p2, %r0, {32 if register > 1 else 16}"};"""
    out, name = np.zeros(32, "f4"), fresh("kernel")
    device.load(module(name, ["u64 x0"], f"{body} @%p2 st.global.u32 [%d1], %r{4 + register}; ret;"))
    device.launch(name, (1,), (32,), out)
    np.testing.assert_array_equal(out, [4.0 if valued(lane) else 0 for lane in range(32)])
    if register != 2:
        store = f"{body}\n st.global.u32 [%d1], %r{4 + register}; // here\n ret;"
        assert "never written" in fault(device, store, out)


def test_what_is_read_too_much_and_not_used_is_no_fault(device: Device) -> None:
    name, out = fresh("kernel"), np.zeros(64, "u4")
    body = f"""{SHARED} ld.param.u64 %d1, [x]; mad.wide.u32 %d1, %r0, 4, %d1; setp.lt.u32 %p1, %r0, 20; @%p1 st.shared.u32 [%r1], 7;
 bar.sync 0; ld.shared.u32 %r2, [%r1]; add.u32 %r2, %r2, 1; selp.u32 %r3, %r2, 3, %p1; st.global.u32 [%d1], %r3;
 @%p1 st.global.u32 [%d1], %r2; mov.u32 %r2, 1; @!%p1 st.global.u32 [%d1], %r2; ret;"""
    device.load(module(name, ["u64 x"], body))
    device.launch(name, (1,), (64,), out)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 20, 8, 1))


def test_races(device: Device) -> None:
    store = f"{SHARED} st.shared.u32 [%r1], %r0; xor.b32 %r2, %r0, 32; mad.lo.u32 %r2, %r2, 4, %r9;"
    said = fault(device, f"{store}\n ld.shared.u32 %r3, [%r2]; // here\n bar.sync 0; ret;", checks=RACES)
    assert "race: " in said
    assert "with no barrier between" in said
    read = f"{SHARED} st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r2, %r0, 32; mad.lo.u32 %r2, %r2, 4, %r9; ld.shared.u32 %r3, [%r2];"
    said = fault(device, f"{read}\n st.shared.u32 [%r1], 1; // here\n bar.sync 0; ret;")
    assert "race: " in said
    assert re.search(r"which thread \(\d+, 0, 0\) (reads|writes) in line \d+", said)
    both = f"{SHARED}\n st.shared.u32 [%r9], %r0; // here\n ret;"
    assert "which thread (0, 0, 0) writes" in fault(device, both)


def test_what_is_no_race(device: Device) -> None:
    name = fresh("kernel")
    body = f"""{SHARED} st.shared.u32 [%r9], 7; st.shared.u32 [%r1+512], %r0; bar.warp.sync -1; xor.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 4, %r9;
 ld.shared.u32 %r3, [%r2+512]; bar.sync 0; st.shared.u32 [%r2+512], 3; bar.sync 0; ld.shared.u32 %r3, [%r1+512]; ret;"""
    device.load(module(name, [], body))
    device.launch(name, (3,), (128,))


def test_a_race_inside_of_a_warp(device: Device) -> None:
    body = f"""{SHARED} st.shared.u32 [%r1], %r0; xor.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 4, %r9;
 ld.shared.u32 %r3, [%r2]; // here
 ret;"""
    assert "race: reads" in fault(device, body, block=32)


COPY = f"{SHARED} ld.param.u64 %d1, [x0]; mad.wide.u32 %d1, %r0, 4, %d1; cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group;"


def test_copies_that_are_not_waited_for(device: Device) -> None:
    data = np.arange(64, dtype="u4")
    said = fault(device, f"{COPY}\n ld.shared.u32 %r3, [%r1]; // here\n cp.async.wait_group 0; ret;", data)
    assert "which a cp.async of line" in said
    assert "still on its way to" in said
    two = (
        COPY
        + "cp.async.ca.shared.global [%r1+512], [%d1], 4; cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;"
    )
    assert "still on its way" in fault(device, f"{two}\n ld.shared.u32 %r3, [%r1+512]; // here\n ret;", data)


def test_copies_that_others_read_without_a_barrier(device: Device) -> None:
    body = f"{COPY} cp.async.wait_group 0; xor.b32 %r2, %r1, 4;\n ld.shared.u32 %r3, [%r2]; // here\n ret;"
    assert "race: reads" in fault(device, body, np.arange(64, dtype="u4"), block=32)
    late = COPY.replace("cp.async.commit_group;", "\n cp.async.ca.shared.global [%r1], [%d1+4], 4; // here\n ret;")
    assert "still on its way to" in fault(device, late, np.arange(65, dtype="u4"))


def test_copies_from_outside(device: Device) -> None:
    body = COPY.replace(" cp.async.ca", "\n cp.async.ca", 1).replace(
        ", 4; cp.async.commit", ", 4; // here\n cp.async.commit"
    )
    assert "thread (50, 0, 0): load of 4 bytes" in fault(device, body + " ret;", np.arange(50, dtype="u4"))


def test_barriers_in_a_branch_of_a_warp(device: Device) -> None:
    body = """
 mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 10; @%p1 bra $few; bar.sync 0; bra $end;
$few:
 bar.sync 0; // here
$end: ret;"""
    name = (
        body.replace(" bar.sync 0; // here", "")
        .replace("bar.sync 0; bra", "\n bar.sync 0; // here\n bra")
        .replace("$few:", "$few: bar.sync 0;")
    )
    assert "of the warp have to reach it together" in fault(device, name, block=32)


def test_barriers_that_some_warps_never_reach(device: Device) -> None:
    body = """
 mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 32; @%p1 bra $few; bar.sync 1; bra $end;
$few:
 bar.sync 0; // here
$end: ret;"""
    assert "barrier 0 waits for 64 threads, but only 32 reach it" in fault(device, body)
    counted = "mov.u32 %r0, %tid.x;\n bar.sync 0, 96; // here\n ret;"
    assert "barrier 0 waits for 96 threads, but only 64 reach it" in fault(device, counted)


def test_collectives_of_other_lanes_than_the_mask_says(device: Device) -> None:
    body = """
 mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 10; @%p1 bra $end;
 shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, -1; // here
$wait: bar.sync 0; ret;
$end: bar.sync 0; ret;"""
    assert "lanes 0xffffffff of the warp have to reach it together, but only 0xfffffc00 do" in fault(
        device, body, block=32
    )
    alone = "mov.u32 %r0, %tid.x;\n shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0x0fffffff; // here\n ret;"
    assert "the lane is not in its own mask 0x0fffffff" in fault(device, alone, block=32)
    outside = """
 mov.u32 %r0, %tid.x; setp.ge.u32 %p1, %r0, 16; @%p1 bra $end;
 shfl.sync.idx.b32 %r1, %r0, 20, 0x1f, 0xffff; // here
$end: ret;"""
    assert "takes the value of a lane that is not there" in fault(device, outside, block=32)


def test_traps_assertions_and_tables(device: Device) -> None:
    assert "the kernel trapped" in fault(device, "\n trap; // here\n ret;")
    table = "mov.u32 %r0, %tid.x; $t: .branchtargets $a, $b;\n brx.idx %r0, $t; // here\n$a: ret; $b: ret;"
    assert "index 2 of a table with 2 targets" in fault(device, table)


def test_launches_that_do_not_fit(device: Device) -> None:
    name = fresh("kernel")
    device.load(module(name, [], "ret;").replace("()\n{", "()\n.maxntid 64, 1, 1\n{"))
    device.launch(name, (2, 3), (8, 8))
    with pytest.raises(EmulationError, match="128 threads, but at most 64 are declared"):
        device.launch(name, (1,), (128,))
    with pytest.raises(EmulationError, match="an empty grid or block"):
        device.launch(name, (0,), (32,))
    with pytest.raises(EmulationError, match="no program has the kernel nothing"):
        device.launch("nothing", (1,), (32,))


@pytest.mark.parametrize(
    "line,said",
    [
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [tex, {%f1, %f2}];", r"PTX, line 9: .*tex"),
        ("add.weird.u32 %r1, %r2, %r3;", r"PTX, line 9: add\.weird\.u32: the modifier \.weird is not known"),
        ("wgmma.fence.sync.aligned;", r"PTX, line 9: the instruction wgmma\.fence\.sync\.aligned is not known"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1}, {%d1}, {%d1}, {%d1};", "that form is not known"),
        ("add.u32 %r1, %d2, %r3;", "has 64 bits, not 32"),
        ("mov.u32 %r1, %pm0;", "the register %pm0 is not known"),
        ("bra $nowhere;", r"there is no label \$nowhere"),
    ],
)
def test_what_is_not_known_is_refused_by_name_and_line(line: str, said: str) -> None:
    with pytest.raises(PtxError, match=said):
        translate(
            f"{HEAD}\n.visible .entry k()\n{{\n .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>;\n\n {line}\n ret;\n}}\n"
        )


def test_a_recursive_function_is_refused() -> None:
    text = ".func f() { call f; ret; }\n.visible .entry k() { call f; ret; }"
    with pytest.raises(PtxError, match="the function f calls itself"):
        translate(HEAD + text)


def test_kernels_of_one_name_have_to_be_the_same(device: Device) -> None:
    name = fresh("kernel")
    device.load(module(name, [], "mov.u32 %r1, 1; ret;"))
    device.load(module(name, [], "\n\n mov.u32 %r1, 1; ret;"))
    with pytest.raises(EmulationError, match="is another one than that of the same name"):
        device.load(module(name, [], "mov.u32 %r1, 2; ret;"))


def test_kernels_are_taken_back(device: Device) -> None:
    name = fresh("kernel")
    device.load(module(name, [], "mov.u32 %r1, 1; ret;"))
    device.forget()
    with pytest.raises(EmulationError, match=f"no program has the kernel {name}"):
        device.launch(name, (1,), (32,))
    device.load(module(name, [], "mov.u32 %r1, 2; ret;"))
    device.launch(name, (1,), (32,))
