"""The op vocabulary: AITemplate's ops, each with shape inference and a numpy reference, in families."""

from __future__ import annotations

from ortisan.registry.ops.attention import *
from ortisan.registry.ops.cache import *
from ortisan.registry.ops.elementwise import *
from ortisan.registry.ops.gather import *
from ortisan.registry.ops.generate import *
from ortisan.registry.ops.images import *
from ortisan.registry.ops.move import *
from ortisan.registry.ops.products import *
from ortisan.registry.ops.reduce import *
from ortisan.registry.ops.rotary import *
from ortisan.registry.ops.rows import *
from ortisan.registry.ops.sampling import *
