"""Decoders with their cache in place, built: shared memory is written where it is new, other memory is copied."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.tools.binding import import_binding
from ortisan.runtime.artifact import Artifact
from tests.models import decoder
from tests.models.text import text_model
from tests.tolerances import LAYERS

pytestmark = pytest.mark.build

CAPACITY, LENGTHS = 13, (5, 1, 1, 3, 1, 2)
SENTINEL = 12345.0


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Artifact]:
    folder = tmp_path_factory.mktemp("decoder") / request.param
    model = decoder.dynamo(request.param)
    return request.param, ortisan.build(model, folder, cache="in-place", keep="all", tune="off")


@functools.cache
def stock(kind: str) -> ort.InferenceSession:
    return ort.InferenceSession(decoder.dynamo(kind).SerializeToString())


def bind(session: Any, feeds: dict[str, np.ndarray], cache: dict[str, Any]) -> Any:
    """An IOBinding that has each cache as an input and, in the same memory, as an output."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(decoder.LOGITS)
    for past, present in zip(decoder.PAST, decoder.PRESENT, strict=True):
        binding.bind_ortvalue_input(past, cache[past])
        binding.bind_ortvalue_output(present, cache[past])
    return binding


@pytest.mark.torch
@pytest.mark.parametrize(("batch", "padding"), [(1, "none"), (3, "left"), (3, "right")])
def test_shared_memory(built: tuple[str, Artifact], batch: int, padding: str) -> None:
    kind, artifact = built
    session = ortisan.load(artifact)
    past, arrays = decoder.empty_cache(kind, batch), decoder.empty_cache(kind, batch, CAPACITY, SENTINEL)
    buffers = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    for feeds in decoder.steps(batch, LENGTHS, padding):
        want_logits, *want = stock(kind).run(list(decoder.OUTPUTS), {**feeds, **past})
        before = {name: array.copy() for name, array in arrays.items()}
        binding = bind(session, feeds, buffers)
        session.run_with_iobinding(binding)
        outputs = dict(zip(decoder.OUTPUTS, binding.get_outputs(), strict=True))
        np.testing.assert_allclose(outputs[decoder.LOGITS].numpy(), want_logits, atol=LAYERS, rtol=0)
        total, new = feeds["attention_mask"].shape[1], feeds["input_ids"].shape[1]
        for name, present, cache in zip(decoder.PAST, decoder.PRESENT, want, strict=True):
            assert outputs[present].data_ptr() == buffers[name].data_ptr() == arrays[name].ctypes.data
            np.testing.assert_allclose(arrays[name][:, :, :total], cache, atol=LAYERS, rtol=0)
            np.testing.assert_array_equal(arrays[name][:, :, : total - new], before[name][:, :, : total - new])
            assert (arrays[name][:, :, total:] == SENTINEL).all()
        past = dict(zip(decoder.PAST, want, strict=True))


@pytest.mark.torch
def test_other_memory_is_a_copy(built: tuple[str, Artifact]) -> None:
    kind, artifact = built
    session = ortisan.load(artifact)
    cache = decoder.empty_cache(kind, 2, CAPACITY, SENTINEL)
    (feeds,) = decoder.steps(2, (4,))
    present = session.run(list(decoder.PRESENT), {**feeds, **cache})
    for array, before in zip(present, cache.values(), strict=True):
        assert (before == SENTINEL).all()
        assert (array[:, :, 4:] == SENTINEL).all()
        assert not (array[:, :, :4] == SENTINEL).any()


@pytest.mark.torch
def test_a_full_cache_is_an_error(built: tuple[str, Artifact]) -> None:
    kind, artifact = built
    session = ortisan.load(artifact)
    cache = decoder.empty_cache(kind, 1, CAPACITY, SENTINEL)
    buffers = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in cache.items()}
    feeds = dict(decoder.steps(1, (CAPACITY, 1))[1])
    with pytest.raises(Exception, match=r"cache/past_key_values\.0\.key has size 13, but needs at least 14"):
        session.run_with_iobinding(bind(session, feeds, buffers))
    feeds["attention_mask"] = feeds["attention_mask"][:, :0]
    with pytest.raises(Exception, match=r"cache/past_key_values\.0\.key has size -1, but needs at least 0"):
        session.run_with_iobinding(bind(session, feeds, buffers))
    assert all((array == SENTINEL).all() for array in cache.values())


@pytest.mark.torch
def test_the_manifest_names_what_may_be_shared(built: tuple[str, Artifact]) -> None:
    _, artifact = built
    assert artifact.shared == dict(zip(decoder.PAST, decoder.PRESENT, strict=True))
    assert artifact.manifest["options"]["cache"] == "in-place"
    assert artifact.verification is not None
    assert sum("cache_capacity=29" in case for case in artifact.verification.cases) == 2


def paged_model() -> onnx.ModelProto:
    """A cache whose rows are pages of memory."""
    body = "k = Mul(x, x) present = Concat<axis=1>(past, k) y = ReduceSum<keepdims=0>(present)"
    signature = (
        "(int64[B,T] attention_mask, float[B,P,1024] past, float[B,S,1024] x) => (float y, float[B,T,1024] present)"
    )
    return text_model(signature, body, opset=18)


PAGES = """
import ctypes, mmap, sys
import numpy as np, onnxruntime as ort, ortisan

rows, row, page = 9, 5, 4096
memory = mmap.mmap(-1, rows * page)
array = np.frombuffer(memory, np.float32).reshape(1, rows, 1024)
array[:, :row] = 1
libc = ctypes.CDLL(None, use_errno=True)
def protect(first, count):
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + first * page), count * page, mmap.PROT_READ) == 0
protect(0, row)
protect(row + 1, rows - row - 1)
session = ortisan.load(sys.argv[1])
cache = ort.OrtValue.ortvalue_from_numpy(array)
binding = session.io_binding()
binding.bind_cpu_input("attention_mask", np.ones((1, row + 1), np.int64))
binding.bind_cpu_input("x", np.full((1, 1, 1024), 2, np.float32))
binding.bind_output("y")
binding.bind_ortvalue_input("past", cache)
binding.bind_ortvalue_output("present", cache)
session.run_with_iobinding(binding)
assert (array[0, row] == 4).all() and (array[0, row + 1 :] == 0).all()
print("written", binding.get_outputs()[0].numpy())
"""


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paged")
    artifact = ortisan.build(paged_model(), folder / "pages", cache="in-place", keep="all", tune="off", name="pages")
    ortisan.generate(
        ortisan.compile(paged_model(), cache="in-place", name="pages", whole_graph=True),
        folder / "module",
        bindings=True,
    )
    return artifact.folder.parent


def test_only_the_new_rows_are_written(paged: Path) -> None:
    """All pages but that of the new row are read-only: any other write ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", PAGES, str(paged / "pages")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["written", str(5 * 1024 + 4 * 1024.0)]


def test_the_python_module_writes_in_place(paged: Path) -> None:
    (file,) = (paged / "module").glob("pages_binding*.so")
    module = import_binding(file)
    (described,) = module.graphs()
    inputs = [tensor["name"] for tensor in described["inputs"]]
    outputs = [tensor["name"] for tensor in described["outputs"]]
    past, present = inputs.index("past"), outputs.index("present")
    assert described["shared"] == {past: present}
    cache = np.full((2, 9, 1024), SENTINEL, np.float32)
    cache[:, :5] = 1
    feeds = {"attention_mask": np.ones((2, 7), np.int64), "x": np.full((2, 2, 1024), 2, np.float32), "past": cache}
    out = [cache if name == "present" else None for name in outputs]
    graph = module.Graph(0, threads=2)
    copied = graph.run([feeds[name] for name in inputs])
    assert (cache[:, 5:] == SENTINEL).all()
    results = graph.run([feeds[name] for name in inputs], out=out)
    assert results[present] is cache
    np.testing.assert_array_equal(cache, copied[present])
    assert (cache[:, 5:7] == 4).all()
    assert (cache[:, 7:] == SENTINEL).all()
    with pytest.raises(ValueError, match="out for 'present' overlaps input 'past' in memory"):
        graph.run(
            [cache[:1] if name == "past" else feeds[name][:1] for name in inputs],
            out=[
                cache.reshape(-1)[1024 : 1024 * 10].reshape(1, 9, 1024) if name == "present" else None
                for name in outputs
            ],
        )
