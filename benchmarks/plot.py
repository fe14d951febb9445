"""A report as a picture: how many times as fast as ONNX Runtime each runtime is, a group of bars per workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers import HUGE, ORT, OURS, PEERS
from benchmarks.results import Report, Row

_COLORS = {
    OURS: "#c2410c",
    HUGE: "#f59e0b",
    "ort-fused": "#64748b",
    "openvino": "#2563eb",
    "torch": "#7c3aed",
}
_GROUP_HEIGHT = 0.82
_BAR_INCHES = 0.15


def speeds(row: Row) -> dict[str, float]:
    """ORT's best time divided by that of each of the others that are right."""
    stock = row.timed.get(ORT)
    if stock is None:
        return {}
    return {name: stock.best / timed.best for name, timed in row.timed.items() if name != ORT and not timed.problem}


def draw(report: Report, file: Path) -> tuple[Path, Path]:
    """Writes the picture as PNG and SVG, under the name of `file`."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ortisan"
    from matplotlib import pyplot

    counts = sorted({row.threads for result in report.results for row in result.rows})
    most = max((len(speeds(row)) for result in report.results for row in result.rows), default=1)
    height = 1.2 + _BAR_INCHES * len(report.results) * max(most, 2)
    figure, panels = pyplot.subplots(
        1, len(counts), figsize=(2.5 + 4 * len(counts), height), squeeze=False, sharey=True, layout="constrained"
    )
    for panel, threads in zip(panels[0], counts, strict=True):
        _draw_panel(panel, report, threads)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    files = file.with_suffix(".png"), file.with_suffix(".svg")
    figure.savefig(files[0], dpi=150)
    figure.savefig(files[1], metadata={"Date": None})
    pyplot.close(figure)
    return files


def _draw_panel(panel: Any, report: Report, threads: int) -> None:
    rows = [(result.title, row) for result in report.results for row in result.rows if row.threads == threads]
    names = [name for name in PEERS if any(name in speeds(row) for _, row in rows)]
    height = _GROUP_HEIGHT / max(len(names), 1)
    for place, name in enumerate(names):
        offset = (place + 0.5) * height - _GROUP_HEIGHT / 2
        points = [(group + offset, speeds(row)[name]) for group, (_, row) in enumerate(rows) if name in speeds(row)]
        bars = panel.barh(
            [y for y, _ in points], [x for _, x in points], 0.92 * height, label=PEERS[name].title, color=_COLORS[name]
        )
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}
        panel.bar_label(bars, fmt="%.2f", fontsize=7, padding=3, bbox=paper)
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_yticks(range(len(rows)), [title for title, _ in rows], fontsize=8)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlabel("times as fast as ONNX Runtime")
    panel.set_title(f"{threads} thread{'' if threads == 1 else 's'}", loc="left", fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.1)
