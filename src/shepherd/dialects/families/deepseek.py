"""DeepSeek R1 to V3.1."""

from __future__ import annotations

from shepherd.dialects.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = ()
