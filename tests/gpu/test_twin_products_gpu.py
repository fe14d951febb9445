"""Two sources with one CUTLASS kernel: each of its host stubs has to be given the shared memory that the kernel needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import ortisan
from ortisan.codegen.ait.model import AitInstall
from tests.gpu.twin import open_twin

pytestmark = [pytest.mark.aitemplate, pytest.mark.nvcc, pytest.mark.build]

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
twins (float[rows, 128] x) => (float[rows, 256] y) {
    h = MatMul(x, w)
    y = MatMul(h, v)
}"""


def twins() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (128, 128)), ("v", (128, 256))):
        data = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


def test_no_launch_is_refused(ait_install: AitInstall, tmp_path: Path) -> None:
    dims = {"rows": (1, 512)}
    compiled = ortisan.compile(twins(), target="cuda:80", dims=dims)
    (plan,) = compiled.plans
    assert sorted(name.rpartition("_")[0] for name in plan.model.files if name.startswith("gemm")) == ["gemm_rcr"] * 2
    twin = open_twin(twins(), dims, ait_install, tmp_path)
    before = twin.stand_in.refusals
    for rows in (1, 512, 77):
        assert twin.session.run(None, {"x": np.zeros((rows, 128), np.float32)})[0].shape == (rows, 256)
    assert twin.stand_in.refusals == before
    kernels = [twin.stand_in.launch(ago) for ago in range(2)]
    assert kernels[0].kernel == kernels[1].kernel
    assert all(launch.shared > 48 << 10 for launch in kernels), "smaller kernels need no attribute"
