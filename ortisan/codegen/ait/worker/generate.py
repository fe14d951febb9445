"""Runs AITemplate's compiler up to its sources: nothing is built and no library is loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from aitemplate.backend import builder
from aitemplate.backend.cuda.target_def import CUDA
from aitemplate.compiler import compiler
from aitemplate.compiler.base import DynamicProfileStrategy
from aitemplate.compiler.ops.conv.conv2d import conv2d
from aitemplate.compiler.ops.gemm_universal.gemm_common import gemm

from ortisan.codegen.ait.worker.arithmetic import allowed, check_sources, keep_operations
from ortisan.codegen.ait.worker.construct import Construction
from ortisan.codegen.ait.worker.own import join_chains, share_kernels
from ortisan.codegen.ait.worker.profiling import chosen_kernels, set_environment, watch_profiling
from ortisan.codegen.ait.worker.tiles import choose_tile, problem_size

_NAME = "model"
_LEFT_OUT = frozenset({"standalone.cu", "windll.cu", "utility.cu", "debug_utility.cu"})
_ENDINGS = (".cu", ".h", ".cuh", ".bin")


class SourcesOnly(builder.Builder):  # type: ignore[misc]
    """Keeps the list of sources in place of building them."""

    def make(self, *args: Any, **kwargs: Any) -> None:
        return None


class Untimed(SourcesOnly):
    def make_profilers(self, *args: Any, **kwargs: Any) -> None:
        return None


class NoModel:
    """Stands where AITemplate would load what it built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.debug_sorted_graph: Any = None


class Target(CUDA):  # type: ignore[misc]
    """CUDA, with kernels of one arithmetic, and tiles chosen by size where nothing is timed."""

    tf32: bool
    nvcc: str
    size: tuple[int, int] | None = None

    def __enter__(self) -> None:
        super().__enter__()
        self._operators: Any = allowed(self._operators, tf32=self.tf32)

    def select_minimal_algo(self, algo_names: list[str]) -> str:
        return choose_tile(algo_names, self.size)

    def cc(self) -> str:
        """What compiles profilers."""
        return self.nvcc


class NoKernels(Target):
    """For the passes alone: CUTLASS is not asked for the kernels that it has."""

    def __enter__(self) -> None:
        super(CUDA, self).__enter__()

    def __exit__(self, *args: Any) -> None:
        super(CUDA, self).__exit__(*args)


def make_target(job: dict[str, Any], *, kernels: bool = True) -> Target:
    options = {
        "no_tf32": job["no_tf32"],
        "use_fast_math": job["fast_math"],
        "elementwise_use_fp32_acc": True,
    }
    kind = Target if kernels else NoKernels
    target = kind(template_path=job["cutlass"], arch=job["arch"], **options)
    target.tf32, target.nvcc = not job["no_tf32"], job["nvcc"]
    return target


def compile_sources(
    job: dict[str, Any], construction: Construction, work: Path, *, kernels: bool = True
) -> tuple[Any, Target]:
    """AITemplate's graph after all its passes; the sources are in work/model."""
    target = make_target(job, kernels=kernels)
    engine = SourcesOnly() if job["devices"] else Untimed()
    builder.get_compile_engine = lambda: engine
    if job["devices"]:
        set_environment(job)
        watch_profiling()
    compiler.Model = NoModel
    _tell_sizes(target)
    keep_operations()
    share_kernels()
    model = compiler.compile_model(
        construction.outputs(),
        target,
        str(work),
        _NAME,
        profile_devs=[str(device) for device in job["devices"]] or None,
        dynamic_profiling_strategy=DynamicProfileStrategy.MAX,
    )
    return model.debug_sorted_graph, target


def _tell_sizes(target: Target) -> None:
    """Lets the target know the size of the product whose tile it is asked for."""
    profile = gemm.profile

    def profile_with_size(self: Any, *args: Any, **kwargs: Any) -> Any:
        workloads = list(self._attrs["exec_path"])
        target.size = problem_size(workloads[-1]) if workloads else None
        return profile(self, *args, **kwargs)

    gemm.profile = profile_with_size
    convolve = conv2d.profile

    def profile_without(self: Any, *args: Any, **kwargs: Any) -> Any:
        target.size = None
        return convolve(self, *args, **kwargs)

    conv2d.profile = profile_without


def generate(job: dict[str, Any], construction: Construction, work: Path, out: Path) -> dict[str, Any]:
    graph, target = compile_sources(job, construction, work)
    check_sources(work / _NAME, tf32=target.tf32)
    out.mkdir(parents=True)
    for file in sorted((work / _NAME).iterdir()):
        if file.suffix in _ENDINGS and file.name not in _LEFT_OUT:
            shutil.copy(file, out / file.name)
    shutil.rmtree(work)
    join_chains(out)
    names = [tensor._attrs["name"] for tensor in graph if tensor._attrs["is_input"]]
    return {
        "failures": [],
        "shapes": construction.compared,
        "inputs": sorted(names),
        "tiles": _tiles(graph),
    }


def _tiles(graph: Any) -> dict[str, int]:
    """The kernel that was chosen for each product and convolution -> how many sources have it."""
    ops = {op._attrs["name"]: op for tensor in graph for op in tensor._attrs["src_ops"]}
    chosen = [name for op in ops.values() for name in chosen_kernels(op)]
    return {name: chosen.count(name) for name in sorted(set(chosen)) if name}
