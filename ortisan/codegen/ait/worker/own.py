"""Kernels of ours as ops of AITemplate: its passes, names and memory treat them like its own.

The host function of a kernel is `void name(void* const* tensors, const int64_t* numbers, cudaStream_t stream)`: inputs,
then outputs, then where to report indices out of range, for those that look at any. Its call gives the dims of the
results a value, out of the sizes that the glue found (templates/ait/glue/ait_queue.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aitemplate.backend import registry
from aitemplate.compiler import compiler
from aitemplate.compiler.base import IntImm, Operator, Tensor

PREFIX = "own_"
_NAME = "ORTISAN_KERNEL"
_SIGNATURE = "void {name}(void* const* tensors, const int64_t* numbers, cudaStream_t stream);"


class OwnKernel(Operator):  # type: ignore[misc]
    """One call of a kernel; `kernel` is what the program says of it."""

    def __init__(self, kind: str, kernel: dict[str, Any]) -> None:
        super().__init__()
        self._attrs.update(op=f"{PREFIX}{kind}", kernel=kernel)
        for part, function in _FUNCTIONS.items():
            key = f"cuda.{self._attrs['op']}.{part}"
            if key not in registry.BACKEND_FUNCTIONS:
                registry.reg(key)(function)

    def __call__(self, inputs: Sequence[Any], types: Sequence[tuple[list[Any], str]]) -> list[Any]:
        """Results of these shapes and dtypes. They depend on sizes, so AITemplate is not to fold them."""
        self._attrs["inputs"] = list(inputs)
        self._set_depth()
        self._attrs["outputs"] = [
            Tensor(shape, src_ops={self}, dtype=dtype, skip_constant_folding=True) for shape, dtype in types
        ]
        return list(self._attrs["outputs"])

    def _get_op_attributes(self) -> dict[str, Any]:
        return {"kind": self._attrs["op"].removeprefix(PREFIX), "kernel": self._attrs["kernel"]}

    def _args_for_pseudo_code(self) -> list[str]:
        return []

    def gen_function(self) -> str:
        return _source(self._attrs)


def _source(attrs: dict[str, Any]) -> str:
    text: str = attrs["kernel"]["source"]
    return text.replace(_NAME, attrs["name"])


def _declaration(attrs: dict[str, Any]) -> str:
    return _SIGNATURE.format(name=attrs["name"])


def _call(attrs: dict[str, Any], indent: str = "  ") -> str:
    kernel = attrs["kernel"]
    tensors = [tensor._attrs["name"] for tensor in (*attrs["inputs"], *attrs["outputs"])]
    if kernel["checked"]:
        tensors.append("ortisan::fault_of_run")
    lines = ["using namespace ortisan;", "using I [[maybe_unused]] = int64_t;"]
    lines.append("[[maybe_unused]] const int64_t* const s = sizes_of_run;")
    for tensor, sizes in zip(attrs["outputs"], kernel["sizes"], strict=True):
        for dim, size in zip(tensor.shape(), sizes, strict=True):
            if not isinstance(dim, IntImm):
                lines.append(f"{dim._attrs['name']} = {size};")
    lines.append(f"void* const tensors[] = {{{', '.join(tensors)}}};")
    lines.append(f"const int64_t numbers[] = {{{', '.join(kernel['numbers']) or '0'}}};")
    lines.append(f"{attrs['name']}(tensors, numbers, stream);")
    return "\n".join([f"{indent}{{", *(f"{indent}  {line}" for line in lines), f"{indent}}}"])


_FUNCTIONS: dict[str, Callable[..., str]] = {"gen_function": _source, "func_decl": _declaration, "func_call": _call}


def share_kernels() -> None:
    """Lets calls share a kernel when their sources are equal: AITemplate asks that all they were made of is."""
    refine = compiler.compiler.transform.refine_graph

    def refine_and_share(graph: Sequence[Any]) -> None:
        refine(graph)
        names: dict[str, str] = {}
        for op in (op for tensor in graph for op in tensor._attrs["src_ops"] if op._attrs["op"].startswith(PREFIX)):
            op._attrs["name"] = names.setdefault(op._attrs["kernel"]["source"], op._attrs["name"])

    compiler.compiler.transform.refine_graph = refine_and_share


def join_chains(folder: Path) -> None:
    """Chains are short: one source for all takes a fraction of the time to compile."""
    chains = sorted(folder.glob(f"{PREFIX}chain_*.cu"))
    text = "\n".join(chain.read_text(encoding="utf-8") for chain in chains)
    for chain in chains:
        chain.unlink()
    if chains:
        (folder / f"{PREFIX}chains.cu").write_text(text, encoding="utf-8")
