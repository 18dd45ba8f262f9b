"""The tests of `tests/unit/tools/test_toolbox.py` that take long."""

import asyncio
from dataclasses import replace

from tests.in_time import in_time
from tests.unit.tools.test_toolbox import Agreeing, boxed, call, double, text_of

from shepherd.tools.base import Question, Verdict
from shepherd.tools.permission import Permission


async def test_the_time_that_a_person_takes_is_not_the_tools() -> None:
    async def attempt(timeout_s: float) -> None:
        class Thinking(Agreeing):
            async def allow(self, question: Question) -> Verdict:
                await asyncio.sleep(2 * timeout_s)
                return "once"

        write = replace(double, name="write", effect="write")
        box = boxed(write, permission=Permission(person=Thinking()), timeout_s=timeout_s)
        assert text_of(await box.run(call("write", n=2))) == "4"

    await in_time(attempt, (0.02, 0.3, 4.0, 30.0))
