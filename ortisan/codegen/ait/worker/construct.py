"""Program -> AITemplate's tensors and ops, call by call. Every inferred shape is compared with ours."""

from __future__ import annotations

from typing import Any

import sympy
from aitemplate.compiler import ops
from aitemplate.compiler.base import IntImm, IntVar, Tensor
from aitemplate.compiler.ops.common.epilogue import FuncEnum

from ortisan.codegen.ait.worker.own import OwnKernel

_SHORT = 300


class Construction:
    """`failures` are the calls that AITemplate refused or shaped otherwise than we do: {origin, op, reason}.

    Results of such a call are stood in for, so that the calls after it can be tried too.
    """

    def __init__(self, program: dict[str, Any]) -> None:
        self.program = program
        self.failures: list[dict[str, Any]] = []
        self.compared = 0
        self.tensors: dict[str, Any] = {}
        self.symbols: dict[str, Any] = {}
        self._dims: dict[str, Any] = {}
        self._parsed: dict[str, Any] = {}
        for symbol in program["symbols"]:
            low, high, name = symbol["low"], symbol["high"], symbol["name"]
            self._dims[name] = IntImm(low) if low == high else IntVar([low, high], name=name)
            self.symbols[name] = (low, high)
        self._space = {name: sympy.Symbol(name) for name in self.symbols}
        for derived in program["derived"]:
            self._dims[derived["expression"]] = self._derived(derived)

    def _derived(self, derived: dict[str, Any]) -> Any:
        low, high = derived["low"], derived["high"]
        if low == high:
            return IntImm(low)
        expression = self.parse(derived["expression"])
        fixed = {sympy.Symbol(name): ends[0] for name, ends in self.symbols.items() if ends[0] == ends[1]}
        return IntVar([low, high], name=derived["name"], symbolic_value=expression.xreplace(fixed))

    def parse(self, text: str) -> Any:
        if text not in self._parsed:
            self._parsed[text] = sympy.sympify(text, locals=self._space)
        return self._parsed[text]

    def run(self) -> None:
        for declared in self.program["inputs"]:
            self.tensors[declared["name"]] = self._declare(declared, is_input=True)
        for declared in self.program["constants"]:
            self.tensors[declared["name"]] = self._declare(declared, is_input=False)
        for call in self.program["calls"]:
            self._call(call)

    def outputs(self) -> list[Any]:
        """The output tensors, marked and named."""
        for name, source in self.program["outputs"]:
            self.tensors[source]._attrs["is_output"] = True
            self.tensors[source]._attrs["name"] = name
        return [self.tensors[source] for _, source in self.program["outputs"]]

    def _declare(self, declared: dict[str, Any], *, is_input: bool) -> Any:
        dims = [self._dim(dim) for dim in declared["shape"]]
        return Tensor(dims, name=declared["name"], dtype=declared["dtype"], is_input=is_input)

    def _dim(self, dim: int | str) -> Any:
        if isinstance(dim, int):
            return dim
        if dim not in self._dims:
            names = self.parse(dim).free_symbols
            ends = [int(self.parse(dim).subs({s: self.symbols[s.name][side] for s in names})) for side in (0, 1)]
            self._dims[dim] = IntVar(sorted(max(0, end) for end in ends), symbolic_value=self.parse(dim))
        return self._dims[dim]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, what),) = value.items()
        if kind == "tensor":
            return self.tensors[what]
        if kind == "enum":
            return FuncEnum[what]
        dims = [self._dim(dim) for dim in what]
        return [IntImm(dim) if isinstance(dim, int) and dim >= 0 else dim for dim in dims]

    def _setting(self, value: Any) -> Any:
        """Pairs are tuples where an op is made, and lists where it is called."""
        return tuple(value) if isinstance(value, list) else self._argument(value)

    def _call(self, call: dict[str, Any]) -> None:
        try:
            results = self._made(call)
            reason = self._compare(call, results)
        except Exception as error:
            results, reason = [], f"AITemplate's {call['op']} refuses: {error or type(error).__name__}"[:_SHORT]
        if reason:
            self.failures.append({"origin": call["origin"], "op": call["op"], "reason": reason})
            results = [self._declare(declared, is_input=True) for declared in call["results"]]
        for declared, result in zip(call["results"], results, strict=True):
            self.tensors[declared["name"]] = result
            for dim, made_dim in zip(declared["shape"], result.shape(), strict=True):
                if isinstance(dim, str):
                    self._dims.setdefault(dim, made_dim)

    def _made(self, call: dict[str, Any]) -> list[Any]:
        args = [self._argument(value) for value in call["args"]]
        if call["kernel"] is not None:
            types = [([self._dim(dim) for dim in result["shape"]], result["dtype"]) for result in call["results"]]
            return OwnKernel(call["op"], call["kernel"])(args, types)
        made = getattr(ops, call["op"])(**{key: self._setting(value) for key, value in call["make"].items()})
        results = made(*args)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def _compare(self, call: dict[str, Any], results: list[Any]) -> str | None:
        if len(results) != len(call["results"]):
            return f"AITemplate's {call['op']} gives {len(results)} tensors, expected {len(call['results'])}"
        for declared, result in zip(call["results"], results, strict=True):
            have = [dim.symbolic_value() for dim in result.shape()]
            same = len(have) == len(declared["shape"]) and all(map(self._is_same, have, declared["shape"]))
            if not same or result.dtype() != declared["dtype"]:
                want = f"{declared['dtype']}{declared['shape']}"
                return f"AITemplate's {call['op']} gives {result.dtype()}{have}, expected {want}"
            self.compared += 1
        return None

    def _is_same(self, have: Any, want: int | str) -> bool:
        """Equal at the ends of the symbols' ranges and in between; an unknown symbol is equal to nothing."""
        if isinstance(want, int):
            return bool(have == want)
        left, right = sympy.sympify(have), self.parse(want)
        if left == right:
            return True
        names = {symbol.name for symbol in left.free_symbols | right.free_symbols}
        if names - set(self.symbols):
            return False
        # AITemplate divides integers when it runs, where we write a floor.
        points = (self._point(names, share) for share in (0, 2, 3, 5, 7))
        return all(sympy.floor(left.subs(point)) == right.subs(point) for point in points)

    def _point(self, names: set[str], share: int) -> dict[Any, int]:
        """Numbers within the bounds, so many sevenths of the way up."""
        point = {}
        for index, name in enumerate(sorted(names)):
            low, high = self.symbols[name]
            point[sympy.Symbol(name)] = min(high, max(low, low + (high - low) * share // 7 - index % 3))
        return point
