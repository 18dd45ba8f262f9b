"""The JSON tools: what they read, what they refuse, and what they leave as it is."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.tools.arguments import coerce_arguments
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.json_tools import json_format, json_parse, json_path, json_validate, read, write
from shepherd.tools.tool import Tool, ToolContext


async def call(tool: Tool, **arguments: Any) -> Result:
    return await tool.run(ToolContext(), coerce_arguments(arguments, tool))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(json_values, st.integers(0, 16))
def test_any_value_goes_round(value: Any, indent: int) -> None:
    text = write(value, indent)
    assert json.loads(text) == value
    assert write(read(text)[0], indent) == text
    text.encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the JSON text is empty"),
        (" \n", "the JSON text is empty"),
        ('{"a": 1,\n "b": ]}', "line 2, column 7: expecting value at ']}'"),
        ('{"a": 1,\n "b": [1,]}', "line 2, column 10: expecting value; there is one comma too many"),
        ("{'a': 1}", "line 1, column 2: expecting property name enclosed in double quotes; strings have double quotes"),
        ('{"a": 1', "line 1, column 8: expecting ',' delimiter; the text ends here"),
        ("[1] [2]", "line 1, column 5: extra data at '[2]'"),
        ("[1, // one\n2]", "line 1, column 5: expecting value; JSON has no comments"),
        ('["a\nb"]', "line 1, column 4: invalid control character at"),
        ('"abc', "line 1, column 1: unterminated string at '\"abc'"),
        ("[1,\n NaN]", "line 2, column 2: NaN is not JSON; use null or text"),
        ("[-Infinity]", "line 1, column 2: -Infinity is not JSON"),
        ("[" * 100_000, "line 1, column 201: nested more than 200 levels deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested more than 200 levels deep"),
        ("\n" + "[" * 300 + "]" * 300, "line 2, column 201: nested"),
        ('"' + '\\"' * 200_000 + "\\", "unterminated string"),
    ],
)
async def test_what_is_not_json_is_refused_with_its_place(text: str, says: str) -> None:
    for tool, arguments in ((json_parse, {}), (json_format, {}), (json_path, {"path": "$"})):
        with pytest.raises(ToolError) as refused:
            await call(tool, json=text, **arguments)
        assert says in refused.value.message
    result = json.loads((await call(json_validate, json=text)).content)
    assert result["valid"] is False
    assert says in result["errors"][0]


async def test_strings_may_look_like_anything() -> None:
    text = '["NaN", "[[[", "\\"NaN", "\\\\"]'
    assert (await call(json_parse, json=text)).content == text
    assert (await call(json_parse, json="\ufeff[1]")).content == "[1]"


async def test_json_is_printed_neatly() -> None:
    text = '{"b":[1,{"c":"é"}],"a":{},"e":[]}'
    neat = '{\n  "b": [\n    1,\n    {\n      "c": "é"\n    }\n  ],\n  "a": {},\n  "e": []\n}'
    assert (await call(json_format, json=text)).content == neat
    assert (await call(json_format, data=json.loads(text))).content == neat
    assert (await call(json_format, json=text, indent=0)).content == '{"b": [1, {"c": "é"}], "a": {}, "e": []}'
    assert (await call(json_format, data='a "quoted" text')).content == '"a \\"quoted\\" text"'
    assert (
        await call(json_parse, json=json.dumps(["x" * 300] * 2))
    ).content == f'[\n "{"x" * 300}",\n "{"x" * 300}"\n]'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"json": "[1]", "indent": 17}, "indent must be 0 (all on one line) to 16, not 17"),
        ({"json": "[1]", "indent": -1}, "indent must be"),
        ({}, "nothing to print: give json (a text) or data (a value)"),
        ({"data": math.inf}, "inf is not JSON"),
        ({"data": 10**5000}, "more than 4000 digits"),
    ],
)
async def test_what_cannot_be_printed_is_a_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await json_format.run(ToolContext(), arguments)
    assert says in refused.value.message


# -- schemas ----------------------------------------------------------------------------------------------------------


# -- paths ------------------------------------------------------------------------------------------------------------


# -- how they are offered ---------------------------------------------------------------------------------------------


def test_the_tools_have_the_names_that_prompts_use() -> None:
    aliases = {tool.name: tool.aliases for tool in (json_parse, json_validate, json_format, json_path)}
    assert "parse_json" in aliases["json_parse"]
    assert "serialize_json" in aliases["json_format"]
    assert "query_json" in aliases["json_path"]
    for tool in (json_parse, json_validate, json_format, json_path):
        assert (tool.category, tool.effect) == ("json", "read")
        assert len(json.dumps(tool.parameters)) < 300
