"""Containers that a forward changes in place: lists, dicts, objects, and transformers' caches."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils import _pytree as pytree

from ortisan.errors import UnsupportedError

_registered: set[str] = set()


def register_caches() -> None:
    """Registers transformers' caches with pytree, once, if transformers is in use."""
    module = sys.modules.get("transformers.cache_utils")
    if module is None or "caches" in _registered:
        return
    _registered.add("caches")
    if module.DynamicCache not in pytree.SUPPORTED_NODES:
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()
    pair = getattr(module, "EncoderDecoderCache", None)
    if pair is not None and pair not in pytree.SUPPORTED_NODES:
        pytree.register_pytree_node(
            pair,
            lambda cache: ([cache.self_attention_cache, cache.cross_attention_cache], None),
            lambda children, _: pair(*children),
            serialized_type_name=f"{pair.__module__}.{pair.__name__}",
            flatten_with_keys_fn=lambda cache: (
                [
                    (pytree.GetAttrKey("self_attention_cache"), cache.self_attention_cache),
                    (pytree.GetAttrKey("cross_attention_cache"), cache.cross_attention_cache),
                ],
                None,
            ),
        )


def is_cache(value: Any) -> bool:
    return isinstance(getattr(value, "layers", None), list) and "Cache" in type(value).__name__


def check_cache(value: Any) -> None:
    """Refuses a cache whose tensors don't tell its length: a sliding window that has dropped tokens."""
    if not is_cache(value):
        return
    for layer in value.layers:
        length, keys = getattr(layer, "cumulative_length", None), getattr(layer, "keys", None)
        if isinstance(length, int) and keys is not None and length != keys.shape[-2]:
            raise UnsupportedError(
                f"the cache holds {keys.shape[-2]} of {length} tokens, because its window has moved on, and the "
                "wrapper knows only what it holds; use torch.compile(module, backend='ortisan')"
            )


def contents_of(container: Any) -> Any:
    """What a container holds, as a list, a dict, or the layers of a cache."""
    if isinstance(container, list):
        return list(container)
    if isinstance(container, dict):
        return dict(container)
    if is_cache(container):
        return [(type(layer), dict(vars(layer))) for layer in container.layers]
    return dict(vars(container))


@dataclass(frozen=True, eq=False)
class CacheMake:
    """Makes a cache of its layers' contents."""

    kind: Any
    rest: Mapping[str, Any]

    def __call__(self, contents: Any) -> Any:
        cache = self.kind.__new__(self.kind)
        cache.__dict__.update(self.rest, layers=[])
        put_contents(cache, contents)
        return cache


def put_contents(container: Any, contents: Any) -> None:
    """Makes a container hold what `contents_of` gave for another one like it."""
    if isinstance(container, list):
        container[:] = contents
    elif isinstance(container, dict):
        container.clear()
        container.update(contents)
    elif is_cache(container):
        for index, (kind, state) in enumerate(contents):
            if index == len(container.layers):
                container.layers.append(kind.__new__(kind))
            container.layers[index].__dict__.update(state)
    else:
        container.__dict__.update(contents)
