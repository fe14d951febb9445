"""Ctrl-C at any moment: a sentence, the exit code of an interrupt, and nothing left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
MAIN = "import sys\nfrom ortisan.cli import main\nsys.argv = ['ortisan', 'demo', '--small', '-o', {place!r}]\nsys.exit(main())"


def run(script: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        # Tests that run in the background of a shell are started with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return done.returncode, done.stderr


def interrupted_by_import(name: str) -> str:
    """An importer that interrupts the process when a module is asked for."""
    return (
        "import sys, os, signal\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {name!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
    )


@pytest.mark.parametrize("module", ["rich.console", "sympy"])
def test_while_importing(module: str, tmp_path: Path) -> None:
    code, complaint = run(interrupted_by_import(module) + MAIN.format(place=str(tmp_path / "out")))
    assert (code, complaint.count("\n")) == (130, 1)
    assert complaint.startswith("error: interrupted")
    assert list(tmp_path.iterdir()) == []


WORK = """
import os, signal, time
import ortisan.cli.demo as demo
def work(*_, **__):
    try:
        {act}
        time.sleep(3600)
    finally:
        os.kill(os.getpid(), signal.SIGINT)  # impatience
        open({mark!r}, "w").write("cleaned up")
demo.run_demo = work
"""


@pytest.mark.parametrize(
    "act",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        "import weakref\n        class A: pass\n        a = A(); r = weakref.ref(a, lambda _: os.kill(os.getpid(), signal.SIGINT)); del a",
        "\n        try: os.kill(os.getpid(), signal.SIGINT); time.sleep(1)\n        except KeyboardInterrupt: raise ImportError('it made something else of it')",
    ],
    ids=["plain", "where nothing can be raised", "turned into another error"],
)
def test_while_working(act: str, tmp_path: Path) -> None:
    """A second interrupt does not disturb the cleaning up."""
    mark = tmp_path / "mark"
    code, complaint = run(WORK.format(act=act, mark=str(mark)) + MAIN.format(place=str(tmp_path / "out")))
    assert (code, complaint) == (130, "error: interrupted; nothing was left behind\n")
    assert mark.read_text() == "cleaned up"


def test_a_process_that_ignores_interrupts_goes_on(tmp_path: Path) -> None:
    script = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + interrupted_by_import("typer")
    code, complaint = run(
        f"{script}import sys\nfrom ortisan.cli import main\nsys.argv = ['ortisan', '--version']\nsys.exit(main())"
    )
    assert (code, complaint) == (0, "")
