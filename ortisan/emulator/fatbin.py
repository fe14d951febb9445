"""The PTX in a library that nvcc made: its fat binaries, as they stand in the file.

A fat binary is a header (magic, version, size of the header, size of what follows) and parts: PTX or machine code for
one architecture, plain or as a block of LZ4. What is packed otherwise is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ortisan.errors import ToolchainError

_MAGIC = bytes.fromhex("50ed55ba0100")
_HEADER = struct.Struct("<IHHQ")
_PART = struct.Struct("<HHIQIIHHIIIQQQ")
_PTX, _LZ4, _ZSTD = 1, 0x2000, 0x8000


@dataclass(frozen=True)
class Part:
    """PTX for an architecture ("80")."""

    architecture: str
    text: str


def ptx_of(library: Path) -> list[Part]:
    """All PTX of a library, in the order of its sources."""
    data = library.read_bytes()
    return [part for start in _starts(data) for part in _parts(data, start)]


def _starts(data: bytes) -> Iterator[int]:
    at = data.find(_MAGIC)
    while at >= 0:
        yield at
        at = data.find(_MAGIC, at + 4)


def _parts(data: bytes, start: int) -> Iterator[Part]:
    _, _, header, size = _HEADER.unpack_from(data, start)
    at, end = start + header, min(start + header + size, len(data))
    while at + _PART.size <= end:
        kind, _, header, size, packed, _, _, _, architecture, _, _, flags, _, whole = _PART.unpack_from(data, at)
        if header < _PART.size or kind not in (1, 2):
            return
        if kind == _PTX:
            content = data[at + header : at + header + size]
            yield Part(str(architecture), _text(content, packed, flags, whole))
        at += header + size


def _text(content: bytes, packed: int, flags: int, whole: int) -> str:
    if flags & _ZSTD:
        raise ToolchainError(
            "the library's PTX is compressed in a way that can't be read; build it again (--compress-mode=speed)"
        )
    plain = unpack(content[:packed], whole) if flags & _LZ4 else content
    return plain.rstrip(b"\0").decode("ascii", errors="replace")


def unpack(block: bytes, size: int) -> bytes:
    """A block of LZ4: literals, then a match behind them, again and again."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        out += block[at : at + count]
        at += count
        if at >= len(block) or len(out) >= size:
            break
        distance = block[at] | block[at + 1] << 8
        count, at = _length(block, at + 2, token & 15)
        _repeat(out, distance, count + 4)
    if len(out) != size:
        raise ToolchainError(f"a fat binary is damaged: {len(out)} bytes came of it, and {size} should")
    return bytes(out)


def _length(block: bytes, at: int, first: int) -> tuple[int, int]:
    """A length of 4 bits, which 15 lets go on in bytes, and the place behind it."""
    if first < 15:
        return first, at
    while True:
        more = block[at]
        first, at = first + more, at + 1
        if more != 255:
            return first, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    start = len(out) - distance
    if count <= distance:
        out += out[start : start + count]
    else:
        pattern = bytes(out[start:])
        out += (pattern * (count // distance + 1))[:count]
