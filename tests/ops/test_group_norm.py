from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from tests.models.text import run_ort, text_model
from tests.ops.arrays import values
from tests.ops.harness import Case, refused
from tests.tolerances import BLOCK, WIDE

CONTRIB = "com.microsoft"


def _case(name: str, shape: tuple[int, ...], groups: int, **more: object) -> Case:
    """ONNX Runtime has no kernel of it on CPUs."""
    inputs = {"x": more.pop("x", values(*shape)), "gamma": values(shape[3], seed=1), "beta": values(shape[3], seed=2)}
    attributes = {"groups": groups, "activation": more.pop("activation", 0), "epsilon": 1e-4, "channels_last": 1}
    tolerance = more.pop("tolerance", BLOCK)
    return Case(name, "GroupNorm", inputs, attributes, domain=CONTRIB, ort=False, tolerance=tolerance, dims={"x": ["n", "h", "w", shape[3]]}, **more)  # type: ignore[arg-type]  # fmt: skip


def _skip(name: str, skip: tuple[int, ...], *, bias: bool) -> Case:
    inputs = {"x": values(2, 5, 3, 8), "gamma": values(8, seed=1), "beta": values(8, seed=2), "skip": values(*skip)}
    inputs |= {"bias": values(8, seed=3)} if bias else {}
    return Case(name, "SkipGroupNorm", inputs, {"groups": 4}, domain=CONTRIB, ort=False, tolerance=BLOCK, dynamic=False, outputs=2)  # fmt: skip


def _lines(x: np.ndarray, dtype: type) -> dict[str, np.ndarray]:
    return {"x": x.astype(dtype), "s": values(6, dtype=dtype), "b": values(6, seed=1, dtype=dtype)}


SPECIAL = values(2, 3, 5, 16)
SPECIAL[0, 1, 2, 3], SPECIAL[1, 0, 0, 4], SPECIAL[1, 2, 2, 15] = np.nan, np.inf, -np.inf
CASES = [
    _case(f"{channels}_{groups}", (2, 5, 7, channels), groups)
    for channels, groups in ((1, 1), (3, 1), (3, 3), (16, 4), (17, 17), (64, 32), (130, 2))
]
CASES += [
    _case("many_places", (1, 65, 70, 20), 5), _case("many_channels", (2, 3, 3, 700), 7), _case("one_place", (3, 1, 1, 8), 2),
    _case("silu", (2, 5, 7, 16), 4, activation=1), _case("no_images", (0, 5, 7, 16), 4), _case("no_places", (2, 0, 7, 16), 4),
    _case("far_from_zero", (2, 40, 40, 8), 2, x=values(2, 40, 40, 8) + 1e3, tolerance=(1e-3, 1e-3)),
    _case("special", (2, 3, 5, 16), 8, x=SPECIAL),
    Case("channels_first", "GroupNorm", {"x": values(2, 6, 5, 7), "g": values(6), "b": values(6)}, {"groups": 3, "channels_last": 0}, domain=CONTRIB, ort=False, tolerance=BLOCK, dynamic=False),
    Case("float16", "GroupNorm", {"x": values(2, 5, 7, 6, dtype=np.float16), "g": values(6), "b": values(6)}, {"groups": 3}, domain=CONTRIB, ort=False, tolerance=(1e-2, 1e-2), dynamic=False),
    _skip("skip", (2, 5, 3, 8), bias=True), _skip("skip_row", (2, 1, 1, 8), bias=False), _skip("skip_matrix", (2, 8), bias=True),
    Case("opset_18", "GroupNormalization", {"x": values(2, 6, 7, 3), "s": values(3), "b": values(3, seed=1)}, {"num_groups": 3}, ("s", "b"), opset=18, dynamic=False, tolerance=BLOCK),
    Case("opset_21", "GroupNormalization", {"x": values(2, 6, 7, 3), "s": values(6), "b": values(6, seed=1)}, {"num_groups": 2}, opset=21, dynamic=False, tolerance=BLOCK),
    Case("float64", "GroupNormalization", _lines(values(2, 6, 9), np.float64), {"num_groups": 2}, opset=21, dynamic=False, ort=False),
]  # fmt: skip


@pytest.mark.build
@pytest.mark.parametrize("case", CASES, ids=str)
def test_group_norm(case: Case, batch) -> None:
    batch(CASES).check(case)


def test_what_is_not_supported_is_refused() -> None:
    inputs = {"x": values(2, 6, 7, 3), "s": values(6), "b": values(6)}
    for groups in (0, 4):
        case = Case("groups", "GroupNormalization", inputs, {"num_groups": groups}, opset=21, dynamic=False)
        refused(case, f"6 channels can't be normalised in {groups} groups")
    refused(_case("groups", (2, 5, 7, 6), 4), "6 channels can't be normalised in 4 groups")
    refused(_case("other", (2, 5, 7, 6), 2, activation=2), "activation=2 is not supported")
    row = Case("row", "InstanceNormalization", {"x": values(2, 6), "s": values(6), "b": values(6)})
    refused(row, "needs batch, channels and places|shapes can't be inferred")


# As exporters write it: an instance normalisation of the groups, whose scale is 1 and whose bias is 0.
WRITTEN = "r = Reshape(a, to) i = InstanceNormalization(r, one, zero) t = Shape(a) q = Reshape(i, t) m = Mul(q, g) c = Add(m, b)"
FORMS = {
    "written": WRITTEN,
    "shared": WRITTEN + " extra = Reshape(i, flat)",
    "plain": "c = GroupNormalization<num_groups=4>(a, gs, bs)",
    "instance": "c = InstanceNormalization(a, gs, bs)",
}


def _network(form: str) -> onnx.ModelProto:
    body = f"a = Conv<pads=[1,1,1,1]>(x, w) {FORMS[form]} s = Sigmoid(c) e = Mul(c, s) y = Conv<pads=[1,1,1,1]>(e, v)"
    constants = {"w": values(8, 3, 3, 3), "v": values(5, 8, 3, 3), "gs": values(8, seed=1), "bs": values(8, seed=2)}
    constants |= {"one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32), "to": np.array([0, 4, -1])}
    constants |= {"g": values(8, 1, 1, seed=1), "b": values(8, 1, 1, seed=2), "flat": np.array([0, -1])}
    outputs = "float[n,5,h,w] y" + (", float[n,k] extra" if form == "shared" else "")
    return text_model(f"(float[n,3,h,w] x) => ({outputs})", body, constants=constants, opset=21)


@pytest.mark.parametrize("form", FORMS)
def test_between_convolutions_it_is_one_kernel_that_copies_nothing(form: str) -> None:
    (graph,) = ortisan.compile(_network(form), whole_graph=True).graphs
    names = [node.op.name for node in graph.nodes]
    assert names.count("group_norm") == 1
    assert "layernorm" not in names
    if form == "shared":
        return
    assert names == ["permute", "conv2d", "group_norm", "elementwise.sigmoid", "elementwise.mul", "conv2d", "permute"]


@pytest.mark.build
def test_between_convolutions_it_is_right(tmp_path) -> None:
    for form in FORMS:
        model = _network(form)
        ortisan.build(model, tmp_path / form, keep="all", verify=False, tune="off")
        for shape in ((1, 3, 9, 4), (2, 3, 40, 33)):
            feeds = {"x": values(*shape)}
            for have, want in zip(ortisan.load(tmp_path / form).run(None, feeds), run_ort(model, feeds), strict=True):
                np.testing.assert_allclose(have, want, rtol=WIDE, atol=WIDE)


@pytest.mark.build
def test_the_results_do_not_depend_on_the_threads(tmp_path) -> None:
    ortisan.build(_network("written"), tmp_path / "net", keep="all", verify=False, tune="off")
    x, results = values(2, 3, 50, 41), []
    for threads in (1, 2, 3, 7):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        results.append(ortisan.load(tmp_path / "net", options).run(None, {"x": x})[0])
    assert all(np.array_equal(results[0], other) for other in results[1:])
    alone = ortisan.load(tmp_path / "net").run(None, {"x": x[1:]})[0]
    np.testing.assert_array_equal(alone, results[0][1:])
