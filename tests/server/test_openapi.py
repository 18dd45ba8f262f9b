"""What our OpenAPI description allows, and what it forbids, never ends in a 5xx.

Two examples of some operations in a quick run; many of each with `SHEPHERD_THOROUGH=1`.
"""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from tests.sampling import LEVEL, amount, examples, is_chosen

from shepherd.server.app import create_app
from shepherd.server.fake import ScriptedService, playing, saying

BOUNDS = settings(
    max_examples=amount(2, 60),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
    derandomize=not LEVEL,
)


KEY = {"authorization": "Bearer sk"}
"""Without one the memory is shown to nobody who is not on this machine, and a test's client is nowhere."""


def described(service: ScriptedService, mode: GenerationMode) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(service, api_keys=("sk",)), headers=KEY)
    schema.config.generation.modes = [mode]
    return schema


def is_drawn(context: Any) -> bool:
    """Whether an operation belongs to the share of this run."""
    return LEVEL > 0 or is_chosen(context.operation.label, 0.3)


allowed = described(ScriptedService(saying("Hi")), GenerationMode.POSITIVE).include(is_drawn)
forbidden = described(ScriptedService(saying("Hi")), GenerationMode.NEGATIVE).include(is_drawn)
failing = described(ScriptedService(playing(RuntimeError("a bug"))), GenerationMode.POSITIVE)


@allowed.parametrize()
@BOUNDS
def test_what_is_allowed_is_never_our_fault(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(checks=[not_a_server_error], headers=KEY)


@forbidden.parametrize()
@BOUNDS
def test_what_is_forbidden_is_never_our_fault(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(checks=[not_a_server_error], headers=KEY)


def test_a_bug_would_be_seen() -> None:
    seen = []

    @settings(BOUNDS, max_examples=examples(50))
    @given(failing["/v1/chat/completions"]["POST"].as_strategy())
    def look(case: schemathesis.Case[Any]) -> None:
        try:
            case.call_and_validate(checks=[not_a_server_error], headers=KEY)
        except FailureGroup as group:
            seen.append(group)

    look()
    assert seen
