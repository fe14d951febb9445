"""Results as tables and sentences, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ortisan.checks.bench import Bench
from ortisan.checks.verify import Verification
from ortisan.cli.demo import SIZES, Demo
from ortisan.cli.doctor import Finding
from ortisan.cli.screen import number, out, plural, row, say, table
from ortisan.pipeline.give_back import SLOWER
from ortisan.pipeline.inspect import Inspection
from ortisan.runtime.artifact import Artifact

_STATE_STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}
_MOST_ROWS = 20


def show_artifact(artifact: Artifact) -> None:
    manifest = artifact.manifest
    if artifact.ops:
        say(
            f"{plural(manifest['compiled_nodes'], 'node')} in {plural(len(artifact.ops), 'custom op')} "
            f"({', '.join(artifact.ops[:4])}{', ...' if len(artifact.ops) > 4 else ''}), "
            f"{manifest['flops_share']:.1%} of the operations, for {manifest['target']}."
        )
    else:
        say("Nothing is compiled: ONNX Runtime is faster at all of it. The model is unchanged.")
    _show_tuning(manifest["tuning"])
    for line in artifact.given_back:
        say(f"Given back: {line}.")
    groups = [group for group in manifest["left_out"] if not group["reason"].startswith(SLOWER)]
    if groups:
        say(f"{plural(sum(len(group['nodes']) for group in groups), 'node')} left to ONNX Runtime:")
        _show_left_out(groups)
    if artifact.verification is not None:
        show_verification(artifact.verification)
    if artifact.bench is not None:
        show_benches([artifact.bench])
    for warning in manifest.get("warnings", ()):
        say(f"Warning: {warning}.")
    if manifest.get("not_run"):
        say(f"Not verified and not timed: {manifest['not_run']}.")
    elif artifact.ops and manifest["verification"] is None:
        say("Not verified: it was not compared with ONNX Runtime.")
    say(f"Written to {artifact.folder}")


def _show_tuning(tuning: Mapping[str, Any]) -> None:
    sources = Counter(product["from"] for product in tuning["products"])
    if tuning["mode"] == "off" or not sources:
        return
    counts = ", ".join(f"{count} {source}" for source, count in sources.items())
    note = f" ({tuning['note']})" if tuning["note"] else ""
    say(f"Matrix-product blocking of {plural(sources.total(), 'size')}: {counts}{note}.")


def _show_left_out(groups: Sequence[dict[str, object]]) -> None:
    lines = table("  nodes", "op", "why", right=(0,))
    for group in groups[:_MOST_ROWS]:
        nodes = group["nodes"]
        row(lines, len(nodes) if isinstance(nodes, list) else "", group["op_type"], group["reason"])
    out().print(lines)
    if len(groups) > _MOST_ROWS:
        say(f"  and {len(groups) - _MOST_ROWS} more reasons (--json has all)")


def show_verification(verification: Verification) -> None:
    worst = verification.worst()
    state = "agrees with" if verification.passed else "DIFFERS from"
    say(f"The compiled model {state} {verification.reference}, on {plural(len(verification.cases), 'set')} of inputs:")
    lines = table("  output", "max abs", "max rel", "max ulp", "cosine", "", right=(1, 2, 3, 4))
    for name, figure in list(worst.items())[:_MOST_ROWS]:
        d = figure.difference
        ulp, cosine = ("-" if math.isnan(d.max_ulp) else f"{d.max_ulp:.0f}"), f"{d.cosine:.7f}"
        verdict = "ok" if figure.passed else (d.problem or f"at {figure.case}")
        row(lines, f"  {name}", number(d.max_abs), number(d.max_rel), ulp, cosine, verdict)
    out().print(lines)
    if len(worst) > _MOST_ROWS:
        say(f"  and {len(worst) - _MOST_ROWS} more outputs (--json has all)")


def show_benches(benches: Sequence[Bench]) -> None:
    say(f"Against {benches[0].against}, at {benches[0].case}:")
    lines = table("  threads", "compiled", "ONNX Runtime", "best of each", "ratio", right=(0, 1, 2, 3, 4))
    for bench in benches:
        ours, theirs = bench.compiled, bench.ort
        best = f"{ours.best:.3g} / {theirs.best:.3g} ms"
        threads = bench.threads if bench.threads is not None else "all"
        row(lines, threads, f"{ours.median:.3g} ms", f"{theirs.median:.3g} ms", best, f"{bench.ratio:.2f}x")
    out().print(lines)


def show_inspection(inspection: Inspection, *, explain: bool) -> None:
    compiled = inspection.compilation
    nodes = sum(item.nodes for item in inspection.rows)
    say(f"{compiled.name}: {plural(nodes, 'node')}, {inspection.share:.1%} of the operations can be compiled")
    say(f"for {compiled.target}. Folded nodes are constants and shape arithmetic.")
    say()
    lines = table("op", "nodes", "compiled", "folded", "left", "why", right=(1, 2, 3, 4))
    for item in inspection.rows:
        row(lines, item.op_type, item.nodes, item.compiled or "", item.folded or "", item.left or "", item.reason)
    out().print(lines)
    say()
    for index, (op, subgraph) in list(enumerate(zip(compiled.ops, compiled.partition.subgraphs, strict=True)))[
        :_MOST_ROWS
    ]:
        graph = subgraph.graph
        plan = compiled.plans[index]
        count = plan.describe()["kernels"]
        kernels = f" in {plural(count, 'kernel')}" if count else ""
        say(f"{op}: {plural(len(subgraph.nodes), 'simplified node')} -> {plural(len(graph.nodes), 'op')}{kernels}")
        ends = table("", "", "")
        ends.show_header = False
        for value in graph.inputs:
            row(ends, "  in", value.name, value.type)
        for name, value in zip(graph.output_names, graph.outputs, strict=True):
            row(ends, "  out", name, value.type)
        for word, figure, remark in plan.lines():
            row(ends, f"  {word}", figure, remark)
        out().print(ends)
    if len(compiled.ops) > _MOST_ROWS:
        say(f"and {len(compiled.ops) - _MOST_ROWS} more custom ops (--json has all)")
    _show_near_misses(inspection, explain)


def _show_near_misses(inspection: Inspection, explain: bool) -> None:
    misses = inspection.compilation.near_misses
    if not misses:
        return
    say()
    if not explain:
        say(f"{plural(len(misses), 'pattern')} nearly matched; --explain says why they did not.")
        return
    lines = table("pattern", "node", "why it does not match")
    for miss in misses:
        row(lines, miss.pattern, miss.node, miss.reason)
    out().print(lines)


def show_findings(findings: Sequence[Finding]) -> None:
    lines = table("", "", "")
    lines.show_header = False
    for finding in findings:
        state = Text(finding.state, style=_STATE_STYLES[finding.state])
        lines.add_row(Text(finding.what), state, Text(finding.detail))
    out().print(lines)


def show_demo(demo: Demo, *, kept: bool) -> None:
    manifest = demo.artifact.manifest
    say(f"A BERT encoder: {demo.parameters / 1e6:.1f} M parameters, {plural(demo.onnx_nodes, 'ONNX node')}.")
    op = manifest["ops"][0]
    say(
        f"Compiled to {plural(len(demo.artifact.ops), 'custom op')}: {op['onnx_nodes']} nodes became "
        f"{op['graph_nodes']} ops in {op['kernels']} kernels,"
    )
    say(f"{demo.share:.1%} of the floating-point operations, for {manifest['target']}.")
    say()
    show_verification(demo.verification)
    sizes = ", ".join(f"{batch} x {sequence}" for batch, sequence in SIZES)
    say(f"  batch x sequence: {sizes}; with and without padding")
    say()
    show_benches(demo.benches)
    if kept:
        say()
        say(f"The artifact is in {demo.artifact.folder}; ortisan.load('{demo.artifact.folder}') runs it.")
