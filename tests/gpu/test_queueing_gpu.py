"""Runs on several streams, failures among them, and errors that were there before: over the CUDA runtime that stands in."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.gpu.stand_in import StandIn
from tests.gpu.tiny_gpu import TinyGpu

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]


class Driver:
    """One AITemplate model through the glue's own functions, and the runtime's."""

    def __init__(self, tiny: TinyGpu, stand_in: StandIn) -> None:
        self.model = ctypes.CDLL(str(tiny.folder / "libmodel_driver.so"))
        self.cuda = stand_in.library
        self.model.open_model.restype = ctypes.c_void_p

    @contextmanager
    def opened(self, runtimes: int) -> Iterator[Callable[[ctypes.c_void_p | None], str]]:
        """A function that queues a run on a stream and gives what went wrong."""
        message = ctypes.create_string_buffer(600)
        state = self.model.open_model(ctypes.c_size_t(runtimes), message, ctypes.c_size_t(600))
        assert message.value == b""

        def run(stream: ctypes.c_void_p | None) -> str:
            said = ctypes.create_string_buffer(600)
            self.model.run_model(ctypes.c_void_p(state), stream, said, ctypes.c_size_t(600))
            return said.value.decode()

        try:
            yield run
        finally:
            self.model.close_model(ctypes.c_void_p(state))

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        assert self.cuda.cudaStreamCreate(ctypes.byref(stream)) == 0
        return stream


@pytest.fixture
def driver(tiny_gpu: TinyGpu, stand_in: StandIn) -> Driver:
    return Driver(tiny_gpu, stand_in)


@pytest.mark.parametrize("runtimes", [1, 2, 3])
@pytest.mark.parametrize("streams", [1, 4])
def test_no_run_waits_for_another_on_the_host(driver: Driver, stand_in: StandIn, runtimes: int, streams: int) -> None:
    waits = ("cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize")
    places = [driver.stream() for _ in range(streams)]
    with driver.opened(runtimes) as run:
        before = [stand_in.calls(name) for name in waits]
        behind = stand_in.calls("cudaStreamWaitEvent")
        for turn in range(24):
            assert run(places[turn % streams]) == ""
        assert [stand_in.calls(name) for name in waits] == before
        queued_behind = stand_in.calls("cudaStreamWaitEvent") - behind
        assert queued_behind == 24 - min(runtimes, streams), "the stream waits for the run that used the buffers before"


def test_what_fails_is_over_before_its_buffers_are_used_again(driver: Driver, stand_in: StandIn) -> None:
    stream = driver.stream()
    with driver.opened(1) as run:
        before = stand_in.calls("cudaStreamSynchronize")
        with stand_in.failing("launch", after=2):
            assert "out of memory" in run(stream)
        assert stand_in.calls("cudaStreamSynchronize") == before + 1
        assert run(stream) == ""


def test_failures_among_threads_leave_no_thread_waiting(driver: Driver, stand_in: StandIn) -> None:
    said: list[str] = []
    with driver.opened(2) as run:

        def work(seed: int) -> None:
            generator, stream = random.Random(seed), driver.stream()
            for _ in range(150):
                if generator.random() < 0.3:
                    with stand_in.failing("launch", after=generator.randrange(3)):
                        said.append(run(stream))
                else:
                    said.append(run(stream))

        threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert any(said)
    assert all("out of memory" in text or "Error Internal" in text for text in said if text), set(said)


def test_the_error_of_an_earlier_call_is_neither_hidden_nor_taken_for_our_own(driver: Driver) -> None:
    with driver.opened(1) as run:
        assert driver.cuda.cudaFree(ctypes.c_void_p(0x1230)) != 0
        assert run(None) == (
            "an earlier CUDA call of this thread, not of this op, failed: invalid argument "
            "(memory is freed that was not allocated)"
        )
        assert run(None) == ""


def test_a_stream_that_is_captured_is_refused(driver: Driver) -> None:
    stream = driver.stream()
    with driver.opened(1) as run:
        assert driver.cuda.cudaStreamBeginCapture(stream, 0) == 0
        assert "captured as a CUDA graph" in run(stream)
        assert driver.cuda.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) == 0
        assert run(stream) == ""
