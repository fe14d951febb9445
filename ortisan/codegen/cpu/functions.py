"""The C++ functions of a library's kernels: equal kernels of all its graphs are one function, and files share them out.

What is in a file depends on the graphs alone, so sources are the same wherever they are rendered. Files are of about
the same work to compile, one family of kernels beside the other: what a family's headers define is compiled in each
file that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortisan.codegen.cpu.kernel import KernelSpec, Param
from ortisan.codegen.cpu.kernels import kernel_of, scalar_call
from ortisan.codegen.cpu.plan import GraphPlan
from ortisan.codegen.render import render
from ortisan.registry.scalars import Scalar

_WORK_PER_FILE = 32
_WORK = {"products/gemm": 3, "products/bmm": 3}
"""About how much longer a kernel compiles than a loop."""


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel, once for all calls that render to the same text."""

    name: str
    kernel: KernelSpec

    @property
    def params(self) -> tuple[Param, ...]:
        params: tuple[Param, ...] = self.kernel.context.params
        return params

    @property
    def work(self) -> int:
        return _WORK.get(self.kernel.template.name, 1)


@dataclass(frozen=True)
class Instance:
    """Functions of a header for one element type, compiled once for all kernels that call them."""

    template: str
    type: str

    @property
    def file(self) -> str:
        return f"instance_{self.template.removesuffix('/instance').replace('/', '_')}_{self.type}.cpp"

    def declare(self) -> str:
        return self._render("extern template")

    def define(self, headers: Sequence[str]) -> str:
        return render("cpu/base/instance.cpp.j2", InstanceFile(tuple(headers), self._render("template")))

    def _render(self, keyword: str) -> str:
        return render(f"cpu/{self.template}.j2", self, keyword=keyword)


@dataclass(frozen=True)
class InstanceFile:
    headers: tuple[str, ...]
    instance: str


@dataclass(frozen=True)
class KernelFile:
    headers: tuple[str, ...]
    instances: tuple[str, ...]
    snippets: tuple[Scalar, ...]
    kernels: tuple[str, ...]


class Functions:
    """The distinct kernels of some plans, in the order they are met."""

    def __init__(self, plans: Sequence[GraphPlan]) -> None:
        self._plans = plans
        self._found: dict[object, Function] = {}
        for plan in plans:
            for kernel in plan.kernels:
                name = f"{_identifier(kernel.name)}_{len(self._found)}"
                self._found.setdefault(_key(kernel), Function(name, kernel))

    def of(self, kernel: KernelSpec) -> Function:
        return self._found[_key(kernel)]

    def render(self) -> dict[str, str]:
        """File name -> content: the kernels, and the functions that they call and that are compiled apart."""
        snippets = _snippets(self._plans)
        files = {f"kernels_{i}.cpp": _render_file(part, snippets) for i, part in enumerate(self._files())}
        for function in self._found.values():
            if (instance := _instance(function)) is not None:
                files[instance.file] = instance.define(function.kernel.template.headers)
        return files

    def _files(self) -> Iterator[list[Function]]:
        """The functions in as few groups as may be, of about the same work, sorted by their templates."""
        order = sorted(self._found.values(), key=lambda function: function.kernel.template.name)
        total = sum(function.work for function in order)
        share = total / max(1, math.ceil(total / _WORK_PER_FILE))
        part: list[Function] = []
        done = 0
        for function in order:
            part.append(function)
            done += function.work
            if done % share < function.work:
                yield part
                part = []
        if part:
            yield part


def _key(kernel: KernelSpec) -> object:
    return kernel.template, kernel.context


def _identifier(name: str) -> str:
    return name.replace(".", "_")[:60]


def _instance(function: Function) -> Instance | None:
    template = function.kernel.template.instance
    return Instance(template, function.kernel.context.type) if template else None


def _render_file(functions: Sequence[Function], snippets: tuple[Scalar, ...]) -> str:
    used = {header for function in functions for header in function.kernel.template.headers}
    instances = {_instance(function): None for function in functions}
    source = KernelFile(
        tuple(sorted({"graph.h", "parallel.h", "pieces.h", "types.h", *used})),
        tuple(instance.declare() for instance in instances if instance is not None),
        snippets,
        tuple(render(each.kernel.template.path, each.kernel.context, name=each.name) for each in functions),
    )
    return render("cpu/base/kernels.cpp.j2", source)


def _snippets(plans: Sequence[GraphPlan]) -> tuple[Scalar, ...]:
    """The scalar functions that callers brought along, each once."""
    nodes = [node for plan in plans for node in plan.graph.nodes if kernel_of(node).elementwise]
    rows = {row.name: row for node in nodes if (row := scalar_call(node).snippet) is not None}
    return tuple(rows[name] for name in sorted(rows))
