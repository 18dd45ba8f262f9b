"""Results that break the protocol: what they say is kept, in every revision, and what is valid stays as it is."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.tools.mcp.content import as_result
from shepherd.tools.mcp.mending import is_valid, mended

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT = {"type": "text", "text": "done"}

BROKEN: list[tuple[Any, str]] = [
    ({"content": "done"}, "done"),
    ({"content": TEXT}, "done"),
    ({"content": ["done", TEXT]}, "done\ndone"),
    ({"content": [{"type": "text"}]}, '{"type": "text"}'),
    ({"content": [{"type": "text", "text": 5}]}, '{"type": "text", "text": 5}'),
    ({"content": [{"text": "done"}]}, "done"),
    ({"content": [{"type": "json", "json": {"n": 1}}]}, '{"type": "json", "json": {"n": 1}}'),
    ({"content": [{**TEXT, "annotations": "high"}]}, "done"),
    ({"content": [{**TEXT, "_meta": []}]}, "done"),
    ({"content": [TEXT, {"type": "image", "data": PNG}]}, "done\n[image, image/png, 70 bytes]"),
    ({"content": [{"type": "image", "mime_type": "image/png", "data": PNG}]}, "[image, image/png, 70 bytes]"),
    ({"content": [{"type": "image", "mimeType": "image/png"}]}, '{"type": "image", "mimeType": "image/png"}'),
    ({"content": [{"type": "resource", "resource": {"text": "done"}}]}, "done"),
    ({"content": [{"type": "resource", "resource": {"blob": "aGVsbG8="}}]}, "[resource, 5 bytes, not shown]"),
    ({"content": None}, ""),
    ({"content": [None, 5]}, "null\n5"),
    ({"content": {}}, "{}"),
    ({}, ""),
    ({"result": "done"}, "done"),
    ({"toolResult": {"n": 1}}, '{"n": 1}'),
    ({"n": 1, "m": 2}, '{"n": 1, "m": 2}'),
    ({"content": [TEXT], "_meta": "x"}, "done"),
    ({"content": [TEXT], "resultType": 5}, "done"),
    ({"structured_content": {"n": 1}}, '{"n": 1}'),
    ({"content": [TEXT], "structuredContent": [1, 2]}, "done\n[1, 2]"),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("result", "said"), BROKEN)
def test_what_a_broken_result_says_is_kept(result: dict[str, Any], said: str, version: str) -> None:
    made = mended(result, version)
    assert is_valid(made, version)
    read = as_result("s", types.CallToolResult.model_validate(made, by_name=False))
    assert (read.content, read.success) == (said, True)


@pytest.mark.parametrize(
    ("flag", "failed"),
    [(True, True), ("true", True), ("False", False), (1, True), (0, False), (None, False), ([], False)],
)
@pytest.mark.parametrize("name", ["isError", "is_error"])
def test_whether_a_call_failed_is_read_from_any_kind(name: str, flag: Any, failed: bool) -> None:
    assert mended({"content": "x", name: flag}, "2025-11-25")["isError"] is failed


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "data", "resource", "uri", "_meta", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)
names = st.sampled_from(["content", "isError", "structuredContent", "_meta", "resultType", "result"])


@given(st.dictionaries(names, values, max_size=4), st.sampled_from(VERSIONS))
def test_every_object_becomes_a_valid_result(result: dict[str, Any], version: str) -> None:
    assert is_valid(mended(result, version), version)
