"""`python -m benchmarks --layers`: what each kernel of a network takes, and which one runs a convolution or a product.

The sources of the library are built once more with a clock around each kernel. A process of its own runs them, whose
library prints the best time of each kernel when it is unloaded.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from rich.table import Table

import ortisan
from benchmarks.machine import run_program
from benchmarks.workloads import Workload, as_proto
from ortisan.codegen.cpu.kernel import KernelSpec
from ortisan.codegen.cpu.kernels.images import ConvContext
from ortisan.codegen.cpu.kernels.images.blocks import BlockContext
from ortisan.codegen.cpu.kernels.products import GemmContext
from ortisan.codegen.cpu.plan import GraphPlan

_CLOCKS = """
#include <chrono>
#include <cstdio>

namespace {
struct Clocks {
  double best[NUMBER];
  ~Clocks() {
    for (int i = 0; i < NUMBER; ++i) std::printf("%d %.9f\\n", i, best[i]);
  }
} clocks;

struct Clock {
  double& best;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  ~Clock() {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (best == 0 || seconds < best) best = seconds;
  }
};
}  // namespace
"""
_CALL = re.compile(r"^  (?:if \(any_\d+\) )?kernels::\w+\(.*\);$", re.MULTILINE)


@dataclass(frozen=True)
class Layer:
    kernel: str
    size: str
    flops: int
    seconds: float


def measure_layers(workload: Workload, folder: Path, threads: int, seconds: float) -> list[Layer]:
    """The kernels of the model's only subgraph, in the order in which they run."""
    feeds = workload.feeds()
    model = as_proto(workload.make())
    sizes = {
        dim.dim_param: size
        for value in model.graph.input
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True)
        if dim.dim_param
    }
    compiled = ortisan.compile(model, name=workload.name, dims=sizes, tune="off")
    (plan,) = (plan for plan in compiled.plans if isinstance(plan, GraphPlan))
    sources = ortisan.generate(compiled, folder / "library", sources_only=True).sources
    _add_clocks(sources, len(plan.kernels))
    onnx.save(ortisan.convert_graph(model, compiled), folder / "converted.onnx")
    np.savez(folder / "feeds.npz", **feeds)
    log = folder / "layers.log"
    run_program(("cmake", "-S", str(sources), "-B", str(folder / "build")), log)
    run_program(("cmake", "--build", str(folder / "build")), log)
    library = folder / "build" / f"lib{workload.name}.so"
    child = (sys.executable, "-m", "benchmarks.layers", str(folder / "converted.onnx"), str(library))
    lines = run_program((*child, str(folder / "feeds.npz"), str(threads), str(seconds)), log)
    times = [float(line.split()[1]) for line in lines[-len(plan.kernels) :]]
    return [_layer(kernel, best) for kernel, best in zip(plan.kernels, times, strict=True)]


def _add_clocks(sources: Path, count: int) -> None:
    (file,) = sources.glob("graphs_*.cpp")
    calls = iter(range(count))
    text = _CALL.sub(lambda call: f"{{ Clock clock{{clocks.best[{next(calls)}]}}; {call[0]} }}", file.read_text())
    file.write_text(_CLOCKS.replace("NUMBER", str(count)) + text)


def _layer(kernel: KernelSpec, seconds: float) -> Layer:
    context = kernel.context
    if isinstance(context, BlockContext):
        n, h, w, c, rows, columns, _, down, across, stride, *_ = map(int, context.sizes)
        before, behind = int(context.depth or 0), int(context.filters or 0)
        size = f"{n} x {h} x {w} x {before or c}" + (f" to {c}" if before else "") + f", {down} x {across}"
        size += (f" / {stride}" if stride > 1 else "") + (f", to {behind}" if behind else "")
        flops = 2 * n * c * (h * w * before + rows * columns * (down * across + behind))
        return Layer("depthwise_block", size, flops, seconds)
    if isinstance(context, ConvContext):
        n, h, w, c, rows, columns, filters, down, across, stride, *_, groups = map(int, context.sizes)
        size = f"{n} x {h} x {w} x {c}" + (f" to {filters}" if groups < c else "") + f", {down} x {across}"
        size += f" / {stride}" if stride > 1 else ""
        flops = 2 * n * rows * columns * filters * down * across * c // groups
        return Layer(context.function, size, flops, seconds)
    if isinstance(context, GemmContext):
        wide = [int(product.columns) for product in context.products]
        rows, depth = int(context.rows), int(context.depth)
        return Layer("gemm", f"{rows} x {depth} x {' + '.join(map(str, wide))}", 2 * rows * depth * sum(wide), seconds)
    return Layer(kernel.name, "", 0, seconds)


def table(title: str, layers: Sequence[Layer], peak: float) -> Table:
    """Shares of the time of all layers, and of the FMA peak in GFLOP/s."""
    shown = Table("kernel", "image, or rows x depth x columns", title=title)
    for name in ("us", "of the time", "GFLOP/s", "of the peak"):
        shown.add_column(name, justify="right")
    total = sum(layer.seconds for layer in layers)
    for layer in layers:
        rate = layer.flops / max(layer.seconds, 1e-9) / 1e9
        times = f"{1e6 * layer.seconds:.1f}", f"{layer.seconds / total:.1%}"
        shown.add_row(layer.kernel, layer.size, *times, *((f"{rate:.1f}", f"{rate / peak:.0%}") if layer.flops else ()))
    least = sum(layer.flops for layer in layers) / peak / 1e9
    shown.add_row("all", "", f"{1e6 * total:.1f}", "", f"{least / total * peak:.1f}", f"{least / total:.0%}")
    return shown


def _run(model: str, library: str, feeds: str, threads: str, seconds: str) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.register_custom_ops_library(library)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with np.load(feeds) as archive:
        inputs = dict(archive)
    end = time.perf_counter() + float(seconds)
    while True:
        session.run(None, inputs)
        if time.perf_counter() > end:
            return


if __name__ == "__main__":
    _run(*sys.argv[1:])
