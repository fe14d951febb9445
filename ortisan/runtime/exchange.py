"""Two folders change places in one step, so that there is no moment at which one of them is gone."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANT = {errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP}
"""What kernels, file systems and sandboxes answer that don't know the call."""


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """Of the C library; None where it has no such function, as musl and macOS."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two paths on one file system. False when that can't be done here, and nothing has changed."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANT:
        return False
    raise OSError(code, os.strerror(code), str(other))
