"""Schemathesis on our own OpenAPI document: what it allows is answered as it says, what it forbids is refused.

The server is a real one with the embedded model, a LoRA for it, and a reranker; the last two have random weights. A
case is one operation, once with valid and once with wrong requests.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.control import SkipTest
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from suites.report import Report, Row
from tests.own_server import serving
from tests.unit.engine.adapter_files import write_lora
from tests.unit.engine.tiny_bert import write_bert

from shepherd.models.catalog import embedded
from shepherd.models.gguf import read_header

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
N_EXAMPLES = 15
KEY = "sk-suite"
SMALL = """
max_tokens = 4
[memory]
database_path = "memory.db"
[models.lamb]
path = "embedded"
[[models.lamb.adapters]]
path = "law.gguf"
apply = false
[models.rank]
path = "rank.gguf"
[caches.main]
model = "lamb"
n_ctx = 256
"""
BOUNDS = settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)


def run() -> Report:
    """Every operation of the document, in both ways."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lora(folder / "law.gguf", read_header(embedded()), seed=1)
        write_bert(folder / "rank.gguf", pooling=4, n_labels=1, n_ctx=512)
        with serving(folder, SMALL, api_keys=(KEY,)) as url:
            rows = [row for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) for row in sent(url, mode)]
    return Report("openapi", "theirs", f"schemathesis {version('schemathesis')}", rows)


def sent(url: str, mode: GenerationMode) -> list[Row]:
    headers = {"authorization": f"Bearer {KEY}"}
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers)
    schema.config.generation.modes = [mode]
    kind = "valid" if mode == GenerationMode.POSITIVE else "wrong"
    rows = []
    for found in schema.get_all_operations():
        if not isinstance(found, Ok):
            rows.append(Row(f"{kind}: an operation", "failed", str(found.err())[:200]))
            continue
        operation = found.ok()

        @BOUNDS
        @given(operation.as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(checks=CHECKS, headers=headers, timeout=60)

        row = Row(f"{kind}: {operation.label}", "passed")
        try:
            send()
        except SkipTest:
            row = Row(row.case, "not applicable", "nothing in such a request can be wrong")
        except (Exception, BaseExceptionGroup) as error:  # failures come in a group that is no `Exception`
            row = Row(row.case, "failed", _reason(error))
        rows.append(row)
    return rows


def _reason(error: BaseException) -> str:
    """The first failure within a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())[:300]
