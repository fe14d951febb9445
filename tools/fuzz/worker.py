"""A process that tries mutants one after the other: {"index": 7, "build": false} a line in, an `Outcome` a line out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sys
import tempfile
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import ortisan
from ortisan.checks.isolated import Isolated
from ortisan.pipeline.compilation import Compilation
from tools.fuzz.bases import base_models
from tools.fuzz.mutate import make_mutant
from tools.fuzz.numpy_check import disagreement
from tools.fuzz.outcome import Outcome

MODEL = "mutant.onnx"
_OF_ONNXRUNTIME = ".ses"
"""What importing onnxruntime writes to the temporary folder."""
_MEMORY = 6 << 30
_ROOT = Path(__file__).parents[2]


def serve(folder: Path, seed: int, models: Path | None, answers: TextIO) -> None:
    """Works in `folder`, which it alone uses."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    warnings.simplefilter("ignore")
    bases = base_models(models)
    with Isolated() as runner:
        for line in sys.stdin:
            request = json.loads(line)
            file = folder / MODEL
            file.write_bytes(make_mutant(bases, seed, request["index"]).content)
            done = _try(file, runner, build=request["build"])
            answers.write(json.dumps(asdict(done)) + "\n")
            answers.flush()


def _try(file: Path, runner: Isolated, *, build: bool) -> Outcome:
    folder, temporary = file.parent, Path(tempfile.gettempdir())
    try:
        done = _build(file, folder / "out") if build else _look(file, runner)
    except ortisan.InternalError as error:
        done = Outcome("internal", str(error), _place(error.__cause__ or error))
    except ortisan.OrtisanError as error:
        done = Outcome("refused", f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001  # what is looked for
        done = Outcome("raw", f"{type(error).__name__}: {error}", _place(error))
    left = [each for each in temporary.iterdir() if each.name != _OF_ONNXRUNTIME]
    left += [each for each in folder.iterdir() if each.name not in (MODEL, "out", temporary.name)]
    if (folder / "out").exists() and not (folder / "out" / "manifest.json").exists():
        left.append(folder / "out")
    shutil.rmtree(folder / "out", ignore_errors=True)
    for each in left:
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return Outcome("left behind", ", ".join(each.name for each in left)) if left and not done.is_bug else done


def _look(file: Path, runner: Isolated) -> Outcome:
    """`inspect` compiles as far as the kernel plan, which is all that `compile` does."""
    compiled = ortisan.inspect(file).compilation
    if not compiled.graphs:
        return Outcome("nothing")
    with tempfile.TemporaryDirectory() as folder:
        try:
            said = disagreement(file, compiled, runner, Path(folder))
        except Exception as error:  # noqa: BLE001  # a build shows whether it matters
            said = f"{type(error).__name__}: {error}"
    return Outcome("compiled", said, build_is_due=bool(said), compiled_to=_compiled_to(compiled))


def _compiled_to(compiled: Compilation) -> tuple[str, ...]:
    nodes = {node for graph in compiled.graphs for node in graph.nodes}
    kinds = {f"{node.op.name}({', '.join(f'{v.dtype.value}/{v.type.rank}' for v in node.inputs)})" for node in nodes}
    return tuple(sorted(kinds))


def _build(file: Path, out: Path) -> Outcome:
    artifact = ortisan.build(file, out, tune="off", quick=True, keep="all")
    departures = artifact.manifest["departures"]
    if departures:
        return Outcome("departed", "; ".join(f"{each['op']}: {each['reason']}" for each in departures))
    if not artifact.ops:
        return Outcome("nothing")
    checked = ortisan.verify(out)
    return Outcome("right" if checked.passed else "wrong", checked.verification.why_not())


def _place(error: BaseException) -> str:
    """The innermost line of ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        with contextlib.suppress(ValueError):
            return f"{Path(frame.filename).relative_to(_ROOT / 'ortisan')}:{frame.lineno}"
    return ""


if __name__ == "__main__":
    # Whatever libraries print must not be taken for an answer.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        serve(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None, channel)
