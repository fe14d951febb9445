"""All that reads images between their pixels, with group norms, places of largest elements and computed filters, at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import ortisan
from ortisan.codegen.cpu.build import build_library
from ortisan.pipeline.generate import render_sources
from tests.models.text import run_ort, text_model
from tests.ops.arrays import values
from tests.sanitized import run_sanitized
from tests.tolerances import WIDE


def network() -> onnx.ModelProto:
    body = (
        "a = Conv<pads=[1,1,1,1]>(x, w) b = GroupNormalization<num_groups=4>(a, s, t) c = HardSwish(b)"
        "y0, y1 = MaxPool<kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,1]>(c)"
        'y2 = Resize<mode="cubic", exclude_outside=1>(c, , half)'
        'y3 = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=1.5>(c, roi, , to)'
        'y4 = GridSample<mode="cubic", padding_mode="reflection">(c, grid) y5 = GridSample<mode="linear">(c, grid)'
        'y6 = GridSample<mode="nearest", padding_mode="border">(c, grid)'
        "y7 = RoiAlign<output_height=2, output_width=3>(c, rois, images) y8 = InstanceNormalization(c, s, t)"
        "y9 = Conv<pads=[1,1,1,1]>(x, f) ya = Conv<group=3>(x, d) yb = ConvTranspose<strides=[2,2]>(c, v)"
    )
    outputs = ["y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7", "y8", "y9", "ya", "yb"]
    shapes = ", ".join(
        f"{'int64' if name == 'y1' else 'float'}[n{name},c{name},h{name},w{name}] {name}" for name in outputs
    )
    constants = {
        "w": values(8, 3, 3, 3, low=-1, high=1), "s": values(8, seed=1), "t": values(8, seed=2), "v": values(8, 3, 3, 3, low=-1, high=1),
        "half": np.array([1, 1, 0.5, 1.5], np.float32), "roi": np.array([0, 0, 0.1, -0.2, 1, 1, 1.2, 0.9], np.float32), "to": np.array([2, 8, 5, 6]),
    }  # fmt: skip
    inputs = (
        "float[2,3,h,w] x, float[2,a,b,2] grid, float[r,4] rois, int64[r] images, float[5,3,3,3] f, float[3,1,3,3] d"
    )
    return text_model(f"({inputs}) => ({shapes})", body, constants=constants, opset=21)


def feeds(height: int, width: int, regions: int = 5) -> dict[str, np.ndarray]:
    rois = np.sort(values(regions, 2, 2, low=-3, high=12), axis=1).reshape(regions, 4)
    return {
        "x": values(2, 3, height, width), "grid": values(2, 4, 3, 2, low=-1.5, high=1.5), "rois": rois, "images": np.arange(regions) % 2,
        "f": values(5, 3, 3, 3, low=-1, high=1), "d": values(3, 1, 3, 3, low=-1, high=1),
    }  # fmt: skip


def _finite_regions(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found["rois"][:, 2:] = np.maximum(found["rois"][:, 2:], found["rois"][:, :2] + 0.5)
    return found


@pytest.mark.build
def test_the_model_is_right_and_the_same_for_any_threads(tmp_path: Path) -> None:
    ortisan.build(network(), tmp_path / "net", keep="all", verify=False, tune="off")
    for height, width in ((7, 9), (33, 20)):
        given, results = _finite_regions(feeds(height, width)), []
        for threads in (1, 2, 3, 7):
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            results.append(ortisan.load(tmp_path / "net", options).run(None, given))
        for index, (have, want) in enumerate(zip(results[0], run_ort(network(), given), strict=True)):
            np.testing.assert_allclose(have, want, rtol=WIDE, atol=WIDE, err_msg=f"output {index}")
            assert all(np.array_equal(have, other[index]) for other in results[1:])


SCRIPT = """
import sys
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = ort.InferenceSession({model!r}, options)
nowhere = np.float32([np.nan, np.inf, -np.inf, 1e30, -1e30, 3.5, -0.5, 0.0])
for height, width, regions in ((3, 3, 3), (5, 19, 1), (17, 4, 0)):
    session.run(None, {{
        "x": np.ones((2, 3, height, width), np.float32), "grid": np.resize(nowhere, (2, 4, 3, 2)),
        "rois": np.resize(nowhere, (regions, 4)), "images": np.zeros(regions, np.int64),
        "f": np.ones((5, 3, 3, 3), np.float32), "d": np.ones((3, 1, 3, 3), np.float32),
    }})
print("finished")
"""


@pytest.mark.build
@pytest.mark.sanitize
def test_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    compiled = ortisan.compile(network(), name="net", whole_graph=True)
    assert compiled.target.isa is not None
    built = build_library(render_sources(compiled), name="net", isa=compiled.target.isa, sanitize="address,undefined")
    (tmp_path / "net.onnx").write_bytes(ortisan.convert_graph(network(), compiled).SerializeToString())
    script = SCRIPT.format(model=str(tmp_path / "net.onnx"))
    assert "finished" in run_sanitized(script, "address,undefined", built.library)
