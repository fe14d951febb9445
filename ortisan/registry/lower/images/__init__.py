"""The lowering entries of the images family register themselves here."""

from __future__ import annotations

from ortisan.registry.lower.images import contrib as _contrib  # noqa: F401
from ortisan.registry.lower.images import convolutions as _convolutions  # noqa: F401
from ortisan.registry.lower.images import pools as _pools  # noqa: F401
from ortisan.registry.lower.images import spectra as _spectra  # noqa: F401
from ortisan.registry.lower.images import transposed as _transposed  # noqa: F401
