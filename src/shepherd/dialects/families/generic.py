"""What models write that follow no protocol of their own."""

from __future__ import annotations

from shepherd.dialects.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = ()
