"""What AITemplate can't do, or does wrongly, stays in ONNX Runtime with a reason; bad targets and options are one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ortisan
from ortisan.codegen.ait.adapter import Adapter, AitSettings
from ortisan.codegen.ait.backend import AitPlan, AitPlanner
from ortisan.codegen.ait.blame import by_name
from ortisan.codegen.ait.model import AitModel
from ortisan.codegen.ait.prepare import prepare
from ortisan.codegen.ait.worker.tiles import choose_tile, problem_size
from ortisan.codegen.backend import Request, parse_target
from ortisan.models import Gpt2Size, gpt2
from ortisan.pipeline.options import Options
from ortisan.registry.builder import Builder
from ortisan.registry.dims import Dim, symbol
from ortisan.registry.dtypes import DType
from ortisan.registry.graph import Graph, TensorType, Value
from ortisan.registry.ops import (
    Attention,
    Bmm,
    Conv2d,
    DynamicSlice,
    Expand,
    Pool2d,
    Resize2d,
)
from tests.ait.gpu_models import GpuModel, gpu_models, rules_only

S, R = symbol("s"), symbol("r")


def reason(
    dtype: str, shape: tuple[Dim, ...], write: Callable[[Builder, Value], Any], **bounds: tuple[int, int]
) -> str:
    b = Builder("refused")
    b.origin = "node"
    made = write(b, b.input("x", TensorType(DType(dtype), shape)))
    graph = b.finish([made] if isinstance(made, Value) else made, bounds=bounds or {"s": (1, 8)})
    (text,) = prepare(graph).refused.values()
    return text


def _convolved(b: Builder, x: Value, group: int = 1, pads: Any = (0, 0, 0, 0)) -> Value:
    filters = b.constant(np.ones((4, 3, 3, 4 // group), np.float32), "filters")
    return b.add(Conv2d(pads=pads, group=group), x, filters)


REFUSED = {
    "doubles": ("float64", (S,), lambda b, x: b.elementwise("EXP", x), "no float64"),
    "dynamic inner size": ("float32", (2, 4, S), lambda b, x: b.add(Bmm("rcr"), x, x), "inner size"),
    "slices past the end": ("float32", (S,), lambda b, x: b.add(DynamicSlice((0,), (3,), (1,)), x), "never shorter"),
    "maybe equal dims": ("float32", (S, R), lambda b, x: b.add(Expand((R, R)), x), "not known to be equal, as GPU kernels"),
    "small images": ("float32", (2, S, S, 4), lambda b, x: _convolved(b, x), "never smaller than the filters"),
    "groups": ("float32", (2, 8, 8, 4), lambda b, x: _convolved(b, x, 2), "2 groups wrongly"),
    "uneven pads": ("float32", (2, 8, 8, 4), lambda b, x: _convolved(b, x, pads=(1, 0, 0, 0)), "both sides alike"),
    "odd pools": ("float32", (2, 8, 8, 3), lambda b, x: b.add(Pool2d("max", (2, 2), (2, 2)), x), "even number of channels"),
    "pixels between others": (
        "float32",
        (1, 4, 4, 8),
        lambda b, x: b.add(Resize2d("nearest", (12, 12), (None, None), "align_corners"), x),
        "whole pixels that are repeated",
    ),
    "heads that are too large": (
        "float32",
        (2, 4, S, 1040),
        lambda b, x: b.add(Attention(1.0, softcap=2.0), x, x, x),
        "has heads of up to 1024, not 1040",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape", "write", "why"), REFUSED.values(), ids=REFUSED)
def test_a_reason_is_given(dtype: str, shape: Any, write: Any, why: str) -> None:
    assert why in reason(dtype, shape, write, s=(3 if why == "causal mask" else 1, 8), r=(1, 8))


def test_a_dim_that_no_input_of_the_model_has_can_not_be_bounded() -> None:
    assert "no dim of the model's inputs" in reason(
        "float32", (symbol("hidden_dim"),), lambda b, x: b.elementwise("EXP", x)
    )


@pytest.fixture(scope="module")
def model() -> GpuModel:
    return gpu_models()[0]


def test_dims_without_bounds_are_asked_for(model: GpuModel) -> None:
    with rules_only(), pytest.raises(ortisan.OptionError, match=r"batch, sequence have none.*dims=\{'batch': \(1, N\)"):
        ortisan.compile(model.model, target="cuda:80")


def test_what_is_left_out_has_reasons_and_the_whole_graph_can_not_be_had() -> None:
    """A TopK, which neither AITemplate (with CUDA 13) nor we have, behind a product."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
      g (float[n, 8] x, float[8, 8] w, int64[1] k) => (float[n, 2] top, int64[n, 2] places) {
        y = MatMul(x, w)
        top, places = TopK(y, k)
      }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.ones((8, 8), np.float32), "w"), numpy_helper.from_array(np.array([2]), "k")]
    )
    with rules_only():
        compiled = ortisan.compile(model, target="cuda:80", dims={"n": (1, 8)})
    (left,) = compiled.left_out
    assert (left.op_type, "TopK" in left.reason) == ("TopK", True)
    with rules_only(), pytest.raises(ortisan.UnsupportedError, match="TopK"):
        ortisan.compile(model, target="cuda:80", dims={"n": (1, 8)}, whole_graph=True)


@pytest.mark.parametrize(
    ("text", "architectures", "notes"),
    [
        ("cuda:80", ("80",), ()),
        ("cuda:86", ("80",), ("sm_86 runs the code of sm_80",)),
        ("cuda:90,80,89", ("80", "90"), ("sm_89 runs the code of sm_80",)),
    ],
)
def test_architectures(text: str, architectures: Any, notes: Any) -> None:
    target: Any = parse_target(text)
    assert (target.architectures, target.notes) == (architectures, notes)
    assert str(target) == f"cuda:{','.join(architectures)}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cuda", "needs an architecture"),
        ("cuda:100", "build for cuda:90"),
        ("cuda:42", "AITemplate knows 75, 80, 90"),
        ("rocm:gfx1", "AITemplate knows gfx908"),
    ],
)
def test_other_architectures_are_refused(text: str, why: str) -> None:
    with pytest.raises(ortisan.OptionError, match=why):
        parse_target(text)


@pytest.mark.parametrize("options", [{"fast_math": True}, {"tf32": True}])
def test_gpu_options_are_not_for_cpus(model: GpuModel, options: dict[str, Any]) -> None:
    with pytest.raises(ortisan.OptionError, match="for GPU targets"):
        ortisan.compile(model.model, **options)


def test_other_precisions_are_refused(model: GpuModel) -> None:
    with pytest.raises(ortisan.OptionError, match="'weights-bf16' or 'weights-int8', not 'int4'"):
        ortisan.compile(model.model, target="cuda:80", precision="int4")  # type: ignore[arg-type]
    with pytest.raises(ortisan.OptionError, match="precision='bf16' is not for cuda:80, which takes keep, fp16"):
        ortisan.compile(model.model, target="cuda:80", precision="bf16")


def test_rocm_says_why_not(model: GpuModel) -> None:
    with pytest.raises(ortisan.OptionError, match="no ROCm provider since"):
        ortisan.compile(model.model, target="rocm:gfx90a", dims=dict(model.dims))


def test_what_names_no_node_is_about_its_readers() -> None:
    """Ops that are made at the border of a subgraph are made on behalf of no node."""
    b = Builder("border")
    x = b.input("x", TensorType(DType.FLOAT64, (S,)))
    made = b.reshape(b.elementwise("EXP", x), (S, 1))
    b.origin = "reader"
    graph = b.finish([b.cast(made, DType.FLOAT32)], bounds={"s": (1, 8)})
    assert prepare(graph).refused == {"reader": "AITemplate has no float64"}


@pytest.mark.parametrize("precision", ["keep", "fp16"])
def test_caches_in_place_are_written_in_the_op(precision: Any) -> None:
    """The caller's memory is written to where the op itself keeps the caches' type."""
    dims = {"batch": (1, 4), "sequence": (1, 8), "cache_capacity": 16, "total_sequence": (1, 16)}
    narrow = gpt2(Gpt2Size(layers=1, hidden=32, heads=2, vocabulary=64, positions=16))
    with rules_only():
        compiled = ortisan.compile(narrow, target="cuda:80", dims=dims, cache="in-place", precision=precision)
    assert not compiled.left_out
    (graph,) = compiled.graphs
    prepared = prepare(graph, half=precision == "fp16")
    assert not prepared.refused
    pairs = {(graph.inputs[i].name, graph.output_names[o].partition(":")[0]) for i, o in prepared.shared}
    caches = {(f"past_key_values.0.{part}", f"present.0.{part}") for part in ("key", "value")}
    assert pairs == (caches if precision == "keep" else set())


def test_what_names_no_node_and_has_no_reader_is_about_the_whole_graph() -> None:
    graph = written("graph", lambda b, x: b.elementwise("EXP", b.elementwise("EXP", x)))
    assert by_name({"": "why"}, graph) == by_name({"elsewhere": "why"}, graph) == {"graph": "why"}
    assert by_name({"graph": "own"}, graph) == {"graph": "own"}


def test_turing_multiplies_float16_only(model: GpuModel) -> None:
    with rules_only():
        single = ortisan.compile(model.model, target="cuda:75", dims=dict(model.dims))
        half = ortisan.compile(model.model, target="cuda:75", dims=dict(model.dims), precision="fp16")
    reasons = [left.reason for left in single.left_out if left.op_type == "MatMul"]
    assert reasons
    assert all("for sm_75 AITemplate multiplies float16 only, not float32" in reason for reason in reasons)
    assert half.flops_share() > 0.99


NAMES = [
    f"cutlass_tensorop_f16_s16816gemm_f16_{m}x{n}_32x{s}_tn_align_8_8"
    for m in (64, 128, 256)
    for n in (64, 128)
    for s in (3, 10)
]


@pytest.mark.parametrize(
    ("workload", "tile"),
    [("M >= 1 && M <= 4096 && N == 768 && K == 768", "128x128_32x3"), ("M == 8 && N == 64 && K == 64", "64x64_32x3"),
     ("M >= 1 && M <= 512 && N == 64 && K == 64", "128x64_32x3")],
)  # fmt: skip
def test_tiles_are_chosen_by_size(workload: str, tile: str) -> None:
    assert tile in choose_tile(NAMES, problem_size(workload))
    assert choose_tile(NAMES, problem_size(workload)) == choose_tile(NAMES[::-1], problem_size(workload))


def written(name: str, op: Callable[[Builder, Value], Value]) -> Graph:
    b = Builder(name)
    b.origin = name
    return b.finish([op(b, b.input("x", TensorType(DType.FLOAT32, (64, 64))))])


@pytest.mark.parametrize("asked", [False, True])
def test_graphs_with_next_to_nothing_to_compute_are_left_unless_they_were_asked_for(asked: bool) -> None:
    adapter = Adapter(None, AitSettings("80"), print)  # type: ignore[arg-type]
    graphs = [written("large", lambda b, x: b.add(Bmm("rcr"), b.reshape(x, (1, 64, 64)), b.reshape(x, (1, 64, 64)))),
              written("small", lambda b, x: b.elementwise("EXP", x))]  # fmt: skip
    with rules_only():
        large, small = AitPlanner(adapter, Request(Options(), print, asked=asked)).objections(graphs)
    assert not large
    assert ("too little to compute" in small.get("small", "")) == (not asked)


def test_fast_math_is_part_of_what_tells_two_libraries_apart() -> None:
    graph = written("graph", lambda b, x: b.elementwise("EXP", x))
    made = AitModel(graph, (), (), (), {"a.cu": b""}, {}, (), profiled=False)
    assert AitPlan(made, fast_math=True).digest() != AitPlan(made, fast_math=False).digest()
