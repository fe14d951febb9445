"""The options of a compilation and a build: the one list that Python, the command line, PyTorch and the manifest share.

A field's metadata says how the command line spells it; `Keywords` spells the fields for type checkers. A field with
`of="build"` says what becomes of a compilation, and `compile` does not take it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from ortisan.errors import OptionError

if TYPE_CHECKING:  # the command line shows the options without the compiler behind them
    from ortisan.codegen.backend import Backend, Tune
    from ortisan.converter.passes.kv_cache import Cache
    from ortisan.converter.read.selection import Between, Selectors
    from ortisan.converter.read.symbols import Bound
    from ortisan.runtime.settings import Weights

Dims: TypeAlias = "Mapping[str, int | tuple[int, int] | Literal['free']]"
Precision: TypeAlias = Literal["keep", "bf16", "fp16", "weights-bf16", "weights-int8"]
Keep: TypeAlias = Literal["faster", "all"]
Verify: TypeAlias = "bool | Literal['emulate']"
Form: TypeAlias = Literal["text", "choice", "flag", "list", "dims", "between"]

FUNCTION = "<function>"
"""What stands for a selector that is a function, which can't be written down."""


def _shown(
    form: Form, help: str, metavar: str | None = None, *, flag: str = "", of: str = "compile", more: str = ""
) -> dict[str, Any]:
    """How the command line spells an option, and which step it belongs to.

    A flag with a metavar can also be one of these texts; `more` says what they are for.
    """
    return {"form": form, "help": help, "metavar": metavar, "flag": flag, "of": of, "more": more}


_text, _flag = functools.partial(_shown, "text"), functools.partial(_shown, "flag")


def _choice(choices: str, help: str, *, of: str = "compile") -> dict[str, Any]:
    """One of "a|b|c"."""
    return _shown("choice", help, choices, of=of)


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """What to compile, for which target, and how. Checked when it is made; `to_json` and `from_json` are inverse."""

    target: str = field(
        default="cpu",
        metadata=_text("cpu, cpu:LEVEL for another machine (x86-64-v3, aarch64, ...), or cuda:80 for GPUs.", "TARGET"),
    )
    dims: Dims | None = field(
        default=None,
        metadata=_shown(
            "dims",
            "Fix or bound a symbolic dim: batch=1, seq=1:512; free: inputs with a dim of this name may differ in it.",
            "NAME=N|LOW:HIGH|free",
            flag="--dim",
        ),
    )
    include: Selectors = field(
        default=None,
        metadata=_shown("list", "Compile these nodes or op types only; layer_ann:PREFIX too.", "NODE|OP"),
    )
    exclude: Selectors = field(default=None, metadata=_shown("list", "Leave these nodes or op types alone.", "NODE|OP"))
    between: Between = field(
        default=None, metadata=_shown("between", "Compile what lies between these values only.", "IN,..:OUT,..")
    )
    whole_graph: bool = field(default=False, metadata=_flag("Compile everything, or say what can't be."))
    cache: Cache = field(
        default="as-is",
        metadata=_choice("as-is|in-place", "in-place: a decoder's past and present are one buffer."),
    )
    freeze_inputs: bool = field(
        default=False,
        metadata=_flag("Inputs with a default value become constants, which nobody can override."),
    )
    name: str | None = field(
        default=None, metadata=_text("Name of the op and of the files; the model's if not given.", "NAME")
    )
    tune: Tune = field(
        default="auto",
        metadata=_choice("auto|off|full", "Autotune matrix-product blocking: briefly, not, at length."),
    )
    winograd: bool = field(
        default=True, metadata=_flag("Convolutions add up all products, as they are written, and none by Winograd.")
    )
    precision: Precision = field(
        default="keep",
        metadata=_choice(
            "keep|bf16|fp16|weights-bf16|weights-int8",
            "Of float32 models. CPUs: bf16 multiplies bfloat16, weights-* store weights so. GPUs: fp16.",
        ),
    )
    tf32: bool = field(default=False, metadata=_flag("GPUs: products may round to TF32."))
    fast_math: bool = field(default=False, metadata=_flag("GPUs: functions may be approximate."))
    patterns: bool = field(default=True, metadata=_flag("Fuse no patterns: compile ops as they were written."))
    keep: Keep = field(
        default="faster",
        metadata=_choice("faster|all", "faster: give back to ONNX Runtime what it runs faster.", of="build"),
    )
    weights: Weights = field(
        default="auto",
        metadata=_choice(
            "auto|mapped|huge",
            "huge: copy weights to 2 MB pages, once per process; auto: where that pays.",
            of="build",
        ),
    )
    verify: Verify = field(
        default=True,
        metadata=_flag(
            "Don't compare with ONNX Runtime.",
            "emulate",
            of="build",
            more="emulate: compare a GPU target here, its kernels run on the CPU from their PTX.",
        ),
    )
    strict: bool = field(
        default=False,
        metadata=_flag("A part that fails verification is an error instead of being left to ONNX Runtime.", of="build"),
    )
    quick: bool = field(
        default=False, metadata=_flag("No timing and one sample; keep everything that verifies.", of="build")
    )
    sources_only: bool = field(default=False, metadata=_flag("Write the sources, build nothing.", of="build"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", plain_dims(self.dims))
        for each in fields(self):
            value, form = getattr(self, each.name), each.metadata["form"]
            if form == "flag" and not isinstance(value, bool) and value not in flag_texts(each):
                *others, last = "True", "False", *map(repr, flag_texts(each))
                raise OptionError(f"{each.name} must be {', '.join(others)} or {last}, not {value!r}")
            if form == "choice" and value not in each.metadata["metavar"].split("|"):
                *others, last = each.metadata["metavar"].split("|")
                listed = ", ".join(map(repr, others))
                raise OptionError(f"{each.name} must be {listed} or {last!r}, not {value!r}")
        if self.verify == "emulate" and self.sources_only:
            raise OptionError("verify='emulate' runs what is built, so it can't be combined with sources_only=True")
        if self.name is not None and not isinstance(self.name, str):
            raise OptionError(f"name must be text, not {self.name!r}")
        if self.name is not None and not re.search("[A-Za-z0-9]", self.name):
            raise OptionError(f"name must have a letter from a to z or a digit for files and ops, not {self.name!r}")
        if self.whole_graph and any(option is not None for option in (self.include, self.exclude, self.between)):
            raise OptionError(
                "whole_graph=True compiles everything, so it can't be combined with include, exclude or between"
            )
        if self.precision not in self.backend.precisions:
            taken = ", ".join(self.backend.precisions)
            raise OptionError(f"precision='{self.precision}' is not for {self.backend}, which takes {taken}")
        self.backend.check(self)

    @functools.cached_property
    def backend(self) -> Backend:
        from ortisan.codegen.backend import parse_target

        return parse_target(self.target)

    @property
    def bounds(self) -> dict[str, Bound]:
        """`dims`, never None."""
        return dict(self.dims or {})

    def to_json(self) -> dict[str, Any]:
        """Every field as JSON has it. The target is written out (`cpu` becomes `cpu:x86-64-v3`)."""
        written = {each.name: getattr(self, each.name) for each in fields(self)}
        return written | {
            "target": str(self.backend),
            "dims": {name: list(bound) if isinstance(bound, tuple) else bound for name, bound in self.bounds.items()},
            "include": _selectors(self.include),
            "exclude": _selectors(self.exclude),
            "between": self.between and [[names] if isinstance(names, str) else list(names) for names in self.between],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Options:
        for name in ("include", "exclude"):
            if FUNCTION in (record[name] or ()):
                raise OptionError(
                    f"{name} was a function, which was not written down, so the options can't be repeated"
                )
        between = record["between"] and (record["between"][0], record["between"][1])
        return make_options({**record, "between": between})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # selectors may be lists


class Keywords(TypedDict, total=False):
    """The fields of `Options`, as keywords of `compile` and `build`."""

    target: str
    dims: Dims | None
    include: Selectors
    exclude: Selectors
    between: Between
    whole_graph: bool
    cache: Cache
    freeze_inputs: bool
    name: str | None
    tune: Tune
    winograd: bool
    precision: Precision
    tf32: bool
    fast_math: bool
    patterns: bool
    keep: Keep
    weights: Weights
    verify: Verify
    strict: bool
    quick: bool
    sources_only: bool


def flag_texts(each: Field[Any]) -> tuple[str, ...]:
    """What a flag can be beside True and False."""
    return tuple(each.metadata["metavar"].split("|")) if each.metadata["metavar"] else ()


def option_names(*, of: str | None = None) -> tuple[str, ...]:
    """The names of all options, or of those that `compile` or only `build` takes."""
    return tuple(each.name for each in fields(Options) if of in (None, each.metadata["of"]))


def make_options(given: Mapping[str, Any], *, of: str | None = None) -> Options:
    """Options of keywords; one that is unknown, or not `of` this step, is an `OptionError`."""
    known = option_names(of=of)
    for name in given:
        if name not in option_names():
            raise OptionError(f"there is no option '{name}'; the options are {', '.join(known)}")
        if name not in known:
            raise OptionError(f"'{name}' is an option of build, not of {of}")
    return Options(**given)


_F = TypeVar("_F", bound="Callable[..., Any]")


def takes_options(function: _F) -> _F:
    """Spells out `**options: Unpack[Keywords]` in the function's signature, for `help()` and editors."""
    own = inspect.signature(function)
    listed = [parameter for parameter in own.parameters.values() if parameter.kind != parameter.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(Options)
    ]
    last = [parameter for parameter in listed if parameter.kind == parameter.KEYWORD_ONLY]
    first = [parameter for parameter in listed if parameter not in last]
    function.__signature__ = own.replace(parameters=[*first, *keywords, *last])  # type: ignore[attr-defined]
    return function


def plain_dims(dims: Dims | None) -> dict[str, Bound]:
    """`dims` with numpy's whole numbers as ints and lists as tuples; what they say is checked against the model."""
    if not isinstance(dims or {}, Mapping):
        raise OptionError(
            f"dims must map names to numbers or ranges, as in {{'batch': 1, 'seq': (1, 512)}}, not {dims!r}"
        )
    return {name: _plain(bound) for name, bound in (dims or {}).items()}


def _plain(bound: Any) -> Any:
    if isinstance(bound, (list, tuple)):
        return tuple(_plain(end) for end in bound)
    return int(bound) if isinstance(bound, Integral) and not isinstance(bound, bool) else bound


def _selectors(selectors: Any) -> list[str] | None:
    if selectors is None:
        return None
    listed = [selectors] if isinstance(selectors, str) or callable(selectors) else list(selectors)
    return [selector if isinstance(selector, str) else FUNCTION for selector in listed]
