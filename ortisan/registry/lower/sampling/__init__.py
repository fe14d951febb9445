"""The lowering entries of the sampling family register themselves here."""

from __future__ import annotations

from ortisan.registry.lower.sampling import grid as _grid  # noqa: F401
from ortisan.registry.lower.sampling import regions as _regions  # noqa: F401
from ortisan.registry.lower.sampling import resize as _resize  # noqa: F401
