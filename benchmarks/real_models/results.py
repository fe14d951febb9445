"""What came out for each model, to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OURS, ORT, OPENVINO, OPENVINO_F32 = "ortisan", "ort", "openvino", "openvino_f32"
RIVALS = (ORT, OPENVINO, OPENVINO_F32)
SLOW_BUILD_SECONDS = 60


@dataclass(frozen=True)
class Built:
    """One run of `ortisan build`. `problem` is why there is no artifact; `reason` why not more is compiled."""

    seconds: float
    problem: str = ""
    ops: int = 0
    share: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Checked:
    """The largest errors over all outputs of one case, against ONNX Runtime without optimizations.

    `noise` is how far ONNX Runtime itself moves: with its optimizations, or with inputs that differ in the last bit.
    """

    shapes: Mapping[str, str]
    max_abs: float
    max_rel: float
    noise: float
    problem: str = ""
    """Why the outputs are wrong, if they are."""


@dataclass(frozen=True)
class Timed:
    """Milliseconds per run, and the error of these outputs."""

    best: float
    median: float
    runs: int
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class Row:
    """One number of threads."""

    threads: int
    timed: Mapping[str, Timed]

    def ratio(self, rival: str = ORT) -> float | None:
        """How many times as fast as the rival we are."""
        ours, theirs = self.timed.get(OURS), self.timed.get(rival)
        return theirs.best / ours.best if ours and theirs else None


@dataclass(frozen=True)
class Result:
    """All about one model; `absent` is why a rival has no figures."""

    name: str
    kind: str
    built: Built | None
    """None when the model could not be had."""
    checked: tuple[Checked, ...] = ()
    rows: tuple[Row, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    """What went wrong outside of `ortisan build`: the model could not be had, or a run died."""

    @property
    def outcome(self) -> str:
        if self.built is None:
            return "not fetched"
        if self.built.problem:
            return "failed"
        if self.problem:
            return "died"
        if any(check.problem for check in self.checked):
            return "wrong"
        return "compiled" if self.built.ops else "kept"

    @property
    def reason(self) -> str:
        problems = (self.problem, self.built.problem if self.built else "", *(c.problem for c in self.checked))
        return next(filter(None, problems), self.built.reason if self.built else "")


@dataclass(frozen=True)
class Report:
    machine: str
    versions: Mapping[str, str]
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_report(plain: Mapping[str, Any]) -> Report:
    """The report that `to_json` wrote."""
    return Report(plain["machine"], plain["versions"], tuple(_read_result(one) for one in plain["results"]))


def _read_result(plain: Mapping[str, Any]) -> Result:
    return Result(
        plain["name"],
        plain["kind"],
        Built(**plain["built"]) if plain["built"] else None,
        tuple(read_check(check) for check in plain["checked"]),
        tuple(read_row(row) for row in plain["rows"]),
        plain["absent"],
        plain["problem"],
    )


def read_check(plain: Mapping[str, Any]) -> Checked:
    """Figures that are not finite are null in JSON."""
    endless = {key: float("inf") for key in ("max_abs", "max_rel", "noise") if plain[key] is None}
    return Checked(**{**plain, **endless})


def read_row(plain: Mapping[str, Any]) -> Row:
    timed = {}
    for name, figures in plain["timed"].items():
        endless = {key: float("inf") for key in ("max_abs", "max_rel") if figures[key] is None}
        timed[name] = Timed(**{**figures, **endless})
    return Row(plain["threads"], timed)
