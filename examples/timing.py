"""Times sessions in turn."""

from __future__ import annotations

import time
from typing import Any


def interleaved(sessions: dict[str, Any], feeds: dict[str, Any], seconds: float) -> dict[str, float]:
    """The best time of each session in milliseconds, turn by turn, so that noise hits all alike."""
    best = dict.fromkeys(sessions, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, session in sessions.items():
            start = time.perf_counter()
            session.run(None, feeds)
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def compare(sessions: dict[str, Any], feeds: dict[str, Any], seconds: float) -> None:
    """Prints the best times of `onnxruntime` and `ortisan`, and their ratio."""
    times = interleaved(sessions, feeds, seconds)
    for name, best in times.items():
        print(f"{name:24} {best:8.2f} ms")
    print(f"{'speedup':24} {times['onnxruntime'] / times['ortisan']:8.2f}")
