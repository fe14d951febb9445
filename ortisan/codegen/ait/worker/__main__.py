"""Starts the worker: `python worker/__main__.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[3]


def _stand_in_for_the_package() -> None:
    """Makes `ortisan.codegen...` importable without what Ortisan itself depends on."""
    for name in ("ortisan", "ortisan.codegen", "ortisan.codegen.ait"):
        module = types.ModuleType(name)
        module.__path__ = [str(PACKAGE.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def _prepare_environment(profile: bool) -> None:
    """AITemplate is never to look for a GPU, of which it knows some by name. Without timing it writes no profilers."""
    os.environ.update(LOGLEVEL="ERROR", AIT_BUILD_DOCS="1")
    if not profile:
        os.environ.update(CI_FLAG="CIRCLECI", DISABLE_PROFILER_CODEGEN="1")


def main(folder: Path) -> int:
    job: dict[str, Any] = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    sys.path[:] = [*job["paths"], *(path for path in sys.path if path != str(Path(__file__).parent))]
    _prepare_environment(bool(job["devices"]))
    _stand_in_for_the_package()
    from ortisan.codegen.ait.worker.run import run_job

    return run_job(job, folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
