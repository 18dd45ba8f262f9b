"""What our OpenAPI description allows, and what it forbids, never ends in a 5xx.

A few examples of each operation, of some in the gate; many in a search. The plugin of Schemathesis
is not used (`addopts`): it takes a second of every run, in each of its processes.
"""

from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.control import SkipTest
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import status_code_conformance
from tests.cases import amount, few
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.server.app import create_app

BOUNDS = settings(
    max_examples=amount(2, 60), suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate)
)


KEY = {"authorization": "Bearer sk"}
"""Without one only this machine gets the memory, and the client of a test has no address."""


def described(service: ScriptedService, mode: GenerationMode) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(service, api_keys=("sk",)), headers=KEY)
    schema.config.generation.modes = [mode]
    return schema


def send_what_is(mode: GenerationMode) -> None:
    """A few requests of this kind to every operation of the document: some have nothing that could be wrong."""
    sent = set[str]()
    every = [
        found.ok()
        for found in described(ScriptedService(saying("Hi")), mode).get_all_operations()
        if isinstance(found, Ok)
    ]
    for operation in few(every, 0.3, name=lambda operation: operation.label):

        @BOUNDS
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case[Any]) -> None:
            sent.add(case.operation.label)
            case.call_and_validate(checks=[not_a_server_error, status_code_conformance], headers=KEY)

        with suppress(SkipTest):
            send()
    assert len(sent) > amount(1, len(every) // 2)


def test_what_is_allowed_is_never_our_fault() -> None:
    send_what_is(GenerationMode.POSITIVE)


def test_what_is_forbidden_is_never_our_fault() -> None:
    send_what_is(GenerationMode.NEGATIVE)


def test_a_bug_would_be_seen() -> None:
    seen: list[FailureGroup] = []
    failing = described(ScriptedService(playing(RuntimeError("a bug"))), GenerationMode.POSITIVE)

    @settings(BOUNDS, max_examples=50)
    @given(failing["/v1/chat/completions"]["POST"].as_strategy())
    def look(case: schemathesis.Case[Any]) -> None:
        if seen:
            return
        try:
            case.call_and_validate(checks=[not_a_server_error], headers=KEY)
        except FailureGroup as group:
            seen.append(group)

    look()
    assert seen
