"""The table of ONNX lowering entries, keyed by domain, op type and the version of the op's definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ortisan.registry.builder import Builder
from ortisan.registry.graph import Value
from ortisan.registry.refusal import Refused

NEWEST = 26
"""The newest opset that the entries were checked against; ops redefined later are refused until someone checks them."""

CONTRIB_DOMAIN = "com.microsoft"
ML_DOMAIN = "ai.onnx.ml"
_BLOCKED_DOMAIN = "com.microsoft.nchwc"
PRIVATE_DOMAIN = "ortisan"
"""The domain of fused ops: the newest ONNX definition of that op type, or an op with an entry of its own."""

Result = Value | Sequence[Value]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Site:
    """One ONNX node as an entry sees it. `version` is the opset in which the node's definition appeared."""

    op_type: str
    version: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    used: tuple[bool, ...]
    """For each output, whether anything reads it."""
    builder: Builder

    def need(self, index: int) -> Value:
        value = self.optional(index)
        if value is None:
            raise Refused(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def attribute(self, name: str, default: _T) -> _T:
        return self.attributes.get(name, default)  # type: ignore[no-any-return]

    def text(self, name: str, default: str) -> str:
        """An attribute that is a word."""
        found = self.attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)

    def refuse_outputs(self, *indices: int) -> None:
        for index in indices:
            if index < len(self.used) and self.used[index]:
                raise Refused(f"output {index} is used, but not supported")


@dataclass(frozen=True)
class Entry:
    domain: str
    op_type: str
    low: int
    high: int
    attributes: frozenset[str]
    lower: Callable[[Site], Result]


_ENTRIES: dict[tuple[str, str], list[Entry]] = {}


def lowers(
    *op_types: str, since: int = 1, until: int = NEWEST, attributes: Sequence[str] = (), domain: str = ""
) -> Callable[[Callable[[Site], Result]], Callable[[Site], Result]]:
    """Registers a function for ops defined in opsets since..until, with all the attributes it understands."""

    def register(function: Callable[[Site], Result]) -> Callable[[Site], Result]:
        for op_type in op_types:
            entry = Entry(domain, op_type, since, until, frozenset(attributes), function)
            _ENTRIES.setdefault((domain, op_type), []).append(entry)
        return function

    return register


def entries() -> list[Entry]:
    _load()
    return [entry for group in _ENTRIES.values() for entry in group]


def lower(domain: str, site: Site) -> tuple[Value, ...]:
    """Lowers one node, or raises `Refused` with the reason."""
    entry = _find("" if domain == "ai.onnx" else domain, site)
    unknown = sorted(set(site.attributes) - entry.attributes)
    if unknown:
        raise Refused(f"attribute '{unknown[0]}' is not understood for {site.op_type}")
    result = entry.lower(replace(site, version=max(site.version, entry.low)))
    return (result,) if isinstance(result, Value) else tuple(result)


def _find(domain: str, site: Site) -> Entry:
    _load()
    group = _ENTRIES.get((domain, site.op_type))
    standard = _ENTRIES.get(("", site.op_type))
    if not group and domain == PRIVATE_DOMAIN and standard:
        return max(standard, key=lambda entry: entry.low)
    if not group and domain == _BLOCKED_DOMAIN:
        raise Refused(
            f"{site.op_type} of '{domain}' has its channels in blocks for ONNX Runtime's own kernels; give the model "
            f"as it was before that optimization"
        )
    if not group:
        where = f" of domain '{domain}'" if domain else ""
        raise Refused(f"no lowering for op {site.op_type}{where}")
    for entry in group:
        if entry.low <= site.version <= entry.high:
            return entry
    raise Refused(f"{site.op_type} as defined in opset {site.version} is not supported")


def _load() -> None:
    """The entries register themselves when their modules are imported."""
    from ortisan.registry import lower as _  # noqa: F401
