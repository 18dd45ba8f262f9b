"""Stop strings for a provider that has none: the answer is cut here, and the connection closed.

    events ─ TextDelta ─ StopFilter ─▶ text up to the stop string ─▶ Finished("stop")

OpenAI's Responses have no field for them, and models that think refuse it in chat completions.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from shepherd.backends.local.stop import StopFilter
from shepherd.core import CallDelta, Event, Finished, ReasoningDelta, Started, TextDelta, Usage


async def cut(
    events: AsyncGenerator[Event, None], stops: Sequence[str], prompt_tokens: int
) -> AsyncGenerator[Event, None]:
    """The events up to the first of the stop strings. The caller closes `events`.

    `prompt_tokens`: an estimate, for the counts of an answer that is cut: the provider's come at its end.
    """
    stop = StopFilter(stops)
    usage, n_chars = Usage(prompt_tokens), 0
    async for event in events:
        match event:
            case Started(usage=Usage() as known) if known.prompt:
                usage = known
            case ReasoningDelta(text=text) | CallDelta(text=text):
                n_chars += len(text)
        if isinstance(event, TextDelta):
            n_chars += len(event.text)
            shown = stop.feed(event.text)
            if shown:
                yield replace(event, text=shown)
        elif rest := stop.close():  # the text has ended, for now
            yield TextDelta(rest)
        if stop.found is not None:
            yield Finished("stop", replace(usage, output=math.ceil(n_chars / 4)), stop=stop.found)
            return
        if not isinstance(event, TextDelta):
            yield event
