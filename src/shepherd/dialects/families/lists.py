"""A JSON list of calls between two tags."""

from __future__ import annotations

from shepherd.dialects.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = ()
