"""DeepSeek V3.2 and V4."""

from __future__ import annotations

from shepherd.dialects.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = ()
