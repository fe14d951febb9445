"""The lowering entries of the rows family register themselves here."""

from __future__ import annotations

from ortisan.registry.lower.rows import channels as _channels  # noqa: F401
from ortisan.registry.lower.rows import softmax as _softmax  # noqa: F401
from ortisan.registry.lower.rows import trailing as _trailing  # noqa: F401
