"""Flattens arguments and results into lists of tensors: tuples, lists, dicts, dataclasses, and pytree's nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Leaf:
    """A place for the tensor or number at `index` of the flat list."""

    index: int
    kind: str = "tensor"


@dataclass(frozen=True)
class Constant:
    """A leaf that is not a tensor, and so part of the structure."""

    value: Any


@dataclass(frozen=True)
class Branch:
    """Children, and how they are put together again."""

    make: Any
    """tuple, list or dict, a dataclass with `names` as keywords, or a pytree spec."""
    children: tuple[Any, ...]
    names: tuple[Any, ...] | None = None


def flatten(value: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a structure in order, and the structure with their places."""
    register_caches()
    flat: list[torch.Tensor] = []
    return flat, _flatten(value, flat)


def _flatten(value: Any, flat: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        flat.append(value)
        return Leaf(len(flat) - 1)
    if isinstance(value, torch.SymInt):
        flat.append(value)  # type: ignore[arg-type]  # a size that is a result
        return Leaf(len(flat) - 1, "int")
    kind = type(value)
    if kind is tuple or kind is list:
        return Branch(kind, tuple([_flatten(child, flat) for child in value]))
    if kind is dict:
        return Branch(kind, tuple([_flatten(child, flat) for child in value.values()]), tuple(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return Constant(value)
    children, spec = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
    if not (len(children) == 1 and children[0] is value):
        return Branch(spec, tuple(_flatten(child, flat) for child in children))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in dataclasses.fields(value) if field.init)
        return Branch(type(value), tuple(_flatten(getattr(value, name), flat) for name in names), names)
    return Constant(value)


def unflatten(tree: Any, flat: Sequence[Any]) -> Any:
    if isinstance(tree, Leaf):
        return flat[tree.index] if tree.kind == "tensor" else int(flat[tree.index])
    if isinstance(tree, Constant):
        return tree.value
    children = [unflatten(child, flat) for child in tree.children]
    if tree.make is tuple or tree.make is list:
        return tree.make(children)
    if tree.make is dict:
        return dict(zip(tree.names, children, strict=True))
    if tree.names is not None:
        return tree.make(**dict(zip(tree.names, children, strict=True)))
    return pytree.tree_unflatten(children, tree.make)


def same_structure(a: Any, b: Any) -> bool:
    """Whether two structures are equal. Constants that can't be compared are unequal."""
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    if isinstance(a, Leaf):
        return bool(a.index == b.index and a.kind == b.kind)
    if isinstance(a, Constant):
        if a.value is b.value:
            return True
        try:
            return type(a.value) is type(b.value) and bool(a.value == b.value)
        except (TypeError, ValueError, RuntimeError):
            return False
    if a.names != b.names or a.make != b.make or len(a.children) != len(b.children):
        return False
    return all(same_structure(x, y) for x, y in zip(a.children, b.children, strict=True))


def leaves_with_names(args: Sequence[Any], kwargs: Mapping[str, Any], word: str = "arg") -> Iterator[tuple[str, Any]]:
    """Yields every leaf of the arguments with a name made from its place: "arg0", "past.key_cache.0"."""
    register_caches()
    for index, value in enumerate(args):
        yield from _named(value, f"{word}{index}" if word == "arg" or len(args) > 1 else word)
    for name, value in kwargs.items():
        yield from _named(value, name)


def _named(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and type(value) not in pytree.SUPPORTED_NODES:
        for field in dataclasses.fields(value):
            yield from _named(getattr(value, field.name), f"{name}.{field.name}")
        return
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        steps = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
        if path and dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _named(leaf, ".".join([name, *steps]))
        else:
            yield ".".join([name, *steps]), leaf


_registered: set[str] = set()


def register_caches() -> None:
    """Registers transformers' caches with pytree, once, if transformers is in use."""
    module = sys.modules.get("transformers.cache_utils")
    if module is None or "caches" in _registered:
        return
    _registered.add("caches")
    cache = module.DynamicCache
    if cache in pytree.SUPPORTED_NODES:
        return
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()
