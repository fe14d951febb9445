"""The library of the two tiny models, built once by nvcc, and once more over the stand-in runtime from the same objects."""

from __future__ import annotations

from collections.abc import Callable

import onnxruntime as ort
import pytest

from ortisan.codegen.ait.detect import find_aitemplate
from ortisan.codegen.ait.library import render_cuda_library
from ortisan.codegen.ait.model import AitInstall
from ortisan.registry.dtypes import Array
from tests.gpu.stand_in import StandIn
from tests.gpu.tiny_gpu import DOMAIN, GRAPHS, OPS, TinyGpu, build_both, make_model, onnx_model, open_stand_in


@pytest.fixture(scope="session")
def ait_install() -> AitInstall:
    return find_aitemplate()


@pytest.fixture(scope="session")
def tiny_gpu(ait_install: AitInstall, tmp_path_factory: pytest.TempPathFactory) -> TinyGpu:
    models = [make_model(name, ait_install, tmp_path_factory.mktemp(name)) for name in GRAPHS]
    sources = render_cuda_library(models, name="tiny", domain=DOMAIN, ops=list(OPS.values()), architectures=["80"])
    folder, steps, seconds = build_both(sources, "tiny", ait_install)
    return TinyGpu(folder, seconds, steps, sources)


@pytest.fixture(scope="session")
def stand_in(tiny_gpu: TinyGpu) -> StandIn:
    return open_stand_in(tiny_gpu.folder)


@pytest.fixture
def open_tiny(tiny_gpu: TinyGpu, stand_in: StandIn) -> Callable[..., ort.InferenceSession]:
    """open_tiny("views", runtimes="3") -> a CPU session of the op over the stand-in runtime."""

    def open_one(name: str, *, constants: tuple[Array, ...] | None = None, **settings: str) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        for key, value in settings.items():
            options.add_session_config_entry(f"custom_op.{OPS[name]}.{key}", value)
        options.register_custom_ops_library(str(tiny_gpu.folder / "libtiny_stand_in.so"))
        model = onnx_model(name, constants=constants)
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    return open_one
