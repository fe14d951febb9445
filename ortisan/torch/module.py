"""`ortisan.torch.compile(module)`: a callable like the module, which exports, builds and runs it on demand."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ortisan.codegen.tools.cache_place import cache_folder
from ortisan.errors import ArtifactError, OptionError
from ortisan.pipeline.kept import forget_kept
from ortisan.torch.axes import check_dynamic
from ortisan.torch.check import compare_with_eager
from ortisan.torch.entry import Entry, Kind, build_entry, kind_of, torch_state
from ortisan.torch.gradients import is_asked_for, with_gradients
from ortisan.torch.graph import check_tensor
from ortisan.torch.intercepting import describe_named, show
from ortisan.torch.options import environment_options, front_options
from ortisan.torch.sessions import CHANGES, DEFAULT_ENTRIES, CacheInfo, Sessions
from ortisan.torch.tree import Flattener, constants_of, unflatten

__all__ = ["CacheInfo", "OrtisanModule", "compile"]


def compile(module: nn.Module, **options: Any) -> OrtisanModule:
    """Wraps a module; `options` are those of `OrtisanModule`."""
    return OrtisanModule(module, **options)


class OrtisanModule(nn.Module):
    """Runs a module in ONNX Runtime with compiled custom ops. The module itself stays as it is.

    `dynamic=True` makes every dim symbolic that torch can keep so, and one session serves all its shapes; a mapping
    names them: `{"input_ids": {0: "batch", 1: "seq"}}`, with patterns for nested arguments (`"past*"`). `entries` is
    the number of sessions kept, the least recently used goes first. The other options are those of `FrontOptions`.

    A call finds a session by the structure, shapes, types and devices of its arguments, by autocast, and by the module
    as it is: whatever changed a weight, its results are those of the weights now. Gradients are computed by eager.
    Copies, pickles and state_dict hold the module and the options; sessions are made again.
    """

    module: nn.Module

    def __init__(
        self,
        module: nn.Module,
        *,
        dynamic: bool | Mapping[str, Mapping[int, Any]] = False,
        entries: int = DEFAULT_ENTRIES,
        mode: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise OptionError(f"expected a torch.nn.Module, got a {type(module).__name__}")
        if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:
            raise OptionError(f"entries must be at least 1, not {entries}")
        super().__init__()
        self.training = module.training
        self.module = module
        self.options = front_options({**environment_options(), **options}, mode)
        self._dynamic, self._most = check_dynamic(dynamic), entries
        self._reset()

    def _reset(self) -> None:
        self._sessions = Sessions(self._most)
        self._lock = threading.Lock()
        self._redirect: Any = None

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_sessions", "_lock", "_redirect")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._reset()

    def __getattr__(self, name: str) -> Any:
        """What the wrapper lacks is looked up in the module, as `fast.config`."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module" or name.startswith("__"):
                raise
            return getattr(super().__getattr__("module"), name)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = dict(sorted(kwargs.items()))
        walk = Flattener()
        tree = walk.flatten((args, kwargs))
        tensors = walk.tensors
        if self.options.intercept:
            show(describe_named(type(self.module).__name__, self.module, args, kwargs), self.options.intercept)
        expected = None
        if self.options.check == "eager":
            again, more = unflatten(tree, tensors)
            with torch.no_grad():
                expected = self.module(*again, **more)
        with torch.no_grad():
            entry = self._find(Kind(tree, kind_of(tensors), torch_state()), tensors, args, kwargs)
            results = entry.run(tensors, walk.containers)
        if self.options.check == "eager":
            compare_with_eager(type(self.module).__name__, results, expected)
        if is_asked_for(tensors, self.module):
            return with_gradients(self.module, tree, walk, results)
        return results

    def _find(self, kind: Kind, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> Entry:
        parts = (self.module, *(each for each in constants_of(kind.tree) if isinstance(each, nn.Module)))
        with self._lock:
            session = self._sessions.of(parts, freeze=self.options.freeze)
            found = session.find(kind)
            if found is not None:
                self._sessions.hits += 1
                return found
            for tensor in tensors:
                check_tensor(tensor, "an input")
            self._sessions.misses += 1
            self._sessions.prepare(session, freeze=self.options.freeze)
            bake = session.changes < CHANGES
            entry = build_entry(self.module, args, kwargs, self._dynamic, self.options, bake=bake)
            if not entry.serves(kind):
                raise ArtifactError("the exported model does not take the inputs that it was exported with")
            self._sessions.add(session, entry)
            return entry

    @contextmanager
    def as_forward(self) -> Iterator[nn.Module]:
        """Redirects calls of the module here within the block: `with compiled.as_forward(): module.generate(...)`."""
        own = self.module.__dict__.get("forward")
        if self._redirect is None or self._redirect.own_forward is not own:
            self._redirect = _redirection(self, self.module.forward, own)
        self.module.forward = self._redirect
        try:
            yield self.module
        finally:
            if own is None:
                del self.module.forward
            else:
                self.module.forward = own

    def entries(self) -> tuple[Entry, ...]:
        """The open sessions, the least recently used first."""
        return self._sessions.entries()

    def cache_info(self) -> CacheInfo:
        return self._sessions.info()

    def cache_clear(self, *, disk: bool = False) -> None:
        """Drops the sessions of this module; with `disk` also deletes every artifact that this package cached."""
        with self._lock:
            self._sessions = Sessions(self._most)
        if disk:
            forget_kept(cache_folder())

    def extra_repr(self) -> str:
        return str(self.cache_info())


def _redirection(wrapper: OrtisanModule, original: Callable[..., Any], own: Any) -> Callable[..., Any]:
    """A forward that goes through the wrapper, and to the original one when the wrapper itself calls it."""
    inside = threading.local()

    def forward(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "busy", False):
            return original(*args, **kwargs)
        inside.busy = True
        try:
            return wrapper(*args, **kwargs)
        finally:
            inside.busy = False

    redirect: Any = forward
    redirect.__signature__ = inspect.signature(original)
    redirect.original_forward, redirect.own_forward = original, own
    return redirect  # type: ignore[no-any-return]
