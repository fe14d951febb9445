"""The real AITemplate container and the GPU's glue in a CPU session, over a stand-in CUDA runtime whose kernels do nothing."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from tests.gpu.stand_in import StandIn
from tests.gpu.tiny_gpu import CONSTANTS, TinyGpu, array, onnx_model

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]

Open = Callable[..., ort.InferenceSession]
THREADS, RUNS = 8, 500


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"x": array(*shape), "r": array(*shape)}


@pytest.mark.parametrize("rows, seq", [(4, 16), (1, 1), (3, 7)])
def test_inputs_outputs_and_constants_are_found_by_name(open_tiny: Open, rows: int, seq: int) -> None:
    """AITemplate orders inputs b, a. The op only copies, and copies are real."""
    a, b = array(rows, seq, 8), array(rows, seq, 8)
    first, second, third = open_tiny("views").run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(first, b.reshape(rows, seq, 2, 4))
    np.testing.assert_array_equal(second, a.reshape(rows, seq, 2, 4))
    np.testing.assert_array_equal(third, CONSTANTS["views"][0].reshape(8, 4))


def test_weights_are_the_sessions_own(open_tiny: Open) -> None:
    """Two sessions of one library with other weights, and a constant that AITemplate folds."""
    own = array(4, 8)
    a = array(2, 3, 8)
    sessions = [open_tiny("views"), open_tiny("views", constants=(own, array(2)))]
    thirds = [session.run(["third"], {"a": a, "b": a})[0] for session in sessions * 2]
    for third, constant in zip(thirds, [CONSTANTS["views"][0], own] * 2, strict=True):
        np.testing.assert_array_equal(third, constant.reshape(8, 4))


@pytest.mark.parametrize("batch, seq", [(1, 1), (8, 64), (3, 37), (2, 64), (8, 1)])
def test_output_shapes_follow_the_inputs(open_tiny: Open, stand_in: StandIn, batch: int, seq: int) -> None:
    """The glue refuses when AITemplate finds another shape than it allocated, so a run that succeeds compared them."""
    before = stand_in.calls("launch")
    z, y = open_tiny("layers").run(None, feeds(batch, seq, 64))
    assert z.shape == y.shape == (batch, seq, 64)
    assert stand_in.calls("launch") - before == 4


def test_kernels_get_the_inputs_in_their_places(open_tiny: Open, stand_in: StandIn) -> None:
    """sigmoid(r + x) is launched with the output, r and x."""
    session = open_tiny("layers")
    values = {name: ort.OrtValue.ortvalue_from_numpy(data) for name, data in feeds(2, 5, 64).items()}
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 5, 64), np.float32))
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("y", y)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    launches = [stand_in.launch(ago) for ago in range(4)]
    elementwise = [launch.arguments[:3] for launch in launches if "fused_elementwise" in launch.kernel]
    assert (y.data_ptr(), values["r"].data_ptr(), values["x"].data_ptr()) in elementwise


@pytest.mark.parametrize(
    "x, r, sentence",
    [
        ((9, 3, 64), (9, 3, 64), "tiny_0: 'batch' (dim 0 of input 'x') is 9, outside its declared range 1..8; rebuild"),
        ((0, 3, 64), (0, 3, 64), "tiny_0: 'batch' (dim 0 of input 'x') is 0, outside its declared range 1..8"),
        ((2, 65, 64), (2, 65, 64), "tiny_0: 'seq' (dim 1 of input 'x') is 65, outside its declared range 1..64"),
        ((2, 3, 64), (2, 4, 64), "tiny_0: dim 1 of input 'r' is 4 but 'seq' is 3 in input 'x'"),
        ((2, 3, 63), (2, 3, 64), "tiny_0: dim 2 of input 'x' is 63, expected 64"),
        ((2, 64), (2, 3, 64), "tiny_0: input 'x' has 2 dims, expected 3"),
    ],
)
def test_shapes_that_do_not_fit(open_tiny: Open, x: tuple[int, ...], r: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument) as caught:
        open_tiny("layers").run(None, {"x": np.zeros(x, np.float32), "r": np.zeros(r, np.float32)})
    assert sentence in str(caught.value)


def test_outputs_without_elements(open_tiny: Open, stand_in: StandIn) -> None:
    """Some outputs may be empty while others are not."""
    nothing = np.zeros((0, 5, 8), np.float32)
    first, second, third = open_tiny("views").run(None, {"a": nothing, "b": nothing})
    assert first.shape == second.shape == (0, 5, 2, 4)
    np.testing.assert_array_equal(third, CONSTANTS["views"][0].reshape(8, 4))


def test_memory_that_is_not_aligned_is_refused(open_tiny: Open) -> None:
    """Kernels read 16 bytes at once; on a GPU that would end the whole process's use of it."""
    values = feeds(2, 3, 64)
    odd = np.zeros(2 * 3 * 64 + 1, np.float32)[1:].reshape(2, 3, 64)
    with pytest.raises(Exception, match=r"tiny_0: the memory of input 'r' begins at no multiple of 16 bytes"):
        open_tiny("layers").run(None, {**values, "r": odd})


def test_a_weight_of_another_size_is_refused(open_tiny: Open) -> None:
    with pytest.raises(Exception, match=r"weight 'c0_' is 64 bytes .* built for 128 bytes"):
        open_tiny("views", constants=(array(4, 4), array(2)))


def test_weights_on_the_host_are_refused(open_tiny: Open, stand_in: StandIn) -> None:
    with stand_in.host_memory(), pytest.raises(Exception, match="tiny_1: a weight is not in the GPU's memory"):
        open_tiny("views")


def test_no_run_waits_for_the_device(open_tiny: Open, stand_in: StandIn) -> None:
    """The device is waited for once, when the kernel is made; constants are folded then and never again."""
    gc.collect()  # sessions that end wait, too
    waits = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMalloc")
    before = [stand_in.calls(name) for name in waits]
    session = open_tiny("views")
    made = [stand_in.calls(name) for name in waits]
    assert made[0] == before[0] + 1
    a = array(2, 3, 8)
    copies = stand_in.calls("cudaMemcpyAsync")
    for _ in range(50):
        session.run(None, {"a": a, "b": a})
    assert [stand_in.calls(name) for name in waits] == made
    assert stand_in.calls("cudaMemcpyAsync") - copies == 50 * 3


def test_another_current_device_is_kept(open_tiny: Open, stand_in: StandIn) -> None:
    """Kernels run on the session's device, whatever the thread's current one is, which it is again afterwards."""
    session = open_tiny("layers")
    before = stand_in.launches_on_other_devices
    with stand_in.device(1):
        session.run(None, feeds(1, 2, 64))
        assert stand_in.current_device == 1
        assert open_tiny("layers") is not None
        assert stand_in.current_device == 1
    assert stand_in.launches_on_other_devices == before


@pytest.mark.parametrize("runtimes, events", [(None, 2), ("1", 1), ("5", 5)])
def test_the_number_of_runtimes(open_tiny: Open, stand_in: StandIn, runtimes: str | None, events: int) -> None:
    """Each runtime has an event of its own, and so has its constant folder."""
    before = stand_in.calls("cudaEventCreate")
    open_tiny("layers", **({"runtimes": runtimes} if runtimes else {}))
    assert stand_in.calls("cudaEventCreate") - before == 2 * events


def test_a_number_of_runtimes_that_is_none(open_tiny: Open) -> None:
    with pytest.raises(Exception, match=r"'custom_op.tiny_0.runtimes' is '0', expected a number from 1 to 9"):
        open_tiny("layers", runtimes="0")


def test_what_aitemplate_says_is_in_the_status(open_tiny: Open, stand_in: StandIn) -> None:
    session = open_tiny("layers")
    values = feeds(2, 3, 64)
    with stand_in.failing("cudaEventRecord"), pytest.raises(Exception, match=r"tiny_0: EventRecord.*out of memory"):
        session.run(None, values)
    with stand_in.failing("launch"), pytest.raises(Exception, match=r"tiny_0: .*out of memory"):
        session.run(None, values)
    assert session.run(None, values)[0].shape == (2, 3, 64)


def test_a_kernel_that_can_not_be_made_is_a_status(open_tiny: Open, stand_in: StandIn) -> None:
    with (
        stand_in.failing("cudaEventCreate", after=1),
        pytest.raises(Exception, match=r"tiny_0: CreateEvent.*out of memory"),
    ):
        open_tiny("layers")
    with stand_in.failing("cudaDeviceSynchronize"), pytest.raises(Exception, match="the constants can't be folded"):
        open_tiny("views")
    assert open_tiny("layers").run(None, feeds(1, 1, 64))


def test_every_allocation_may_fail(tiny_gpu: TinyGpu, stand_in: StandIn) -> None:
    driver = ctypes.CDLL(str(tiny_gpu.folder / "libmodel_driver.so"))
    driver.create_and_destroy.restype = ctypes.c_int64
    message, made = ctypes.create_string_buffer(600), ctypes.c_int64()

    def left(failing: int, names: int = 2) -> int:
        numbers = ctypes.c_int64(failing), ctypes.c_size_t(names)
        return int(driver.create_and_destroy(*numbers, message, ctypes.c_size_t(600), ctypes.byref(made)))

    assert left(-1) == 0
    assert message.value == b""
    assert left(-1, names=1) == 0
    assert message.value == b"the graph has no 'o1_', which the model needs"
    failed = 0
    for failing in range(made.value):
        assert left(failing) == 0
        failed += b"no memory for a buffer of" in message.value
    assert failed >= 4  # blobs and workspaces of two runtimes; the others are of 0 bytes


LIMITED = """
import ctypes, sys
import numpy as np, onnxruntime as ort
folder, model, limit = sys.argv[1:]
ctypes.CDLL(f"{folder}/libstand_in.so", mode=ctypes.RTLD_GLOBAL)
memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(memory, ort.OrtArenaCfg({"max_mem": int(limit), "arena_extend_strategy": 1}))
options = ort.SessionOptions()
options.add_session_config_entry("session.use_env_allocators", "1")
options.register_custom_ops_library(f"{folder}/libtiny_stand_in.so")
try:
    session = ort.InferenceSession(open(model, "rb").read(), options, providers=["CPUExecutionProvider"])
    value = np.zeros((1, 2, 64), np.float32)
    print(session.run(None, {"x": value, "r": value})[0].shape)
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    "limit, said",
    [
        (1 << 18, "tiny_0: no memory for a buffer of"),
        (1 << 19, "tiny_0: no memory for a buffer of"),
        (1 << 26, "(1, 2, 64)"),
    ],
)
def test_a_session_without_memory(tiny_gpu: TinyGpu, tmp_path: Path, limit: int, said: str) -> None:
    """AITemplate's buffers come from the session's allocator: one that may give little fails in a sentence."""
    (tmp_path / "model.onnx").write_bytes(onnx_model("layers"))
    command = [sys.executable, "-c", LIMITED, str(tiny_gpu.folder), str(tmp_path / "model.onnx"), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_many_threads_and_no_leak(open_tiny: Open) -> None:
    session = open_tiny("layers")
    views = open_tiny("views")
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(RUNS):
            batch, seq = int(generator.integers(1, 9)), int(generator.integers(1, 65))
            value = np.zeros((batch, seq, 64), np.float32)
            if session.run(["z"], {"x": value, "r": value})[0].shape != value.shape:
                failures.append(f"{batch}, {seq}")
            a = np.full((seed % 4 + 1, 2, 8), seed, np.float32)
            if not np.array_equal(views.run(["first"], {"a": -a, "b": a})[0].reshape(a.shape), a):
                failures.append(f"thread {seed} got another's data")

    def round_of_threads() -> None:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    round_of_threads()
    before = resident_bytes()
    round_of_threads()
    assert not failures
    assert resident_bytes() - before < 4 << 20


def test_sessions_leave_nothing_behind(open_tiny: Open) -> None:
    for _ in range(20):
        open_tiny("layers")
    before = resident_bytes()
    for _ in range(100):
        open_tiny("layers")
    assert resident_bytes() - before < 8 << 20
