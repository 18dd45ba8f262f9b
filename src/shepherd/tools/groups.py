"""All tools there are, by group, the most useful first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shepherd.core import ToolSpec
from shepherd.tools import memory

GROUPS: Mapping[str, Sequence[ToolSpec]] = {"memory": memory.SPECS}
