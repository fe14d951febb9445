"""`python -m benchmarks.torch_front`: what the PyTorch front costs and gains, in turns in one process.

Two figures: the microseconds that a call of the wrapper takes over a call of the raw session, for a small net; and
BERT-base through torch.compile against eager and inductor.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.machine import cpu_name
from benchmarks.timing import Effort, best_and_median, take_turns

_LENGTH = 128


def overhead(effort: Effort) -> dict[str, Any]:
    """Microseconds per call of a two-layer net on four rows: the raw session, the wrapper, and the same in eager."""
    torch = importlib.import_module("torch")
    front = importlib.import_module("ortisan.torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        wrapped = front.compile(net)
        wrapped(x)
        runner = wrapped.entries()[0].runner
        feeds = {runner.inputs[0]: x.numpy()}
        count = 100
        calls: dict[str, Callable[[], Any]] = {
            "session": lambda: runner.session.run(None, feeds),
            "wrapper": lambda: wrapped(x),
            "eager": lambda: net(x),
        }
        runs = {name: _repeated(call, count) for name, call in calls.items()}
        times = {name: best_and_median(found) for name, found in take_turns(runs, effort).items()}
    figures = {name: [round(1e3 * ms / count, 2) for ms in found] for name, found in times.items()}
    figures["overhead"] = [round(a - b, 2) for a, b in zip(figures["wrapper"], figures["session"], strict=True)]
    return figures


def _repeated(call: Callable[[], Any], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


def bert(effort: Effort, layers: int) -> dict[str, Any]:
    """Milliseconds of BERT-base on one row of 128 tokens: eager, inductor and Ortisan."""
    torch = importlib.import_module("torch")
    front = importlib.import_module("ortisan.torch")
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers)).eval()
    ids = torch.randint(5, 1000, (1, _LENGTH))
    options = {"tune": "auto", "strict": True}
    mask = torch.ones_like(ids)
    with torch.no_grad():
        runs: dict[str, Any] = {
            "eager": model,
            "inductor": torch.compile(model, backend="inductor"),
            "ortisan": torch.compile(model, backend=front.backend, options=options),
        }
        want = model(ids, attention_mask=mask)[0]
        errors = {name: float((run(ids, attention_mask=mask)[0] - want).abs().max()) for name, run in runs.items()}
        calls = {name: _on(run, ids, mask) for name, run in runs.items()}
        times = {name: best_and_median(found) for name, found in take_turns(calls, effort).items()}
    figures: dict[str, Any] = {name: [round(ms, 2) for ms in found] for name, found in times.items()}
    ratios = {name: round(times[name][0] / times["ortisan"][0], 2) for name in ("eager", "inductor")}
    return {"ms": figures, "ratio": ratios, "max_abs_error": {name: float(f"{e:.1e}") for name, e in errors.items()}}


def _on(run: Any, ids: Any, mask: Any) -> Callable[[], Any]:
    return lambda: run(ids, attention_mask=mask)


def main(
    seconds: Annotated[float, typer.Option(help="How long to time each of both.")] = 40.0,
    layers: Annotated[int, typer.Option(help="Layers of BERT; 12 is BERT-base.")] = 12,
    threads: Annotated[int | None, typer.Option(help="Of torch and of ONNX Runtime; as many as torch takes.")] = None,
    only: Annotated[str, typer.Option(help="overhead, bert or both")] = "both",
    output: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Times the PyTorch front."""
    if only not in ("overhead", "bert", "both"):
        raise typer.BadParameter("the choice is: overhead, bert, both", param_hint="--only")
    effort = Effort(seconds, rounds=4)
    torch = importlib.import_module("torch")
    if threads is not None:
        torch.set_num_threads(threads)
    report: dict[str, Any] = {"machine": cpu_name(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    if only in ("overhead", "both"):
        report["overhead_us"] = overhead(effort)
    if only in ("bert", "both"):
        report["bert"] = bert(effort, layers)
    text = json.dumps(report, indent=1)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
