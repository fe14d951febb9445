"""A session to open in another process: all that decides how, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortisan.runtime.artifact import Artifact, check_artifact_runs_here
from ortisan.runtime.engine import Optimizations, open_session, quiet_options, register
from ortisan.runtime.settings import Weights, apply_settings


@dataclass(frozen=True)
class SessionSpec:
    """A model file and how ONNX Runtime opens it, with the library of custom ops that it needs, if any."""

    path: Path
    optimizations: Optimizations = "all"
    threads: int | None = None
    providers: tuple[str, ...] = ()
    library: Path | None = None
    ops: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Session settings of the ops and what they are."""
    prepack: bool = True

    def stamp(self) -> tuple[Any, ...]:
        """What tells two files at the same path apart."""
        files = [file for file in (self.path, self.library) if file is not None and file.exists()]
        return tuple((str(file), file.stat().st_ino, file.stat().st_mtime_ns) for file in files)

    def open(self) -> Any:
        """The session, in this process. Raises `ArtifactError`."""
        options = quiet_options(optimizations=self.optimizations, threads=self.threads)
        if not self.prepack:
            options.add_session_config_entry("session.disable_prepacking", "1")
        if self.library is not None:
            apply_settings(options, self.ops, dict(self.settings))
            register(options, self.library)
        return open_session(self.path, options, self.providers or None)


def reference_session(path: Path) -> SessionSpec:
    """Stock ONNX Runtime, optimizations off. It runs only a few times, so prepacking its weights would not pay off."""
    return SessionSpec(path, "none", prepack=False)


def stock_session(path: Path, *, threads: int | None = None, providers: tuple[str, ...] = ()) -> SessionSpec:
    """Stock ONNX Runtime with all its optimizations."""
    return SessionSpec(path, threads=threads, providers=providers)


def artifact_session(artifact: Artifact, *, threads: int | None = None, weights: Weights | None = None) -> SessionSpec:
    """The artifact as `ortisan.load` opens it; an `ArtifactError` says why it can't run here."""
    check_artifact_runs_here(artifact)
    return compiled_session(artifact, threads=threads, weights=weights)


def compiled_session(artifact: Artifact, *, threads: int | None = None, weights: Weights | None = None) -> SessionSpec:
    """The artifact, wherever it can run."""
    settings = {**artifact.settings, **({} if weights is None else {"weights": weights})}
    return SessionSpec(
        artifact.model,
        threads=threads,
        providers=artifact.providers,
        library=artifact.library,
        ops=artifact.ops,
        settings=tuple(settings.items()),
    )
