"""Faults put into generated code on purpose: what a build makes of a kernel that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from ortisan.pipeline import draft
from ortisan.pipeline.compilation import Compilation

Fault = Callable[[str], str]


def at_the_end(statement: str) -> Fault:
    """A statement that runs after a graph's kernels."""

    def change(body: str) -> str:
        head, found, tail = body.rpartition("  return nullptr;\n}\n\nconst Execution")
        assert found, "the generated code has another form"
        return f"{head}  {statement}\n{found}{tail}"

    return change


OFF_BY_A_LITTLE = at_the_end("static_cast<float*>(out[0])[0] += 1e-3f * (1 + static_cast<float*>(out[0])[0]);")
SIGN = at_the_end("static_cast<float*>(out[0])[0] *= -1;")
NAN = at_the_end("static_cast<float*>(out[0])[0] = std::numeric_limits<float>::quiet_NaN();")
CRASH = at_the_end("*reinterpret_cast<volatile int*>(16) = 0;")
ABORT = at_the_end("__builtin_trap();")
ENDLESS = at_the_end("for (volatile int i = 0;; i = i + 1) {}")
REFUSAL = at_the_end('if (out) return "injected failure";')


def scaled(factor: float) -> Fault:
    """All elements of the first output, times a factor: what a wrong scale of a quantizer gives."""
    return at_the_end(
        f"""int64_t size = 1;
  for (int32_t d = 0; d < outputs[0].rank; ++d) {{
    const DimSpec& dim = outputs[0].dims[d];
    size *= dim.kind == DimSpec::fixed ? dim.value
            : dim.kind == DimSpec::symbol ? s[dim.value] : expression(int32_t(dim.value), Symbols{{s}}).value;
  }}
  for (int64_t i = 0; i < size; ++i) {{
    if (outputs[0].dtype == 10) static_cast<_Float16*>(out[0])[i] *= _Float16({factor}f);
    else static_cast<float*>(out[0])[i] *= {factor}f;
  }}"""
    )


def wrong_shape(body: str) -> str:
    """The first output has more columns than it should, so that nothing is written out of bounds."""
    head, found, tail = body.partition("const DimSpec output_0_dims[] = {")
    assert found, "the first output is a scalar"
    dims, end, rest = tail.partition(", };")
    first, brace, last = dims.rpartition("{DimSpec::")
    kind, _, number = last.rstrip("}").partition(", ")
    size = int(number) + 3 if kind == "fixed" else 512
    return f"{head}{found}{first}{brace}fixed, {size}}}{end}{rest}"


def swapped_inputs(body: str) -> str:
    """Where two inputs of a graph have one type, each is read for the other."""
    text = re.sub(r"\bin\[([01])\]", lambda found: f"in[{1 - int(found[1])}]", body)
    assert text != body
    return text


def wrong_weight(body: str) -> str:
    """The bias is taken a row further."""
    text = re.sub(r"(static_cast<const float\*>\(w\[1\]\))", r"(\1 + 1)", body, count=1)
    assert text != body
    return text


def inject(monkeypatch: pytest.MonkeyPatch, faults: Mapping[int, Fault]) -> None:
    """Libraries that are built from now on have these faults (index of the graph in the first compilation -> fault)."""
    real = draft.render_sources
    ops: dict[str, Fault] = {}

    def render(compiled: Compilation) -> dict[str, str | bytes]:
        if not ops:
            ops.update({compiled.ops[index]: fault for index, fault in faults.items()})
        sources = dict(real(compiled))
        for position, op in enumerate(compiled.ops):
            if op in ops:
                _change(sources, f"graph_{position}", ops[op])
        return sources

    monkeypatch.setattr(draft, "render_sources", render)


def _change(sources: dict[str, str | bytes], namespace: str, fault: Fault) -> None:
    for name, content in sources.items():
        if not isinstance(content, str) or f"namespace {namespace} {{" not in content:
            continue
        start = content.index(f"namespace {namespace} {{")
        end = content.index(f"}}  // namespace {namespace}")
        sources[name] = content[:start] + fault(content[start:end]) + content[end:]
        return
    raise AssertionError(f"no source has {namespace}")
