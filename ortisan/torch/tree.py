"""Flattens arguments and results into lists of tensors: tuples, lists, dicts, dataclasses, and pytree's nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ortisan.torch.caches import CacheMake, check_cache, contents_of, is_cache, register_caches


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


@dataclass(frozen=True)
class Same:
    """The place of a container that a call was given: the one at `index`."""

    index: int


def flatten(value: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a structure in order, and the structure with their places."""
    walk = Flattener()
    tree = walk.flatten(value)
    return walk.tensors, tree


class Flattener:
    """Collects the tensors of structures, and their containers that can be changed in place, children first.

    A container in `known` (by its id) is not entered: a `Same` takes its place. With `results`, caches keep all of
    their state, as they have to where they are made; otherwise what they hold has to be all there is to know.
    """

    def __init__(self, known: Mapping[int, int] | None = None, *, results: bool = False) -> None:
        register_caches()
        self.tensors: list[torch.Tensor] = []
        self.containers: list[Any] = []
        self._known = known or {}
        self._results = results

    def flatten(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return Leaf(len(self.tensors) - 1)
        if isinstance(value, torch.SymInt):
            self.tensors.append(value)  # type: ignore[arg-type]  # a size that is a result
            return Leaf(len(self.tensors) - 1, "int")
        if value is None or isinstance(value, (bool, int, float, str)):
            return Constant(value)
        if id(value) in self._known:
            return Same(self._known[id(value)])
        tree = self._branch(value)
        if isinstance(tree, Branch) and not isinstance(value, tuple):
            self.containers.append(value)
        return tree

    def _branch(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple or kind is list:
            return Branch(kind, tuple([self.flatten(child) for child in value]))
        if kind is dict:
            return Branch(kind, tuple([self.flatten(child) for child in value.values()]), tuple(value))
        if self._results and is_cache(value):
            rest = {name: each for name, each in vars(value).items() if name != "layers"}
            return Branch(CacheMake(kind, rest), (self.flatten(contents_of(value)),))
        check_cache(value)
        children, spec = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
        if not (len(children) == 1 and children[0] is value):
            return Branch(spec, tuple(self.flatten(child) for child in children))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = tuple(field.name for field in dataclasses.fields(value) if field.init)
            return Branch(type(value), tuple(self.flatten(getattr(value, name)) for name in names), names)
        return Constant(value)


def unflatten(tree: Any, flat: Sequence[Any], given: Sequence[Any] = (), made: list[Any] | None = None) -> Any:
    """The structure with these tensors. `given` are the containers for `Same`; new ones are appended to `made`."""
    if isinstance(tree, Leaf):
        return flat[tree.index] if tree.kind == "tensor" else int(flat[tree.index])
    if isinstance(tree, Constant):
        return tree.value
    if isinstance(tree, Same):
        return given[tree.index]
    children = [unflatten(child, flat, given, made) for child in tree.children]
    value: Any
    if tree.make is tuple or tree.make is list:
        value = tree.make(children)
    elif tree.make is dict:
        value = dict(zip(tree.names, children, strict=True))
    elif isinstance(tree.make, CacheMake):
        value = tree.make(children[0])
    elif tree.names is not None:
        value = tree.make(**dict(zip(tree.names, children, strict=True)))
    else:
        value = pytree.tree_unflatten(children, tree.make)
    if made is not None and not isinstance(value, tuple):
        made.append(value)
    return value


def constants_of(tree: Any) -> Iterator[Any]:
    """The leaves of a structure that are not tensors."""
    if isinstance(tree, Constant):
        yield tree.value
    elif isinstance(tree, Branch):
        for child in tree.children:
            yield from constants_of(child)


def same_structure(a: Any, b: Any) -> bool:
    """Whether two structures are equal. Constants that can't be compared are unequal."""
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    if isinstance(a, Same):
        return bool(a.index == b.index)
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
