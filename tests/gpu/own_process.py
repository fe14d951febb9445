"""Emulated sessions in a process of their own: a process can hold one CUDA runtime, and other tests load another one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_own_process(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """What a function of a module returns, or raises, in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **keywords).result()
