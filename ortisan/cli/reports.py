"""Results as tables and sentences, for a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ortisan.cli.demo import SIZES, Demo
from ortisan.cli.doctor import Finding
from ortisan.cli.figures import show_benches, show_verification
from ortisan.cli.screen import out, plural, row, say, table
from ortisan.cli.sizes import relabelled
from ortisan.pipeline.give_back import SLOWER
from ortisan.pipeline.inspect import Inspection
from ortisan.runtime.artifact import Artifact

_STATE_STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}
_MOST_ROWS = 20
_WORTH_TELLING = 0.05
"""The part of a model's time from which an op is named."""


def show_artifact(artifact: Artifact) -> None:
    manifest = artifact.manifest
    if artifact.ops:
        say(
            f"{plural(manifest['compiled_nodes'], 'node')} in {plural(len(artifact.ops), 'custom op')} "
            f"({', '.join(artifact.ops[:4])}{', ...' if len(artifact.ops) > 4 else ''}), "
            f"{manifest['flops_share']:.1%} of the operations, for {manifest['target']}."
        )
    else:
        say(f"Nothing is compiled: {_why_nothing(artifact)}. The model is unchanged.")
        _show_costliest(manifest.get("costliest_left", ()))
    _show_tuning(manifest["tuning"])
    for left in manifest.get("departures", ()):
        where = f" ({artifact.folder / left['reproducer']} has a reproducer)" if left["reproducer"] else ""
        say(f"NOT RIGHT, so left to ONNX Runtime: {left['op']}: {left['reason']}{where}. Please report it.")
    for line in artifact.given_back:
        say(f"Given back: {line}.")
    groups = [group for group in manifest["left_out"] if not group["reason"].startswith(SLOWER)]
    if groups:
        say(f"{plural(sum(len(group['nodes']) for group in groups), 'node')} left to ONNX Runtime:")
        _show_left_out(groups)
        _show_overridable(manifest.get("overridable_inputs", 0))
    if artifact.verification is not None:
        show_verification(artifact.verification)
    if manifest.get("noisy_node"):
        say(f"Most of the noise is made by {manifest['noisy_node']}.")
    if artifact.bench is not None:
        show_benches(list(relabelled(artifact.benches, manifest["options"]["dims"])))
    if manifest.get("narrow"):
        say(f"{manifest['narrow']}.")
    for name, bound in manifest.get("options", {}).get("dims", {}).items():
        if bound == "free":
            say(f"Inputs may differ in '{name}', a name that several of their dims have (--dim {name}=free).")
    for warning in manifest.get("warnings", ()):
        say(f"Warning: {warning}.")
    if manifest.get("not_run"):
        what = "Not verified and not timed" if manifest["verification"] is None else "Not timed"
        say(f"{what}: {manifest['not_run']}.")
    elif artifact.ops and manifest["verification"] is None:
        say("Not verified: it was not compared with ONNX Runtime.")
    say(f"Written to {artifact.folder}")


def _why_nothing(artifact: Artifact) -> str:
    if artifact.manifest.get("departures", ()):
        return "what could be was not right"
    if not artifact.given_back:
        return "nothing that can be would make it faster"
    slower = all(SLOWER in line for line in artifact.given_back)
    return "ONNX Runtime is faster at all of it" if slower else "all of it was given back"


def _show_costliest(rows: Sequence[Mapping[str, Any]]) -> None:
    """What would have to be compiled to win."""
    listed = ", ".join(f"{row['op_type']} {row['share']:.0%}" for row in rows if row["share"] >= _WORTH_TELLING)
    if listed:
        say(f"Most of its time goes into what is left to ONNX Runtime: {listed}.")


def _show_tuning(tuning: Mapping[str, Any]) -> None:
    sources = Counter(product["from"] for product in tuning["products"])
    if tuning["mode"] == "off" or not sources:
        return
    counts = ", ".join(f"{count} {source}" for source, count in sources.items())
    note = f" ({tuning['note']})" if tuning["note"] else ""
    say(f"Matrix-product blocking of {plural(sources.total(), 'size')}: {counts}{note}.")


def _show_overridable(count: int) -> None:
    if count:
        inputs = f"{plural(count, 'input')} {'has a default value' if count == 1 else 'have default values'}"
        say(f"{inputs} and can't be packed or folded; --freeze-inputs makes constants of such inputs.")


def _show_left_out(groups: Sequence[dict[str, object]]) -> None:
    lines = table("  nodes", "op", "why", right=(0,))
    for group in groups[:_MOST_ROWS]:
        nodes = group["nodes"]
        row(lines, len(nodes) if isinstance(nodes, list) else "", group["op_type"], group["reason"])
    out().print(lines)
    if len(groups) > _MOST_ROWS:
        say(f"  and {len(groups) - _MOST_ROWS} more reasons (--json has all)")


def show_inspection(inspection: Inspection, *, explain: bool) -> None:
    compiled = inspection.compilation
    nodes = sum(item.nodes for item in inspection.rows)
    done, left = (sum(getattr(item, what) for item in inspection.rows) for what in ("compiled", "left"))
    say(f"{compiled.name}: {plural(nodes, 'node')}, {done} can be compiled for {compiled.target}, {left} are left.")
    say(f"That is about {inspection.share:.1%} of the operations, symbolic dims taken at a typical size.")
    say("Folded nodes are constants and shape arithmetic.")
    _show_overridable(inspection.to_json()["overridable_inputs"])
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
        if explain:
            say("No pattern nearly matched.")
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
