"""docs/real-models.md: one row per model, and what the rows add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.real_models.results import OPENVINO, OPENVINO_F32, ORT, SLOW_BUILD_SECONDS, Report, Result

_INTRO = Path(__file__).with_name("page.md")
_HEAD = (
    "| model | kind | outcome | compiled | ops | ONNX Runtime, 1 / {n} | OpenVINO, 1 / {n} | f32, 1 / {n} "
    "| error: ours / noise / OpenVINO | build | why not more |",
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
)
_SLOWER = 0.97


def markdown(report: Report) -> str:
    results = report.results
    threads = max((row.threads for result in results for row in result.rows), default=1)
    head = [line.format(n=threads) for line in _HEAD]
    versions = ", ".join(f"{package} {version}" for package, version in report.versions.items())
    machine = f"Measured on {report.machine}, with {versions}." if results else "Nothing was measured."
    rows = [_row(result) for result in results]
    return "\n".join([_INTRO.read_text(encoding="utf-8"), machine, "", *summary(results), "", *head, *rows]) + "\n"


def summary(results: Sequence[Result]) -> list[str]:
    """What the rows add up to, as a list in Markdown."""
    outcomes = Counter(result.outcome for result in results)
    ended = [result for result in results if result.built is not None and not result.built.problem]
    ratios = [ratio for result in ended for row in result.rows if (ratio := row.ratio()) is not None]
    seconds = sorted(result.built.seconds for result in ended if result.built is not None)
    lines = [
        f"- {len(results)} models: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.most_common())}."
    ]
    if seconds:
        slow = sum(second > SLOW_BUILD_SECONDS for second in seconds)
        lines.append(
            f"- Builds take {seconds[len(seconds) // 2]:.0f} s in the median and {seconds[-1]:.0f} s at most; "
            f"{slow} take more than {SLOW_BUILD_SECONDS} s."
        )
    if ratios:
        below = sum(ratio < _SLOWER for ratio in ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(
            f"- Against ONNX Runtime: {mean:.2f} in the geometric mean, {min(ratios):.2f} at least, {max(ratios):.2f} "
            f"at most; {below} of {len(ratios)} below {_SLOWER}."
        )
    return lines


def _row(result: Result) -> str:
    built = result.built
    cells = [
        f"`{result.name}`",
        result.kind,
        result.outcome,
        f"{built.share:.0%}" if built and built.ops else "",
        str(built.ops) if built and built.ops else "",
        *(_ratios(result, rival) for rival in (ORT, OPENVINO, OPENVINO_F32)),
        _errors(result),
        f"{built.seconds:.0f} s" if built else "",
        result.reason,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _ratios(result: Result, rival: str) -> str:
    found = [row.ratio(rival) for row in result.rows]
    return " / ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in found)


def _errors(result: Result) -> str:
    if not result.checked:
        return ""
    ours = max(check.max_rel for check in result.checked)
    noise = max(check.noise for check in result.checked)
    theirs = [row.timed[OPENVINO].max_rel for row in result.rows if OPENVINO in row.timed]
    return " / ".join([_error(ours), _error(noise), _error(max(theirs)) if theirs else "-"])


def _error(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.0e}" if math.isfinite(value) else "not comparable"
