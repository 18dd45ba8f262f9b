"""The dialect of a template that no family knows, derived in a process of its own: the template is a foreign program.

Not here: how it is derived (`dialects.derive`).
"""

from __future__ import annotations

import logging
from functools import lru_cache

from shepherd.dialects import derive
from shepherd.dialects.parse.tags import TagDialect
from shepherd.process.isolated import WorkFailed, run_isolated

logger = logging.getLogger(__name__)

LONGEST_TEMPLATE = 256 * 1024
"""No chat template of a model is longer."""
DEADLINE_S = 10.0
"""Of processor time; most templates take half a second."""


@lru_cache(maxsize=16)
def derived_dialect(template: str, *, deadline_s: float = DEADLINE_S) -> TagDialect | None:
    """The dialect derived from a chat template; `None` if it prints no calls, or not in a way that can be derived.

    Blocks for about half a second at the first time, for some seconds if the template never ends.
    """
    if "tool_calls" not in template or len(template) > LONGEST_TEMPLATE:
        return None
    try:
        # The process derives once itself, so what its texts cost here has been spent there, below the deadline.
        printed = run_isolated("shepherd.dialects.derive:provable", template, deadline_s=deadline_s)
    except WorkFailed as error:
        logger.warning("the markup of calls cannot be derived from the model's chat template: %s", error.message)
        return None
    return derive.derived(printed) if printed else None
