"""Models that lie inside of a published package: its wheel is downloaded, not installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def fetch(package: str, names: list[str], folder: Path) -> list[Path]:
    """The files `names` of the wheel of `package`, in `folder`; downloaded once."""
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / name).exists() for name in names):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
        (wheel,) = folder.glob(f"{package.partition('==')[0].replace('-', '_')}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, names)
    return [folder / name for name in names]
