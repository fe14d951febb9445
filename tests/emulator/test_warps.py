"""What lanes do together, and how they part and meet again."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ortisan.emulator import Device, translate
from ortisan.errors import EmulationError
from tests.emulator.ptx import Array, fresh, integers, module, run

pytestmark = pytest.mark.build

START = """mov.u32 %r0, %tid.x; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
 mad.wide.u32 %d1, %r0, 4, %d1; mad.wide.u32 %d2, %r0, 4, %d2; ld.global.u32 %r1, [%d1];"""


def lanes(
    device: Device, body: str, data: Array | None = None, *, rows: int = 1, block: int = 32
) -> tuple[Array, Array]:
    """in[thread] is in %r1; row k of the results is stored at [%d2 + 4 * block * k]."""
    data = integers("u4", block if block >= 64 else 64)[:block] if data is None else data
    out = np.zeros((rows, block), "u4")
    run(device, ["u64 in", "u64 out"], START + body + " ret;", data, out, block=(block,))
    return data, out


@pytest.mark.parametrize("width", [32, 16, 4])
def test_shuffles(device: Device, width: int) -> None:
    up, other = (32 - width) << 8, (32 - width) << 8 | 0x1F
    text = "".join(
        f"shfl.sync.{way}.b32 %r{10 + k}|%p{k}, %r1, {by}, {c}, -1; selp.u32 %r{20 + k}, 1, 0, %p{k};"
        for k, (way, by, c) in enumerate([("up", 3, up), ("down", 3, other), ("bfly", 5, other), ("idx", 2, other)])
    )
    text += "".join(
        f"st.global.u32 [%d2+{256 * k}], %r{10 + k}; st.global.u32 [%d2+{256 * k + 128}], %r{20 + k};" for k in range(4)
    )
    data, out = lanes(device, text, rows=8)
    lane = np.arange(32)
    first = lane // width * width
    sources = [lane - 3, lane + 3, lane ^ 5, first + 2 % width]
    inside = [lane - 3 >= first, lane + 3 < first + width, (lane ^ 5) < first + width, first + 2 < first + width]
    for k in range(4):
        source = np.where(inside[k], sources[k], lane)
        np.testing.assert_array_equal(out[2 * k], data[source])
        np.testing.assert_array_equal(out[2 * k + 1], inside[k])


def test_votes_and_matches(device: Device) -> None:
    data = np.arange(32, dtype="u4") // 5 % 3
    text = """
 setp.eq.u32 %p1, %r1, 1; setp.lt.u32 %p2, %r1, 9; vote.sync.ballot.b32 %r2, %p1, -1; vote.sync.all.pred %p3, %p2, -1;
 vote.sync.any.pred %p4, !%p2, -1; vote.sync.uni.pred %p5, %p1, -1; selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 1, 0, %p4; selp.u32 %r5, 1, 0, %p5;
 match.any.sync.b32 %r6, %r1, -1; match.all.sync.b32 %r7|%p6, %r1, -1; match.all.sync.b32 %r8|%p7, 3, -1; activemask.b32 %r9;
 st.global.u32 [%d2], %r2; st.global.u32 [%d2+128], %r3; st.global.u32 [%d2+256], %r4; st.global.u32 [%d2+384], %r5;
 st.global.u32 [%d2+512], %r6; st.global.u32 [%d2+640], %r7; st.global.u32 [%d2+768], %r8; st.global.u32 [%d2+896], %r9;"""
    _, out = lanes(device, text, data, rows=8)
    bits = [int(sum(1 << k for k in range(32) if data[k] == value)) for value in range(3)]
    np.testing.assert_array_equal(out[0], bits[1])
    np.testing.assert_array_equal(out[1:4, 0], [1, 0, 0])
    np.testing.assert_array_equal(out[4], [bits[value] for value in data])
    np.testing.assert_array_equal(out[5], 0)
    np.testing.assert_array_equal(out[6:], 0xFFFFFFFF)


def test_reductions_of_a_warp(device: Device) -> None:
    forms = ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"]
    text = "".join(
        f"redux.sync.{form} %r{10 + k}, %r1, -1; st.global.u32 [%d2+{128 * k}], %r{10 + k};"
        for k, form in enumerate(forms)
    )
    data, out = lanes(device, text, rows=6)
    want = [data.sum(dtype="u4"), data.view("i4").min().view("u4"), data.max(), np.bitwise_and.reduce(data),
            np.bitwise_or.reduce(data), np.bitwise_xor.reduce(data)]  # fmt: skip
    np.testing.assert_array_equal(out, np.repeat(np.array(want, "u4")[:, None], 32, 1))


def test_lanes_of_different_masks_shuffle_apart(device: Device) -> None:
    text = """
 setp.lt.u32 %p1, %r0, 8; selp.b32 %r2, 0xff, 0xffffff00, %p1; shfl.sync.idx.b32 %r3, %r1, 9, 0x1f, %r2;
 @%p1 bra $low; shfl.sync.idx.b32 %r3, %r1, 31, 0x1f, 0xffffff00; bra $end; $low: shfl.sync.idx.b32 %r3, %r1, 7, 0x1f, 0xff;
 $end: st.global.u32 [%d2], %r3;"""
    text = text.replace("%r1, 9, 0x1f", "%r1, %r4, 0x1f").replace(
        "shfl.sync.idx.b32 %r3, %r1, %r4", "selp.u32 %r4, 1, 9, %p1; shfl.sync.idx.b32 %r3, %r1, %r4"
    )
    data, out = lanes(device, text)
    np.testing.assert_array_equal(out[0], np.where(np.arange(32) < 8, data[7], data[31]))


def test_loops_of_different_lengths(device: Device) -> None:
    data = (np.arange(64, dtype="u4") * 7) % 23
    text = """
 mov.u32 %r2, 0; mov.u32 %r3, 0;
$loop: setp.ge.u32 %p1, %r2, %r1; @%p1 bra $done; and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra $even;
 add.u32 %r3, %r3, 100; bra.uni $next;
$even: add.u32 %r3, %r3, %r2;
$next: add.u32 %r2, %r2, 1; bra.uni $loop;
$done: bar.warp.sync -1; shfl.sync.bfly.b32 %r5, %r3, 1, 0x1f, -1; st.global.u32 [%d2], %r3; st.global.u32 [%d2+256], %r5;"""
    _, out = lanes(device, text, data, rows=2, block=64)
    want = np.array([sum(k if k % 2 == 0 else 100 for k in range(n)) for n in data], "u4")
    np.testing.assert_array_equal(out[0], want)
    np.testing.assert_array_equal(out[1], want[np.arange(64) ^ 1])


def test_branches_by_index(device: Device) -> None:
    data = np.array([0, 1, 2, 3] * 8, "u4")
    text = """
$targets: .branchtargets $a, $b, $c, $a;
 brx.idx %r1, $targets;
$b: mov.u32 %r2, 20; bra $end;
$a: mov.u32 %r2, 10; bra $end;
$c: mov.u32 %r2, 30;
$end: st.global.u32 [%d2], %r2;"""
    _, out = lanes(device, text, data)
    np.testing.assert_array_equal(out[0], np.array([10, 20, 30, 10], "u4")[data])


def test_lanes_that_leave_early_are_not_waited_for(device: Device) -> None:
    text = """
 setp.lt.u32 %p1, %r0, 40; @%p1 exit; bar.sync 0; activemask.b32 %r2; shfl.sync.down.b32 %r3, %r1, 1, 0x1f, -1; st.global.u32 [%d2], %r2;
 st.global.u32 [%d2+384], %r3;"""
    with device.checking(3 & ~2):
        data, out = lanes(device, text, rows=2, block=96)
    np.testing.assert_array_equal(out[0, :40], 0)
    np.testing.assert_array_equal(out[0, 40:64], 0xFFFFFF00)
    np.testing.assert_array_equal(out[0, 64:], 0xFFFFFFFF)
    np.testing.assert_array_equal(out[1, 64:95], data[65:96])


def test_warps_pass_values_over_barriers(device: Device) -> None:
    text = """
 .shared .align 4 .b8 tile[512]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 4, %r2; mov.u32 %r5, 0;
$loop: st.shared.u32 [%r3], %r1; bar.sync 0; xor.b32 %r4, %r0, 127; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r1, [%r4]; add.u32 %r1, %r1, 1;
 bar.sync 0; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 3; @%p1 bra $loop; st.global.u32 [%d2], %r1;"""
    data, out = lanes(device, text, block=128)
    np.testing.assert_array_equal(out[0], data[::-1] + np.uint32(3))


def test_votes_of_a_block(device: Device) -> None:
    data = np.arange(96, dtype="u4")
    text = """
 setp.lt.u32 %p1, %r1, 50; bar.red.popc.u32 %r2, 0, %p1; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1;
 barrier.sync.aligned 1; barrier.cta.red.aligned.and.pred %p4, 2, 96, %p3; selp.u32 %r3, 1, 0, %p2; selp.u32 %r4, 1, 0, %p3; selp.u32 %r5, 1, 0, %p4;
 st.global.u32 [%d2], %r2; st.global.u32 [%d2+384], %r3; st.global.u32 [%d2+768], %r4; st.global.u32 [%d2+1152], %r5;"""
    _, out = lanes(device, text, data, rows=4, block=96)
    np.testing.assert_array_equal(out, np.repeat(np.array([[50], [0], [1], [1]], "u4"), 96, 1))


def test_producers_arrive_and_consumers_wait(device: Device) -> None:
    text = """
 .shared .align 4 .b8 tile[128]; mov.u32 %r2, tile; and.b32 %r3, %r0, 31; mad.lo.u32 %r2, %r3, 4, %r2; setp.lt.u32 %p1, %r0, 32; @%p1 bra $take;
 st.shared.u32 [%r2], %r1; bar.arrive 1, 64; bra $end;
$take: bar.sync 1, 64; ld.shared.u32 %r4, [%r2]; st.global.u32 [%d2], %r4;
$end: """
    data, out = lanes(device, text, block=64)
    np.testing.assert_array_equal(out[0, :32], data[32:])


def test_blocks_wait_for_blocks_before_them(device: Device) -> None:
    flag, out = np.zeros(1, "u4"), np.zeros(16, "u4")
    text = """
 ld.param.u64 %d1, [flag]; ld.param.u64 %d2, [out]; mov.u32 %r0, %ctaid.x;
$wait: ld.acquire.gpu.global.u32 %r1, [%d1]; setp.ne.u32 %p1, %r1, %r0; @%p1 bra $wait;
 mad.wide.u32 %d2, %r0, 4, %d2; st.global.u32 [%d2], %r1; add.u32 %r1, %r1, 1; st.release.gpu.global.u32 [%d1], %r1; ret;"""
    run(device, ["u64 flag", "u64 out"], text, flag, out, grid=(16,), block=(1,))
    np.testing.assert_array_equal(out, np.arange(16))


def test_each_kernel_is_counted(device: Device) -> None:
    """Launches, blocks and bytes, in the order of first launches."""
    names = [fresh("first"), fresh("second")]
    body = "mov.u32 %r0, %tid.x; ld.param.u64 %d1, [out]; mad.wide.u32 %d1, %r0, 4, %d1; ld.global.u32 %r1, [%d1]; "
    for name in names:
        device.load(module(name, ["u64 out"], body + "add.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1; ret;"))
    out = np.zeros(32, "u4")
    device.reset_counters()
    for name, grid, threads in ((names[1], 3, 32), (names[0], 1, 8), (names[1], 2, 16)):
        device.launch(name, (grid,), (threads,), out)
    counted = device.kernel_counters()
    assert list(counted) == [names[1], names[0]]
    first, second = (counters for _, counters in counted.values())
    assert (first.launches, first.blocks, first.global_load_bytes) == (2, 5, 4 * (3 * 32 + 2 * 16))
    assert (second.launches, second.blocks, second.global_store_bytes) == (1, 1, 4 * 8)
    total = device.counters()
    assert total.instructions == first.instructions + second.instructions
    assert total.launches == 3
    device.reset_counters()
    assert device.kernel_counters() == {}


def test_programs_take_turns(device: Device) -> None:
    """Two libraries have kernels of one name."""
    name = fresh("kernel")
    add = "ld.param.u64 %d1, [out]; ld.global.u32 %r1, [%d1]; add.u32 %r1, %r1, {}; st.global.u32 [%d1], %r1; ret;"
    ones, tens = ((translate(module(name, ["u64 out"], add.format(number))),) for number in (1, 10))
    out = np.zeros(1, "u4")
    for programs in (ones, tens, tens, ones):
        device.use(programs)
        device.launch(name, (1,), (1,), out)
    assert out[0] == 22
    device.forget()
    with pytest.raises(EmulationError, match=f"no program has the kernel {name}"):
        device.launch(name, (1,), (1,), out)


@pytest.mark.parametrize(
    "name, short",
    [
        ("_Z4normPfi", "norm"),
        ("_Z4rowsIfLi4EEvPT_", "rows<float>"),
        ("_ZN7cutlass6KernelIN2ns9UniversalI1A1BEEEEvNT_6ParamsE", "cutlass::Kernel<Universal>"),
        ("_ZN7cutlass7Kernel2INS_4gemm6kernel5FusedIS7_EEEvNT_6ParamsE", "cutlass::Kernel2<Fused>"),
        ("_ZN12_GLOBAL__N_16gatherILi4EEEvPl", "(anonymous namespace)::gather<4>"),
    ],
)
def test_kernels_have_short_names(name: str, short: str, device: Device) -> None:
    """In counters and in what faults say."""
    device.load(module(name, ["u64 out"], "ld.param.u64 %d1, [out]; st.global.u32 [%d1], 1; ret;"))
    device.reset_counters()
    with pytest.raises(EmulationError, match=f"^{re.escape(short)}, line"):
        device.launch(name, (1,), (1,), np.uint64(8))
    assert device.kernel_counters()[name][0] == short
