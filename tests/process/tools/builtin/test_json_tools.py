"""The tests of `tests/unit/tools/builtin/test_json_tools.py` that start programs."""

import json

import pytest
from tests.unit.tools.builtin.test_json_tools import PERSON, STORE, call

from shepherd.tools.base import ToolError
from shepherd.tools.builtin.json_tools import json_path, json_validate


async def test_a_schema_is_applied_in_a_child() -> None:
    result = await call(json_validate, json='{"name": "A", "tags": ["z"]}', schema=PERSON)
    assert result.success
    verdict = json.loads(result.content)
    assert not verdict["valid"]
    assert sorted(verdict["errors"]) == [
        "$.name: 'A' is too short",
        "$.tags[0]: 'z' is not one of ['a', 'b']",
        "$: 'age' is a required property",
    ]
    said = await call(json_validate, json='{"name": "Ann", "age": 12345678901234567890}', schema=json.dumps(PERSON))
    assert json.loads(said.content) == {"valid": True, "errors": []}


@pytest.mark.parametrize(
    ("schema", "says"),
    [({"type": "strin"}, "schema: $.type: 'strin' is not valid"), ({"$ref": "#"}, "nested too deeply")],
)
async def test_a_child_refuses_a_schema_in_a_sentence(schema: dict[str, str], says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await call(json_validate, json="1", schema=schema)
    assert says in refused.value.message


async def test_a_path_is_followed_in_a_child() -> None:
    found = await call(json_path, json=STORE, path="store.book[?@.price == 8.50].title")
    assert (found.content, found.summary) == ('["One"]', "1 match")
    note = '\n(the key "a" comes twice in one object; the last one counts)'
    assert (await call(json_path, json='{"a": 1, "a": 3}', path="$.a")).content == "[3]" + note
    assert (await call(json_path, json={"a": [1]}, path="a")).summary == "1 match"  # an object is as good as its text


@pytest.mark.parametrize(
    ("path", "says"), [("$[?" + "(" * 5_000 + "]", "recursion"), ("$[?search(@, '(')]", "missing )")], ids=["deep", "("]
)
async def test_a_child_refuses_a_path_in_a_sentence(path: str, says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await call(json_path, json='["a"]', path=path)
    assert says in refused.value.message
    assert len(refused.value.message) < 500
