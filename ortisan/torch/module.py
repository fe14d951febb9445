"""`ortisan.torch.compile(module)`: a callable like the module, which exports, builds and runs it on demand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.errors import ArtifactError, OptionError, UnsupportedError
from ortisan.pipeline.kept import forget_kept
from ortisan.torch.check import compare_with_eager
from ortisan.torch.entry import Entry, Kind, build_entry, kind_of
from ortisan.torch.graph import check_tensor
from ortisan.torch.intercepting import describe_call, show
from ortisan.torch.options import front_options
from ortisan.torch.tree import flatten
from ortisan.torch.watch import Watch

DEFAULT_ENTRIES = 3


@dataclass(frozen=True)
class CacheInfo:
    """Counters: `hits` reused a session, `misses` made one, `disk` of which found an artifact on disk; `current` are
    open.
    """

    hits: int
    misses: int
    disk: int
    current: int
    most: int


def compile(module: nn.Module, **options: Any) -> OrtisanModule:
    """Wraps a module; `options` are those of `OrtisanModule`."""
    return OrtisanModule(module, **options)


class OrtisanModule:
    """Runs a module in ONNX Runtime with compiled custom ops. The module itself stays as it is.

    `dynamic=True` makes every dim symbolic that torch can keep so, and one session serves all its shapes; a mapping
    names them: `{"input_ids": {0: "batch", 1: "seq"}}`, with patterns for nested arguments (`"past*"`). `entries` is
    the number of sessions kept, the least recently used goes first. The other options are those of `FrontOptions`.

    A call finds a session by the structure, shapes, types and devices of its arguments and by the module's weights: a
    parameter that is replaced or written to makes a new one. Gradients don't pass through it.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        dynamic: bool | Mapping[str, Mapping[int, str]] = False,
        entries: int = DEFAULT_ENTRIES,
        mode: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise OptionError(f"expected a torch.nn.Module, got a {type(module).__name__}")
        if entries < 1:
            raise OptionError(f"entries must be at least 1, not {entries}")
        self.module, self.options = module, front_options(options, mode)
        self._dynamic, self._most = dynamic, entries
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._hits = self._misses = self._disk = self._made = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = dict(sorted(kwargs.items()))
        tensors, tree = flatten((args, kwargs))
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise UnsupportedError(
                "an input requires a gradient, and no gradient passes through the wrapper; call it under "
                "torch.no_grad(), or use torch.compile(module, backend='ortisan')"
            )
        if self.options.intercept:
            show(describe_call(type(self.module).__name__, args, kwargs), self.options.intercept)
        entry = self._find(Kind(tree, kind_of(tensors)), tensors, args, kwargs)
        results = entry.run(tensors)
        if self.options.check == "eager":
            with torch.no_grad():
                compare_with_eager(type(self.module).__name__, results, self.module(*args, **kwargs))
        return results

    forward = __call__

    def _find(self, kind: Kind, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Entry:
        with self._lock:
            if self._watch is None or self._watch.has_changed():
                self._entries.clear()
                self._watch = Watch(self.module)
            for number, entry in reversed(self._entries.items()):
                if entry.serves(kind):
                    self._entries.move_to_end(number)
                    self._hits += 1
                    return entry
            for tensor in tensors:
                check_tensor(tensor, "an input")
            self._misses += 1
            entry = build_entry(self.module, args, kwargs, self._dynamic, self.options)
            if not entry.serves(kind):
                raise ArtifactError("the exported model does not take the inputs that it was exported with")
            self._disk += entry.from_disk
            self._made += 1
            self._entries[self._made] = entry
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return entry

    @contextmanager
    def as_forward(self) -> Iterator[nn.Module]:
        """Redirects calls of the module here within the block: `with compiled.as_forward(): module.generate(...)`."""
        own = self.module.__dict__.get("forward")
        inside = threading.local()
        original = self.module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "busy", False):
                return original(*args, **kwargs)
            inside.busy = True
            try:
                return self(*args, **kwargs)
            finally:
                inside.busy = False

        forward.__signature__ = _signature(original)  # type: ignore[attr-defined]
        self.module.forward = forward
        try:
            yield self.module
        finally:
            if own is None:
                del self.module.forward
            else:
                self.module.forward = own

    def entries(self) -> tuple[Entry, ...]:
        """The open sessions, the least recently used first."""
        return tuple(self._entries.values())

    def cache_info(self) -> CacheInfo:
        return CacheInfo(self._hits, self._misses, self._disk, len(self._entries), self._most)

    def cache_clear(self, *, disk: bool = False) -> None:
        """Drops the sessions of this module; with `disk` also deletes every artifact that this package cached."""
        with self._lock:
            self._entries.clear()
            self._watch = None
            self._hits = self._misses = self._disk = 0
        if disk:
            forget_kept(cache_folder())

    def __repr__(self) -> str:
        return f"OrtisanModule({type(self.module).__name__}, {self.cache_info()})"


def _signature(function: Any) -> Any:
    import inspect

    return inspect.signature(function)
