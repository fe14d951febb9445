"""`python -m benchmarks.functions`: ns per element of the float functions, in the nearest cache, on one thread.

Ours run in C++, as generated kernels call them. numpy and ONNX Runtime (one node) are called from here with two
lengths; the difference of their best times is free of what a call costs. All take turns, so what slows the machine
slows all.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime as ort
import typer
from onnx import TensorProto, helper

from benchmarks.machine import cpu_name, run_program
from benchmarks.tables import put_between_marks
from ortisan.codegen.cpu.folders import KERNEL_FOLDERS
from ortisan.codegen.cpu.isa import find_isa
from ortisan.codegen.render import TEMPLATES
from ortisan.codegen.tools.cmake import KERNEL_FLAGS
from ortisan.codegen.tools.toolchain import find_compiler
from ortisan.errors import OptionError

BEGIN = "<!-- speeds: written by python -m benchmarks.functions --markdown -->"
END = "<!-- end of speeds -->"

_SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-O3", "-std=gnu++17", *KERNEL_FLAGS, "-fPIC", "-fvisibility=hidden", "-shared", "-Wall", "-Wextra")
_SHORT, _LONG = 1024, 4096
_REPEATS = 20
_OPSET = 20


@dataclass(frozen=True)
class Function:
    """A function of `arity` operands drawn from [low, high]; who has no such function is left out."""

    low: float
    high: float
    op: str = ""
    numpy: Callable[..., Any] | None = None
    arity: int = 1
    attributes: Mapping[str, str] | None = None


FUNCTIONS = {
    "add": Function(1, 2, "Add", np.add, 2),
    "div": Function(1, 2, "Div", np.divide, 2),
    "sqrt": Function(0, 9, "Sqrt", np.sqrt),
    "exp": Function(-9, 9, "Exp", np.exp),
    "expm1": Function(-9, 9, numpy=np.expm1),
    "log": Function(0.1, 9, "Log", np.log),
    "log1p": Function(-0.5, 9, numpy=np.log1p),
    "sin": Function(-9, 9, "Sin", np.sin),
    "cos": Function(-9, 9, "Cos", np.cos),
    "tan": Function(-9, 9, "Tan", np.tan),
    "asin": Function(-1, 1, "Asin", np.arcsin),
    "acos": Function(-1, 1, "Acos", np.arccos),
    "atan": Function(-3, 3, "Atan", np.arctan),
    "sinh": Function(-9, 9, "Sinh", np.sinh),
    "cosh": Function(-9, 9, "Cosh", np.cosh),
    "tanh": Function(-4, 4, "Tanh", np.tanh),
    "asinh": Function(-9, 9, "Asinh", np.arcsinh),
    "acosh": Function(1, 9, "Acosh", np.arccosh),
    "atanh": Function(-0.9, 0.9, "Atanh", np.arctanh),
    "sigmoid": Function(-9, 9, "Sigmoid"),
    "erf": Function(-3, 3, "Erf"),
    "gelu": Function(-4, 4, "Gelu"),
    "fastgelu": Function(-4, 4, "Gelu", attributes={"approximate": "tanh"}),
    "silu": Function(-9, 9),
    "mish": Function(-9, 9, "Mish"),
    "softplus": Function(-9, 9, "Softplus"),
    "pow": Function(1, 2, "Pow", np.power, 2),
}


@dataclass(frozen=True)
class Speed:
    """ns per element; None where there is no such function."""

    name: str
    ours: float
    numpy: float | None
    ort: float | None


def build(folder: Path) -> ctypes.CDLL:
    """The C++ side, built for this machine."""
    library = folder / "functions.so"
    flags = (*_FLAGS, *find_isa("native").flags, *(f"-I{TEMPLATES / folder}" for folder in KERNEL_FOLDERS))
    run_program((*find_compiler().argv, *flags, str(_SOURCE), "-o", str(library)), folder / "functions.log")
    loaded = ctypes.CDLL(str(library))
    loaded.seconds_of.restype = ctypes.c_double
    return loaded


def measure(library: ctypes.CDLL, name: str, seconds: float) -> Speed:
    function = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    draw = [rng.uniform(function.low, function.high, _LONG).astype(np.float32) for _ in range(2)]
    result = np.empty(_LONG, np.float32)
    ours = [np.inf]
    calls = {"numpy": _numpy_calls(function, draw, result), "ort": _ort_calls(function, draw)}
    best = {who: [np.inf] * len(runs) for who, runs in calls.items()}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ours[0] = min(ours[0], _ours(library, name, draw, result) / (_SHORT * _REPEATS))
        for who, runs in calls.items():
            for index, run in enumerate(runs):
                run()
                for _ in range(5):
                    before = time.perf_counter()
                    run()
                    best[who][index] = min(best[who][index], time.perf_counter() - before)
    slope = {who: 1e9 * (t[1] - t[0]) / (_LONG - _SHORT) if t else None for who, t in best.items()}
    return Speed(name, 1e9 * ours[0], slope["numpy"], slope["ort"])


def _ours(library: ctypes.CDLL, name: str, draw: list[Any], result: Any) -> float:
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*draw, result)]
    taken = library.seconds_of(name.encode(), ctypes.c_int64(_SHORT), *pointers, ctypes.c_int64(_REPEATS))
    if taken < 0:
        raise OptionError(f"'{name}' is in benchmarks/functions.py and not in benchmarks/functions.cpp; add it there")
    return float(taken)


def _numpy_calls(function: Function, draw: list[Any], result: Any) -> list[Callable[[], Any]]:
    compute = function.numpy
    if compute is None:
        return []
    operands = draw[: function.arity]
    with np.errstate(all="ignore"):
        return [lambda n=n: compute(*(x[:n] for x in operands), out=result[:n]) for n in (_SHORT, _LONG)]


def _ort_calls(function: Function, draw: list[Any]) -> list[Callable[[], Any]]:
    if not function.op:
        return []
    names = ["a", "b"][: function.arity]
    node = helper.make_node(function.op, names, ["y"], **(function.attributes or {}))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([node], "one", infos, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    calls = []
    for n in (_SHORT, _LONG):
        binding = session.io_binding()
        for name, array in zip(names, draw, strict=False):
            binding.bind_cpu_input(name, array[:n].copy())
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.empty(n, np.float32)))
        calls.append(lambda binding=binding: session.run_with_iobinding(binding))
    return calls


def table(speeds: list[Speed]) -> str:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def ratio(value: float | None, ours: float) -> str:
        return "-" if value is None else f"{value / ours:.1f}"

    lines = ["| fn | Ortisan | numpy | ORT | numpy / Ortisan | ORT / Ortisan |", "| --- |" + " ---: |" * 5]
    for s in speeds:
        cells = (s.name, cell(s.ours), cell(s.numpy), cell(s.ort), ratio(s.numpy, s.ours), ratio(s.ort, s.ours))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    only: Annotated[str | None, typer.Option("--only", help="Names of functions, with commas.")] = None,
    seconds: Annotated[float, typer.Option(help="How long to time each function.")] = 1.0,
    page: Annotated[Path | None, typer.Option("--markdown", help="Put the table into this file.")] = None,
) -> None:
    """Times the float functions against numpy and ONNX Runtime, in turns, on one thread."""
    names = list(FUNCTIONS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in FUNCTIONS:
            raise typer.BadParameter(
                f"there is no '{name}'; the choice is: {', '.join(FUNCTIONS)}", param_hint="--only"
            )
    with tempfile.TemporaryDirectory(prefix="ortisan-bench-") as folder:
        library = build(Path(folder))
        speeds = [measure(library, name, seconds) for name in names]
    text = f"{cpu_name()}; ns per element, best of {seconds:g} s each.\n\n{table(speeds)}"
    print(text)
    if page is not None:
        put_between_marks(page, text, BEGIN, END)


if __name__ == "__main__":
    app()
