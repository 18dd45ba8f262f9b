"""Plain: no tool protocol; thoughts only where the template knows of them.

What a model speaks whose template no other dialect claims. Nothing of its output is ever lost or held back for long.
"""

from __future__ import annotations

from shepherd.dialects.markup import Markup
from shepherd.dialects.tags import TagDialect

PLAIN = TagDialect(name="plain", markup=Markup())
