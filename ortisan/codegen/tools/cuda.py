"""Finds the CUDA compiler and what it can build for.

nvcc is `$CUDACXX`, else that of `$CUDA_HOME`, else the one on PATH, else that of /usr/local/cuda.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.tools.toolchain import output_of
from ortisan.errors import ToolchainError

_OLDEST = (11, 8)
_CURAND = "curand_kernel.h"
_PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit that answered: its compiler, release ("12.4"), folder, and the architectures it builds for."""

    nvcc: Path
    version: str
    root: Path | None
    architectures: tuple[str, ...]

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(int(number) for number in self.version.split("."))


def find_cuda(environ: Mapping[str, str] | None = None) -> Cuda:
    """The toolkit to build with; a `ToolchainError` says what is wrong when there is none."""
    environ = os.environ if environ is None else environ
    nvcc = _find_nvcc(environ)
    version = re.search(r"release (\d+\.\d+)", output_of((str(nvcc), "--version")) or "")
    if version is None:
        raise ToolchainError(
            f"{nvcc} does not answer --version as nvcc does; set CUDACXX to the nvcc of a CUDA toolkit."
        )
    listed = re.findall(r"compute_(\d+)\b", output_of((str(nvcc), "--list-gpu-arch")) or "")
    found = Cuda(nvcc, version[1], _root(nvcc), tuple(dict.fromkeys(listed)))
    if found.release < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ToolchainError(f"{nvcc} is CUDA {found.version}; GPU targets need CUDA {oldest} or newer.")
    return found


def _find_nvcc(environ: Mapping[str, str]) -> Path:
    path = environ.get("PATH", os.defpath)
    if chosen := environ.get("CUDACXX", "").strip():
        if found := shutil.which(chosen, path=path):
            return Path(found)
        raise ToolchainError(f"$CUDACXX is {chosen!r}, but there is no such program; unset it or set it to nvcc.")
    home = environ.get("CUDA_HOME", "")
    candidates = ([f"{home}/bin/nvcc"] if home else []) + ["nvcc", "/usr/local/cuda/bin/nvcc"]
    for candidate in candidates:
        if found := shutil.which(candidate, path=path):
            return Path(found)
    raise ToolchainError(
        "No CUDA compiler was found: PATH has no nvcc, and $CUDACXX and $CUDA_HOME name none; install the CUDA toolkit "
        "(developer.nvidia.com/cuda-downloads), or write the sources only (--sources-only) and build them elsewhere."
    )


def _root(nvcc: Path) -> Path | None:
    """The toolkit's folder as nvcc itself sees it: what is on PATH may be a script that starts another."""
    said = output_of((str(nvcc), "--dryrun", "-x", "cu", "-c", os.devnull), errors=True) or ""
    top = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    return Path(os.path.normpath(top[1].strip())) if top else None


def check_architectures(cuda: Cuda, wanted: Iterable[str]) -> None:
    """Raises `ToolchainError` when the toolkit can't build for one of these ("80", "90")."""
    if missing := [arch for arch in wanted if cuda.architectures and arch not in cuda.architectures]:
        raise ToolchainError(
            f"CUDA {cuda.version} can't build for compute capability {', '.join(missing)}; it builds for "
            f"{', '.join(cuda.architectures)}. Use another toolkit, or another target."
        )


def find_curand(cuda: Cuda, python: str) -> Path:
    """The folder of curand_kernel.h, which CUTLASS includes: the toolkit's, else that of a wheel of `python`."""
    if cuda.root is not None and (cuda.root / "include" / _CURAND).is_file():
        return cuda.root / "include"
    site = (output_of((python, "-c", _PURELIB)) or "").strip()
    for header in sorted(Path(site).glob(f"nvidia/*/include/{_CURAND}")) if site else ():
        return header.parent
    raise ToolchainError(
        f"{_CURAND} was not found, neither in the CUDA toolkit {cuda.root or cuda.nvcc} nor in the packages of "
        f"{python}; install the toolkit's cuRAND (libcurand-dev), or 'pip install nvidia-curand' there."
    )
