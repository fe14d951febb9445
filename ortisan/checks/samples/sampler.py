"""Makes inputs for one model."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from ortisan.checks.samples import budget
from ortisan.checks.samples.advice import how_to_give_inputs
from ortisan.checks.samples.case import Case, Rejection
from ortisan.checks.samples.clues import node_in, read_clue
from ortisan.checks.samples.dry_run import DryRun, Forecast
from ortisan.checks.samples.growth import Growth
from ortisan.checks.samples.ranks import guess_ranks
from ortisan.checks.samples.roles import find_roles
from ortisan.checks.samples.search import Aim, Search, Shape
from ortisan.checks.samples.shapes import extent, extents, free_symbols, shared_symbols, symbols_of
from ortisan.checks.samples.steer import Look, Sizes
from ortisan.checks.samples.values import Values, element_type
from ortisan.checks.samples.wanted import CASES, TIMED_SIDES, Wanted
from ortisan.converter.passes import cleanup
from ortisan.converter.read.labels import free_dims
from ortisan.converter.read.load import load_model
from ortisan.converter.read.symbols import Bounds, ascending, fix_dims, name_symbols
from ortisan.errors import UnsupportedError

_CONSTRAINING = frozenset(
    {
        "AveragePool",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DFT",
        "GRU",
        "LSTM",
        "MaxPool",
        "QLinearConv",
        "RNN",
        "STFT",
    }
)
"""Ops that make a dry run worth its time: they need certain sizes, or much work for few weights."""
_CONSTRAINING_FLOATS = frozenset({"Pad", "Resize", "ScatterElements", "ScatterND", "Split", "Upsample"})
"""The same, where no input is tokens."""
_LOOKED_INTO = frozenset({"unknown", "small", "multiple"})
"""Kinds of refusals after which dry runs are worth their time."""
_MOST_LISTED = 8
_MOST_BESIDE = 3
_MOST_UNEQUAL = 3
_FEWEST_UNEQUAL = 2
"""A size of 1 may be broadcast, so smaller sizes don't tell whether two dims have to be equal."""
_EXAMPLE_SIDE = 224
_MOST_INPUT_BYTES = 64 << 20
"""Of inputs whose sizes are ours to choose."""


class Sampler:
    """Makes inputs for one model. `dims` fixes or bounds symbolic dims, as in `compile`.

    `cases` yields for each case an iterator of attempts, each made when it is asked for. Who asks for another attempt
    has seen the last one refused, and may say why with `rejected`, which finds sizes that fit sooner.
    """

    def __init__(self, model: object, dims: Bounds | None = None) -> None:
        loaded = load_model(model)  # type: ignore[arg-type]
        cleanup.inline_functions(loaded)
        guess_ranks(loaded.graph)
        self.originals = name_symbols(loaded)
        bounds = free_dims(loaded, dims or {}, self.originals)
        fix_dims(loaded, bounds, self.originals)
        self._model = loaded
        self.inputs = [value for value in loaded.graph.inputs if not value.is_initializer()]
        clean = {original: name for name, original in self.originals.items()}
        self._bounds = {clean.get(key, key): bound for key, bound in bounds.items() if isinstance(bound, tuple)}
        self.symbols = symbols_of(self.inputs)
        self._roles = find_roles(loaded.graph, self.inputs)
        order = self._ascending = ascending(loaded)
        self._growth = Growth.of(loaded.graph, self.inputs, list(self._roles.masks), self._roles.leading)
        self._wanted = Wanted(self.symbols, self._roles, self._growth, order, self._clamp)
        self._values = Values(self.inputs, self._roles)
        shapes = [Shape(value.name or "", tuple(map(_symbol, value.shape or ()))) for value in self.inputs]
        self._search = Search(self.symbols, self._roles.leading, self._clamp, shapes)
        self._memory = budget.memory_limit()
        self._most_input = min(self._memory, _MOST_INPUT_BYTES)
        self._sizes_of: dict[str, Sizes] = {}
        self.rejections: list[Rejection] = []
        """The attempts that the model refused, in the order in which they were tried."""

    @property
    def has_mask(self) -> bool:
        return bool(self._roles.masks)

    def cases(self) -> Iterator[Iterator[Case]]:
        """Yields, for each case, the inputs to try in order; the first that the model accepts represents the case."""
        self._check_smallest()
        seen: list[tuple[Sizes, bool]] = []
        left = budget.CASES_SECONDS
        numbers = list(range(CASES if self.symbols else 1)) + ([CASES] if self.has_mask else [])
        for number in numbers:
            padded = number == CASES or (self.has_mask and number % 2 == 1)
            sizes = self._case(2 if number == CASES else number) if self.symbols else {}
            wanted = self._affordable(sizes, left)
            if (wanted, padded) not in seen:
                seen.append((wanted, padded))
                yield self._attempts(Aim("case", number, padded), wanted, left)
                ran = self._search.accepted()
                left = max(left - self._estimate(ran[-1] if ran else wanted), budget.CASES_SECONDS / 4)
        yield from (iter([case]) for case in self._unequal())

    def _unequal(self) -> Iterator[Case]:
        """Inputs in which a dim of one name has two sizes: where the model does not mind, the name is a mere label."""
        ran = max(self._search.accepted(), key=lambda sizes: sum(sizes.values()), default={})
        names = shared_symbols(self.inputs) - self._roles.leading - self._growth.past - {*self._ascending}
        for name in sorted(name for name in names if ran.get(name, 0) > _FEWEST_UNEQUAL)[:_MOST_UNEQUAL]:
            fewer = {**ran, name: ran[name] - 1}
            plain, other = (self.case(sizes, padded=False, seed=0).feeds for sizes in (ran, fewer))
            last = self._last_reader(name)
            label = f"{self._label(ran)}, but {self.originals.get(name, name)}={fewer[name]} in '{last}'"
            yield Case(label, {**plain, last: other[last]})

    def _last_reader(self, symbol: str) -> str:
        having = [value.name or "" for value in self.inputs if symbol in symbols_of([value])]
        return having[-1]

    def _label(self, sizes: Mapping[str, int]) -> str:
        named = (f"{self.originals.get(name, name)}={size}" for name, size in sizes.items())
        return ", ".join(named) or "as declared"

    def timed(self) -> Iterator[Case]:
        """Yields inputs of a size worth timing, then others. A decoder with a cache gets a single step."""
        self._check_smallest()
        wanted = self._timed_sides() if self._roles.sides else self._wanted.timed()
        return self._attempts(Aim("timed"), self._affordable(wanted, budget.CASES_SECONDS), budget.CASES_SECONDS)

    def timed_beside(self) -> Iterator[Iterator[Case]]:
        """Yields attempts at sizes around the one that was timed, once that ran: a batch, and a smaller item."""
        ran = self._search.accepted_for(Aim("timed"))
        around = (self._wanted.timed_batch(ran), self._wanted.timed_short(ran)) if ran is not None else ()
        for number, wanted in enumerate(around, start=1):
            if wanted != ran and self._is_affordable(wanted, budget.TIMED_SECONDS):
                attempts = self._attempts(Aim("timed", number), wanted, budget.TIMED_SECONDS)
                yield itertools.islice(attempts, _MOST_BESIDE)

    def case(self, sizes: Mapping[str, int], *, padded: bool, seed: int) -> Case:
        """The inputs at given sizes."""
        values = self._values
        if not all(values.indices(value).is_known for value in self.inputs):
            values = Values(self._forecast(sizes).inputs, self._roles)
        case = Case(self._label(sizes) + (", padded" if padded else ""), values.draw(sizes, padded, seed))
        self._sizes_of[case.label] = dict(sizes)
        return case

    def rejected(self, case: Case, message: str) -> None:
        """Says why the model refused an attempt, in the words of ONNX Runtime."""
        if self.rejections and self.rejections[-1] == Rejection(case.label, ""):
            self.rejections.pop()
        self.rejections.append(Rejection(case.label, message))
        if case.label in self._sizes_of:
            sizes, clue = self._sizes_of[case.label], read_clue(message)
            if clue.kind in _LOOKED_INTO and self.symbols:
                self._is_constrained = True
                clue = self._forecast(self._growth.applied(sizes)).clue or clue
            self._search.refused(sizes, clue, self._positions.get(node_in(message), 0))

    def advice(self, message: str = "") -> str:
        """What to tell a person when all attempts were refused, the last one with this message."""
        tried = [item.label for item in self.rejections]
        return how_to_give_inputs(self.inputs, tried, message, self.originals, self._wanted.timed(_EXAMPLE_SIDE))

    def narrow(self) -> str | None:
        """A sentence about dims that ran at one size only although others were tried, as of a model that was exported
        with a fixed length; None if there are none.
        """
        ran = self._search.accepted()
        parts = []
        for name in self.symbols:
            sizes = {found[name] for found in ran}
            others = sorted({found[name] for found in self._search.unfit} - sizes)
            if len(sizes) == 1 and others:
                listed = ", ".join(map(str, others[:_MOST_LISTED]))
                parts.append(f"{self.originals.get(name, name)}={sizes.pop()} ({listed} did not fit)")
        return f"ONNX Runtime ran the model only at {' and '.join(parts)}" if parts else None

    def _timed_sides(self) -> Sizes:
        """The largest image that can be timed; a side that only certain sizes fit keeps the one that ran."""
        ran = next(iter(self._search.accepted()), None)
        for side in TIMED_SIDES:
            wanted = self._wanted.timed(side)
            found = self._look(wanted, budget.TIMED_SECONDS)
            if found.affordable and found.clue is None:
                return wanted
            for name in self._roles.sides if ran is not None and found.clue is not None else ():
                one = {**wanted, **{other: ran[other] for other in self._roles.sides if other != name}}  # type: ignore[index]
                found = self._look(one, budget.TIMED_SECONDS)
                if found.affordable and found.clue is None:
                    return one
        return self._wanted.timed(TIMED_SIDES[-1])

    @functools.cached_property
    def _positions(self) -> dict[str, int]:
        return {node.name or "": index for index, node in enumerate(self._model.graph.all_nodes())}

    @functools.cached_property
    def _dry_run(self) -> DryRun:
        return DryRun(self._model)

    @functools.cached_property
    def _weights(self) -> int:
        tensors = (value.const_value for graph in self._model.graphs() for value in graph.initializers.values())
        return sum(tensor.size for tensor in tensors if tensor is not None and len(tensor.shape) > 1)

    @functools.cached_property
    def _is_constrained(self) -> bool:
        """Whether dry runs pay: there are ops that need certain sizes, and not most of the nodes in branches."""
        ops = [node.op_type for node in self._model.graph.all_nodes()]
        inside = len(ops) - len(self._model.graph)
        tokens = any(self._values.indices(value).tables for value in self.inputs)
        known = _CONSTRAINING if tokens else _CONSTRAINING | _CONSTRAINING_FLOATS
        return 2 * inside <= len(ops) and not known.isdisjoint(ops)

    def _forecast(self, sizes: Mapping[str, int]) -> Forecast:
        return self._dry_run.at({value.name or "": extents(value, sizes) for value in self.inputs})

    def _clamp(self, name: str, size: int) -> int:
        low, high = self._bounds.get(name, (0, size))
        return min(max(size, low), high)

    def _case(self, number: int) -> Sizes:
        wanted = self._growth.applied(self._wanted.case(number))
        if self._wanted.has_only_a_batch:
            longer = self._wanted.case(number, long_batch=True)
            return longer if self._is_affordable(longer, budget.CHEAP_SECONDS) else wanted
        return wanted

    def _attempts(self, aim: Aim, wanted: Sizes, seconds: float) -> Iterator[Case]:
        grown = self._growth.applied(wanted)
        for sizes in self._search.sizes(aim, grown, lambda sizes: self._look(sizes, seconds)):
            made = self.case(self._growth.applied(sizes), padded=aim.padded, seed=aim.number)
            yield made
            if not self.rejections or self.rejections[-1].label != made.label:
                self.rejected(made, "")

    def _look(self, sizes: Sizes, seconds: float) -> Look:
        applied = self._growth.applied(sizes)
        if self._input_bytes(applied) > self._most_input:
            return Look(affordable=self._is_smallest(sizes))
        if not self._is_constrained:
            return Look()
        found = self._forecast(applied)
        affordable = found.memory <= self._memory and found.seconds <= seconds
        return Look(found.clue, found.depth, affordable or self._is_smallest(sizes))

    def _is_smallest(self, sizes: Sizes) -> bool:
        return all(size <= self._clamp(name, 1) for name, size in sizes.items())

    def _affordable(self, wanted: Sizes, seconds: float) -> Sizes:
        """The sizes, or smaller ones that take no more than this: first one item instead of a batch, then halves."""
        sizes = wanted
        if not self._is_affordable(sizes, seconds):
            sizes = {**sizes, **{name: self._clamp(name, 1) for name in sizes if name in self._roles.leading}}
        while not self._is_affordable(sizes, seconds) and not self._is_smallest(sizes):
            sizes = {name: self._clamp(name, max(1, size // 2)) for name, size in sizes.items()}
        return sizes

    def _is_affordable(self, sizes: Sizes, seconds: float) -> bool:
        applied = self._growth.applied(sizes)
        taken = self._input_bytes(applied)
        if taken > self._most_input:
            return False
        if not self._is_constrained and taken < self._most_input // 4 and self._bound(applied) <= seconds:
            return True
        found = self._forecast(applied)
        return found.seconds <= seconds and found.memory <= self._memory

    def _estimate(self, sizes: Sizes) -> float:
        """The seconds of a run; a rough bound for models that need no dry runs."""
        applied = self._growth.applied(sizes)
        return self._forecast(applied).seconds if self._is_constrained else self._bound(applied)

    def _bound(self, sizes: Mapping[str, int]) -> float:
        """The seconds it takes to multiply all weights with each row or token of the inputs."""
        rows = max((self._rows(value, sizes) for value in self.inputs), default=1)
        return budget.seconds(2.0 * self._weights * rows, 0, 0)

    def _rows(self, value: ir.Value, sizes: Mapping[str, int]) -> int:
        tokens = bool(self._values.indices(value).tables)
        dims = value.shape or ()
        return math.prod(extent(dim, sizes) for dim in dims if tokens or not isinstance(dim, int))

    def _input_bytes(self, sizes: Mapping[str, int]) -> int:
        return sum(math.prod(extents(value, sizes)) * _item_bytes(value) for value in self.inputs)

    def _check_smallest(self) -> None:
        """Raises `UnsupportedError` when no array can be made of an input, or none that fits into memory."""
        for value in self.inputs:
            element_type(value)
        smallest = self._growth.applied({name: self._clamp(name, 1) for name in self.symbols})
        largest = max(self.inputs, key=lambda value: math.prod(extents(value, smallest)), default=None)
        if largest is not None and self._input_bytes(smallest) > self._memory:
            shape = "x".join(map(str, extents(largest, smallest)))
            raise UnsupportedError(
                f"no sample can be generated: input '{largest.name}' has the shape {shape} at least, which takes more "
                f"than the {self._memory >> 20} MB that a sample may take here; build without comparing (--no-verify "
                "--keep all, or verify=False, keep='all')"
            )


def _item_bytes(value: ir.Value) -> int:
    kind = element_type(value)
    return 8 if kind == ir.DataType.STRING else math.ceil(kind.itemsize)


def _symbol(dim: int | ir.SymbolicDim) -> str:
    names = free_symbols(dim)
    return next(iter(names)) if len(names) == 1 and isinstance(dim, ir.SymbolicDim) and dim.value in names else ""
