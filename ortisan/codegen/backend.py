"""What a target is to the rest of Ortisan: the protocols `Backend`, `Planner` and `Plan`, and the table of backends.

A target is written KIND or KIND:DETAIL (`cpu:x86-64-v3`, `cuda:80,90`). KIND names a row of `BACKENDS`, whose parser
gives a `Backend` bound to the detail. Nothing outside of a backend's folder asks which one it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

from ortisan.errors import OptionError, needs_compiler
from ortisan.registry.dtypes import Array, DType
from ortisan.registry.graph import Graph, Value

Say: TypeAlias = "Callable[[str], None]"
Sources: TypeAlias = "dict[str, str | bytes]"
"""A source folder: file name -> content."""
Tune: TypeAlias = Literal["auto", "off", "full"]
Reasons: TypeAlias = "Mapping[str, str]"
"""Name of an ONNX node -> why it can't be compiled."""


@dataclass(frozen=True)
class Built:
    """A finished build. The files belong to the build cache: copy them, don't move them."""

    library: Path
    binding: Path | None
    compiler: str
    seconds: float
    cached: bool


@dataclass(frozen=True)
class Twin:
    """A library and its twin, which runs on the CPU over a runtime that has to be loaded before, for all to see."""

    built: Built
    library: Path
    runtime: Path


@dataclass(frozen=True)
class Names:
    """What a library, its domain and its custom ops are called."""

    library: str
    domain: str
    ops: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A constant as the converted model stores it, in the layout that the kernels read. `load` makes it when asked."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[], Array] = field(repr=False)

    @property
    def nbytes(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count * self.dtype.size


class PlanOptions(Protocol):
    """The options of `compile` that concern a backend."""

    @property
    def tune(self) -> Tune: ...
    @property
    def precision(self) -> str: ...
    @property
    def fast_math(self) -> bool: ...
    @property
    def tf32(self) -> bool: ...
    @property
    def weights(self) -> str: ...
    @property
    def winograd(self) -> bool: ...
    @property
    def verify(self) -> bool | str: ...


class Plan(Protocol):
    """How one op graph is compiled."""

    @property
    def graph(self) -> Graph: ...

    @property
    def shared(self) -> Sequence[tuple[int, int]]:
        """Inputs and outputs, by index, that may be the same memory."""
        return ()

    def stored_weights(self) -> Sequence[StoredWeight]:
        """The custom op's inputs after those of the graph, in order."""
        ...

    def digest(self) -> str:
        """Text that differs when the generated code of two plans of equal graphs does."""
        ...

    def describe(self) -> dict[str, Any]:
        """The plan's part of an op's row in the manifest; `kernels` is how many there are."""
        ...

    def lines(self) -> Sequence[tuple[str, str, str]]:
        """What `inspect` prints of it: a word, a figure, a remark."""
        return ()


@dataclass(frozen=True)
class Request:
    """What a planner is opened for: the options, the model's names of its inputs' dims (symbol -> name), and whether
    the caller named the nodes, so that small graphs count as well."""

    options: PlanOptions
    say: Say
    named: Mapping[str, str] = field(default_factory=dict)
    asked: bool = False


class Planner(Protocol):
    """One compilation's conversation with a backend."""

    def objections(self, graphs: Sequence[Graph]) -> Sequence[Reasons]:
        """What can't be compiled of each graph. It is asked again about what remains, until there is nothing."""
        return [{} for _ in graphs]

    def arrange(self, graph: Graph) -> Graph:
        """The same graph as it is planned: what `inspect` shows, and what values are compared with."""
        return graph

    def plan(
        self,
        graphs: Sequence[Graph],
        *,
        given: Mapping[str, Any] | None = None,
        before_timing: Callable[[], None] | None = None,
    ) -> Sequence[Plan]:
        """A plan for each graph. `given` is the manifest's "tuning", whose choices are taken again. `before_timing`
        is called before anything is timed, and returns when the machine is free."""
        ...


class Tracer(Protocol):
    """Runs compiled graphs and gives every value inside them that has memory of its own."""

    def __call__(self, index: int, weights: Sequence[Array], inputs: Sequence[Array]) -> Mapping[Value, Array]: ...


class Backend(Protocol):
    """A target: everything that depends on it. `str()` of a backend parses to it again."""

    @property
    def uses_gpu(self) -> bool:
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for what when the target was parsed."""
        return ()

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers of a session that runs its custom ops, in order."""
        return ("CPUExecutionProvider",)

    @property
    def precisions(self) -> tuple[str, ...]:
        """The values of `precision` that it takes."""
        return ("keep",)

    def check(self, options: PlanOptions) -> None:
        """Raises `OptionError` for other options that it does not take."""

    def planner(self, request: Request) -> Planner: ...

    def render(self, plans: Sequence[Plan], names: Names) -> Sources:
        """The source folder of a library; equal plans and names give equal bytes."""
        ...

    def build(
        self,
        sources: Sources,
        *,
        name: str,
        bindings: bool = False,
        sanitize: str | None = None,
        on_progress: Say | None = None,
    ) -> Built: ...

    def obstacle(self) -> str | None:
        """Why what is built can't run on this machine, in a few words; None when it can."""
        return None

    def describe(self, plans: Sequence[Plan], options: PlanOptions, *, built: bool) -> dict[str, Any]:
        """The backend's part of the manifest. Required keys: `machine` (None: any), `settings` (session settings of
        its custom ops -> default) and `tuning`. `built` tells whether there is a library, or only its sources."""
        ...

    def emulated(self) -> str:
        """The architecture that a twin's kernels are executed for ("80"); raises when no twin can be built here."""
        refuse(self, "there is nothing to emulate")

    def twin(self, sources: Sources, *, name: str, on_progress: Say | None = None) -> Twin:
        """Builds the library, and out of the same objects one that runs on the CPU."""
        refuse(self, "there is nothing to emulate")

    def trace(self, plans: Sequence[Plan], names: Names) -> Tracer:
        """Rebuilds the graphs of these plans so that they can be looked into."""
        refuse(self, "values inside the custom ops can't be looked at")


def check_no_gpu_options(backend: Backend, options: PlanOptions) -> None:
    """Part of `check` of a backend without a GPU."""
    if options.verify == "emulate":
        raise OptionError(f"verify='emulate' executes the kernels of GPU targets, and {backend} has none")
    if options.fast_math or options.tf32:
        raise OptionError(f"fast_math and tf32 are for GPU targets; {backend} computes as it is")


def refuse(backend: Backend, what: str) -> NoReturn:
    raise OptionError(f"{what} for the target {backend}; use another target")


@dataclass(frozen=True)
class Kind:
    """A row of the table: where the parser of a target's detail is, and how such targets are written."""

    parser: str | Callable[[str], Backend]
    """A function, or "module:function", imported when the target is first named."""
    spelling: str = ""
    has_architectures: bool = False
    """Whether the detail is a list of architectures, which `--arch` gives too."""


BACKENDS: dict[str, Kind] = {
    "cpu": Kind("ortisan.codegen.cpu.backend:parse", "cpu, cpu:<instruction set>"),
    "cuda": Kind("ortisan.codegen.ait.backend:parse_cuda", "cuda:<architecture>", has_architectures=True),
    "rocm": Kind("ortisan.codegen.ait.backend:parse_rocm"),
    "reference": Kind("ortisan.codegen.reference.backend:parse", "reference"),
}


def parse_target(text: str) -> Backend:
    """The backend of a target's text."""
    if not isinstance(text, str):
        raise OptionError(f"target must be text as 'cpu' or 'cuda:80', not {text!r}")
    kind, _, detail = text.partition(":")
    row = BACKENDS.get(kind)
    if row is None:
        known = ", ".join(row.spelling for row in BACKENDS.values() if row.spelling)
        first, _, last = known.rpartition(", ")
        raise OptionError(f"there is no target '{text}'; the targets are {first} and {last}")
    return _parser(row)(detail)


def _parser(row: Kind) -> Callable[[str], Backend]:
    if not isinstance(row.parser, str):
        return row.parser
    module, _, function = row.parser.partition(":")
    try:
        parse: Callable[[str], Backend] = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise needs_compiler("the target", error) from error
    return parse
