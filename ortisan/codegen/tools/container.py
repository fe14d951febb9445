"""Calls Ortisan in a container: a build on a machine without compilers, or from inside another container.

Folders are mounted under the paths they have here. The engine resolves them on its own machine, so a call from inside a
container works when that container sees those folders under the same paths, too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.codegen.tools.toolchain import ask_tool, run_tool
from ortisan.errors import OptionError, ToolchainError

ENGINE = "ORTISAN_CONTAINER_ENGINE"
PROGRESS = "ORTISAN_PROGRESS"
PROGRESS_MARK = "ortisan: "
_ERROR_MARK = "error: "


@dataclass(frozen=True)
class ContainerCall:
    """`ortisan ARGUMENTS` in a container of `image`; paths in the arguments are absolute."""

    image: str
    arguments: tuple[str, ...]
    read: tuple[Path, ...]
    """Folders that are mounted read-only."""
    write: tuple[Path, ...]
    gpus: bool = False

    def argv(self, engine: str, name: str) -> list[str]:
        mounts = {**dict.fromkeys(map(str, self.read), ":ro"), **dict.fromkeys(map(str, self.write), "")}
        command = [engine, "run", "--rm", "--init", "--name", name, "--user", f"{os.getuid()}:{os.getgid()}"]
        command += ["--gpus", "all"] if self.gpus else []
        for folder, mode in sorted(mounts.items()):
            command += ["--volume", f"{folder}:{folder}{mode}"]
        for variable, value in self.environment().items():
            command += ["--env", f"{variable}={value}"]
        return [*command, self.image, "ortisan", *self.arguments]

    def environment(self) -> dict[str, str]:
        return {"HOME": "/tmp", "ORTISAN_CACHE_DIR": os.path.abspath(cache_folder()), PROGRESS: "lines"}


def find_engine(environ: Mapping[str, str] | None = None) -> str:
    """$ORTISAN_CONTAINER_ENGINE, else docker, else podman."""
    environ = os.environ if environ is None else environ
    path = environ.get("PATH", os.defpath)
    chosen = environ.get(ENGINE, "").strip()
    for name in [chosen] if chosen else ["docker", "podman"]:
        if found := shutil.which(name, path=path):
            return found
    if chosen:
        raise ToolchainError(f"${ENGINE} is '{chosen}', but there is no such program; unset it or set it to docker.")
    raise ToolchainError(
        f"No container engine was found: PATH has neither docker nor podman; install one or set {ENGINE}."
    )


def run_in_container(call: ContainerCall, on_progress: Callable[[str], None] | None = None) -> None:
    """Runs the call to its end. A failure is a `ToolchainError` with what Ortisan or the engine said last."""
    for folder in (*call.read, *call.write):
        if ":" in str(folder):
            raise OptionError(f"'{folder}' can't be mounted in a container, because its name has a ':'; rename it")
    engine, name = find_engine(), f"ortisan-{uuid.uuid4().hex[:12]}"
    for folder in call.write:
        folder.mkdir(parents=True, exist_ok=True)
    said: list[str] = []

    def listen(line: str) -> None:
        if line.startswith(PROGRESS_MARK):
            if on_progress is not None:
                on_progress(line.removeprefix(PROGRESS_MARK))
        elif line.strip():
            said.append(line.strip())

    with tempfile.TemporaryDirectory(prefix="ortisan-container-") as logs:
        try:
            code = run_tool(call.argv(engine, name), log=Path(logs, "log"), on_line=listen)
        except BaseException:
            ask_tool([engine, "kill", name], {})
            raise
    if code != 0:
        raise ToolchainError(f"The build in '{call.image}' failed: {_reason(said) or f'exit code {code}'}")


def _reason(said: Sequence[str]) -> str:
    errors = [line.removeprefix(_ERROR_MARK) for line in said if line.startswith(_ERROR_MARK)]
    return errors[-1] if errors else " ".join(said[-2:])
