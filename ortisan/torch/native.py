"""The C++ route of `register_op`: puts an artifact's kernels behind torch's dispatcher, without a session."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

from ortisan._version import __version__
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.cpu.torch_op import TorchKit, build_torch_op
from ortisan.errors import ArtifactError, UnsupportedError
from ortisan.runtime.artifact import Artifact, check_content
from ortisan.runtime.manifest import folder_hash
from ortisan.runtime.settings import AUTO

_SENTENCE_BYTES = 1024
_ALIGNMENT = 64


class _Request(ctypes.Structure):
    """`OrtisanRequest` of templates/torch/op.cpp."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("graph", ctypes.c_char_p),
        ("arguments", ctypes.POINTER(ctypes.c_int32)),
        ("argument_count", ctypes.c_int32),
        ("results", ctypes.POINTER(ctypes.c_int32)),
        ("weights", ctypes.POINTER(ctypes.c_void_p)),
        ("weight_bytes", ctypes.POINTER(ctypes.c_int64)),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("weight_count", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("weights_setting", ctypes.c_char_p),
    )


class NativeKernel:
    """An artifact's only custom op as the CPU kernel of `ortisan::<name>`, until `remove` is called.

    Raises an `OrtisanError` when the artifact is more than one custom op, or nothing on this machine can build it.
    `inputs` are the op's arguments by name. It runs on as many threads as torch uses now.
    """

    def __init__(self, artifact: Artifact, model: ir.Model, inputs: Sequence[str]) -> None:
        check_content(artifact)
        self._node = whole_op(model, artifact)
        graph = model.graph
        taken = [value for value in self._node.inputs if value is not None and value.name in inputs]
        self._arguments = [inputs.index(value.name or "") for value in taken]
        self._argument_count = len(inputs)
        self._results = [list(graph.outputs).index(value) for value in self._node.outputs]
        self._weights = [_bytes_of(value) for value in self._node.inputs[len(taken) :]]
        self._setting = artifact.settings.get("weights", AUTO)
        self._library = ctypes.CDLL(str(_build(artifact)))
        self._library.ortisan_register.restype = ctypes.c_void_p
        self._library.ortisan_unregister.argtypes = [ctypes.c_void_p]
        self._library.ortisan_unregister.restype = None
        self._handle: int | None = None

    def register(self, name: str) -> None:
        counts = (len(self._arguments), len(self._results), len(self._weights))
        request = _Request(
            name.encode(),
            self._node.op_type.encode(),
            (ctypes.c_int32 * counts[0])(*self._arguments),
            self._argument_count,
            (ctypes.c_int32 * counts[1])(*self._results),
            (ctypes.c_void_p * counts[2])(*(array.ctypes.data for array in self._weights)),
            (ctypes.c_int64 * counts[2])(*(array.nbytes for array in self._weights)),
            *counts,
            torch.get_num_threads(),
            self._setting.encode(),
        )
        sentence = ctypes.create_string_buffer(_SENTENCE_BYTES)
        handle = self._library.ortisan_register(ctypes.byref(request), sentence, ctypes.c_size_t(_SENTENCE_BYTES))
        if handle is None:
            raise ArtifactError(f"torch can't register the kernel: {sentence.value.decode('utf-8', 'replace')}")
        self._handle = handle

    def remove(self) -> None:
        """Unregisters the kernel and stops its threads."""
        if self._handle is not None:
            self._library.ortisan_unregister(self._handle)
            self._handle = None


def whole_op(model: ir.Model, artifact: Artifact) -> ir.Node:
    """The custom op that is the whole model; raises `UnsupportedError` if the model has anything else."""
    nodes = list(model.graph)
    others = [node for node in nodes if node.domain != artifact.domain]
    if others:
        raise UnsupportedError(
            f"'{others[0].name or others[0].op_type}' ({others[0].op_type}) was not compiled, and only ONNX Runtime "
            "can run it"
        )
    if len(nodes) != 1:
        raise UnsupportedError(f"the model has {len(nodes)} custom ops, but the C++ route supports only one")
    node = nodes[0]
    if set(node.outputs) != set(model.graph.outputs):
        raise UnsupportedError("the model's outputs are not those of its custom op")
    known = {id(value) for value in (*model.graph.inputs, *model.graph.initializers.values())}
    if any(id(value) not in known for value in node.inputs):
        raise UnsupportedError("the inputs of the custom op are not those of the model")
    return node


def _bytes_of(value: ir.Value | None) -> npt.NDArray[np.uint8]:
    """A weight mapped from its file, or an aligned copy if the model holds it."""
    tensor = value.const_value if value is not None else None
    if value is None or tensor is None:
        raise UnsupportedError("an input of the custom op follows its weights")
    if isinstance(tensor, ir.ExternalTensor) and tensor.length and tensor.offset is not None:
        return np.memmap(Path(tensor.path), np.uint8, "r", tensor.offset, (tensor.length,))
    content = np.frombuffer(tensor.tobytes(), np.uint8)
    room = np.empty(content.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    room[start : start + content.nbytes] = content
    return room[start : start + content.nbytes]


def _build(artifact: Artifact) -> Path:
    """The library of the artifact's kernels for this PyTorch, out of the build cache when it is there."""
    isa = artifact.manifest.get("isa")
    if isa is None:
        raise UnsupportedError(f"the artifact is for {artifact.target}, and the C++ route is for CPUs")
    if artifact.manifest.get("machine") != platform.machine():
        raise ArtifactError(f"'{artifact.folder}' was built for {artifact.manifest.get('machine')}")
    if artifact.manifest.get("ortisan") != __version__:
        raise ArtifactError(f"'{artifact.folder}' was built by another Ortisan; build it again")
    source = artifact.folder / "src"
    if not source.is_dir() or folder_hash(source) != artifact.manifest.get("sources_sha256"):
        raise ArtifactError(f"'{source}' is not there or has changed; build the artifact again")
    files: dict[str, str | bytes] = {file.name: file.read_bytes() for file in sorted(source.iterdir())}
    return build_torch_op(files, name=artifact.name, isa=find_isa(str(isa)), kit=torch_kit())


def torch_kit() -> TorchKit:
    """Headers and libraries of the running PyTorch."""
    from torch.utils import cpp_extension

    version: Any = torch.version
    return TorchKit(
        f"{torch.__version__} {version.git_version or ''}".strip(),
        tuple(cpp_extension.include_paths()),
        str(Path(torch.__file__).parent / "lib"),
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    )
