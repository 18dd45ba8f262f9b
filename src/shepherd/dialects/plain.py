"""Plain: no tool protocol; thoughts only where the template knows of them.

What a model speaks whose template no other dialect claims. Nothing of its output is ever lost or held back for long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shepherd.dialects.markup import Markup
from shepherd.dialects.tags import TagDialect

THOUGHTS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
"""All the tags in use (C13)."""


@dataclass(frozen=True, slots=True)
class PlainDialect(TagDialect):
    """Text, with the thoughts that a template mentions."""

    def fitted(self, template: str) -> TagDialect:
        """The same dialect with the thought tags and the turn headers of the template."""
        known = tuple(tags for tags in THOUGHTS if any(tag in template for tag in tags))
        return TagDialect.fitted(replace(self, markup=Markup(thoughts=known)), template)


PLAIN = PlainDialect(name="plain", markup=Markup())
