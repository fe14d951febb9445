"""Exporting while other threads run: torch has one tracer, and patches the calls of all modules for it."""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo.convert_frame import compile_lock
from torch.fx.experimental import proxy_tensor

_TRACERS = ("PythonKeyTracer", "_ModuleStackTracer")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Only one thread exports, or compiles with dynamo, at a time; calls of modules in others are left alone.

    It is dynamo's own lock, which a thread holds already where torch.compile calls the backend.
    """
    with compile_lock, contextlib.ExitStack() as stack:
        owner = threading.get_ident()
        for name in _TRACERS:
            tracer = getattr(proxy_tensor, name, None)
            for method, bystander in (("call_module", _call), ("getattr", _attribute)):
                if tracer is not None and method in vars(tracer):
                    original = vars(tracer)[method]
                    setattr(tracer, method, _only_in(owner, original, bystander))
                    stack.callback(setattr, tracer, method, original)
        yield


def _only_in(owner: int, original: Callable[..., Any], bystander: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return (original if threading.get_ident() == owner else bystander)(*args, **kwargs)

    return method


def _call(_: Any, __: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return forward(*args, **kwargs)


def _attribute(_: Any, __: str, value: Any, ___: Any) -> Any:
    return value


def _copy(value: Any) -> Any:
    """Lists and dicts are the twin's own, above all its parameters, buffers and modules."""
    return value.copy() if type(value) in (list, dict, collections.OrderedDict) else value


def twin(module: nn.Module) -> nn.Module:
    """The same modules over the same tensors. What an export assigns to them does not reach the originals."""
    parts = list(module.modules())
    if any(isinstance(part, torch.jit.ScriptModule) for part in parts):
        return module
    twins = {id(part): object.__new__(type(part)) for part in parts}
    for part in parts:
        table = {name: _copy(value) for name, value in part.__dict__.items()}
        table["_modules"].update({name: twins.get(id(child), child) for name, child in table["_modules"].items()})
        redirected: Any = table.get("forward")
        if hasattr(redirected, "original_forward"):
            table.pop("forward")
            if redirected.own_forward is not None:
                table["forward"] = redirected.own_forward
        twins[id(part)].__dict__.update(table)
    return twins[id(module)]
