"""An artifact folder, opened: what is in it, and a session that runs it."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ortisan.errors import ArtifactError, OptionError
from ortisan.runtime.engine import onnxruntime, open_session, register
from ortisan.runtime.manifest import Manifest, read_manifest, sha256
from ortisan.runtime.providers import check_loaded, check_providers, preload, providers_of
from ortisan.runtime.settings import Weights, apply_settings, check_weights, has_entry, setting_key

if TYPE_CHECKING:
    from ortisan.checks.bench import Bench
    from ortisan.checks.verify import Verification

_HASHED_BYTES = 64 << 20
"""Files up to this size are checked by their hash when a session is opened, larger ones by their size.

`verify` and `bench` check all bytes."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """A converted model and the library of its custom ops. `ortisan.load(artifact.folder)` runs it."""

    folder: Path
    name: str
    model: Path
    library: Path | None
    """None when nothing was compiled, because ONNX Runtime was faster at all of it."""
    domain: str
    ops: tuple[str, ...]
    manifest: Manifest = field(repr=False)
    verification: Verification | None = None
    """What `build` found, as long as the artifact is that of `build`; `manifest` keeps the figures."""
    benches: tuple[Bench, ...] = ()
    """Timings by `build`, one for each number of threads, the last with all of them."""

    @property
    def bench(self) -> Bench | None:
        return self.benches[-1] if self.benches else None

    @property
    def target(self) -> str:
        return str(self.manifest.get("target", ""))

    @property
    def given_back(self) -> tuple[str, ...]:
        """Why compiled subgraphs were left to ONNX Runtime after all."""
        return tuple(self.manifest.get("given_back", ()))

    @property
    def shared(self) -> dict[str, str]:
        """Inputs whose memory an output may be, and those outputs: caches that are written in place."""
        return dict(self.manifest.get("shared", {}))

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that a session is opened with."""
        return providers_of(self.manifest)

    @property
    def settings(self) -> dict[str, str]:
        """Session settings of the custom ops -> what they are when a session does not say."""
        return dict(self.manifest.get("settings", {}))

    def __repr__(self) -> str:
        facts = [f"{len(self.ops)} custom op{'' if len(self.ops) == 1 else 's'}"]
        if not self.ops:
            facts = ["nothing compiled: ONNX Runtime is faster"]
        facts += [f"{len(self.given_back)} given back"] if self.ops and self.given_back else []
        if self.verification is not None:
            emulated = ", emulated" if self.verification.emulated else ""
            facts.append(f"max abs error {self.verification.max_abs:.2g}{emulated}")
        if self.bench is not None:
            facts.append(f"{self.bench.ratio:.2f} times as fast as ONNX Runtime")
        return f"Artifact('{self.folder}', {', '.join(facts)})"


def open_artifact(folder: str | os.PathLike[str] | Artifact) -> Artifact:
    """Reads the manifest and checks that the files it names are there, as large as they were."""
    if isinstance(folder, Artifact):
        return folder
    place = Path(folder)
    manifest = read_manifest(place)
    for file, facts in manifest["files"].items():
        if not (place / file).is_file():
            raise ArtifactError(f"'{place}' lacks '{file}'; copy the whole folder, or build the artifact again")
        if (place / file).stat().st_size != facts["bytes"]:
            raise ArtifactError(f"'{place / file}' has changed since it was built; build the artifact again")
    library = place / manifest["library"] if manifest["library"] is not None else None
    ops = tuple(op["op"] for op in manifest["ops"])
    return Artifact(place, manifest["name"], place / manifest["model"], library, manifest["domain"], ops, manifest)


def load(
    folder: str | os.PathLike[str] | Artifact,
    sess_options: Any = None,
    providers: Sequence[Any] | None = None,
    weights: Weights | None = None,
) -> Any:
    """An `onnxruntime.InferenceSession` of the artifact, its custom ops registered.

    `sess_options` are the caller's; the library is registered in them unless it is already. `providers` as ONNX Runtime
    takes them, those of the artifact's target when not given. `weights` is "mapped" (read from the mapped file), "huge"
    (copied once per process to 2 MB pages: faster for few rows, more memory) or "auto"; when not given, what `build`
    was told.
    """
    ort = onnxruntime()
    if weights is not None:
        check_weights(weights)
    artifact = open_artifact(folder)
    check_content(artifact)
    check_providers(artifact.folder, artifact.manifest, providers)
    if weights is not None and "weights" not in artifact.settings:
        raise OptionError(f"'{artifact.folder}' is for {artifact.target}, whose custom ops have no setting 'weights'")
    options = sess_options if sess_options is not None else ort.SessionOptions()
    if weights is not None and artifact.ops and _is_registered(artifact, options):
        raise OptionError(
            f"sess_options have the library of '{artifact.folder}' registered already, so weights={weights!r} "
            f"comes too late; set the session config entry '{setting_key(artifact.ops[0], 'weights')}' before that"
        )
    return open_compiled(artifact, options, providers, weights=weights)


def open_compiled(
    artifact: Artifact, options: Any, providers: Sequence[Any] | None = None, *, weights: Weights | None = None
) -> Any:
    """A session of an artifact whose files are taken as they are. The library leaves options alone that know it."""
    check_artifact_runs_here(artifact, providers)
    if artifact.library is not None:
        if not _is_registered(artifact, options):  # the library read its settings when it was registered
            apply_settings(options, artifact.ops, artifact.settings, {} if weights is None else {"weights": weights})
        preload(artifact.providers[0])
        register(options, artifact.library)
    try:
        return open_session(artifact.model, options, providers or artifact.providers)
    except ArtifactError:
        check_loaded(artifact.folder, artifact.manifest)
        raise


def check_artifact_runs_here(artifact: Artifact, providers: Sequence[Any] | None = None) -> None:
    """Raises an `ArtifactError` when no session of the artifact can be opened on this machine."""
    check_providers(artifact.folder, artifact.manifest, providers)
    machine = artifact.manifest.get("machine")
    if machine not in (None, platform.machine()):
        raise ArtifactError(
            f"'{artifact.folder}' was built for {machine}, and this machine is {platform.machine()}; load it there, or "
            "build it for this machine"
        )
    if artifact.library is not None and not artifact.library.is_file():
        raise ArtifactError(
            f"'{artifact.folder}' has only sources; build them ('cmake -B build && cmake --build build' in "
            f"'{artifact.folder / 'src'}', whose CMakeLists.txt says what it needs) and copy '{artifact.library.name}' "
            "into the folder"
        )


def _is_registered(artifact: Artifact, options: Any) -> bool:
    """Whether session options know the artifact's library, which leaves this entry in them."""
    return has_entry(options, f"{artifact.domain}.registered")


def check_content(artifact: Artifact, *, all_bytes: bool = False) -> None:
    """Raises an `ArtifactError` when a file is not as it was built; with `all_bytes`, large files are read, too."""
    for name, facts in artifact.manifest["files"].items():
        file = artifact.folder / name
        if facts["bytes"] > _HASHED_BYTES and not all_bytes:
            continue
        try:
            content = sha256(file)
        except OSError as error:
            raise ArtifactError(f"'{file}' can't be read: {error.strerror or error}") from error
        if content != facts.get("sha256"):
            raise ArtifactError(f"'{file}' has changed since it was built; build the artifact again")
