"""GLM and its kin."""

from __future__ import annotations

from shepherd.dialects.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = ()
