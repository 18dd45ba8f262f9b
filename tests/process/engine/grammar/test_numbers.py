"""The tests of `tests/unit/engine/grammar/test_numbers.py` that start programs."""

import itertools
import json
import subprocess
import sys
from operator import itemgetter

from tests.cases import few

CHILD = """
import json, sys
from tests.unit.engine.masks import constrainer
from shepherd.core import InvalidRequest
from shepherd.engine.grammar.mask import fit_schema, compiled, _bytes_only
made = constrainer()
for text in json.loads(sys.stdin.read()):
    for call in (lambda: fit_schema(json.loads(text), "s", strict=True), lambda: made.check("start: %json " + text)):
        try:
            call()
        except (InvalidRequest, ValueError):  # what is no JSON for Python never gets here
            pass
    compiled(_bytes_only(), 'start: "x"')
print("alive")
"""


NUMBERS = [
    "-9223372036854775808", "-9223372036854775807", "-9223372036854775300", "-9223372036854775809",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "1e400", "-1e400",
    "-0.0", "-1e300", "1e300", "5e-324", "1e-400", "-1e20", "1e20", "-9.3e18", "9007199254740993", "1" + "0" * 400,
    "-1" + "0" * 5000,
    "-9223372036854775808.0", "-1e-5000", "1E+19",
]  # fmt: skip


SHAPES = [
    '{"const": N}', '{"enum": [1, N]}', '{"const": [N]}', '{"const": {"a": [{"b": N}]}}', '{"enum": [[N], "x"]}',
    '{"type": "integer", "const": N}', '{"type": "integer", "enum": [N]}', '{"properties": {"a": {"const": N}}}',
    '{"type": "integer", "minimum": N, "maximum": N}', '{"type": "number", "minimum": N, "maximum": N}',
    '{"minimum": N, "maximum": N}', '{"type": "integer", "exclusiveMinimum": N, "exclusiveMaximum": N}',
    '{"type": "integer", "maximum": N}', '{"type": "integer", "minimum": N}', '{"multipleOf": N}',
    '{"type": "number", "exclusiveMinimum": N}', '{"allOf": [{"type": "integer"}, {"const": N}]}',
    '{"allOf": [{"type": "integer", "minimum": -1e300}, {"maximum": N}]}',
    '{"allOf": [{"minimum": N}, {"maximum": N}, {"type": "integer"}]}',
    '{"$ref": "#/const", "const": {"minimum": N, "maximum": N, "type": "integer"}}',
    '{"$ref": "#/x/properties", "x": {"properties": {"const": N, "type": "integer"}}}',
    '{"$ref": "#/x/properties", "x": {"properties": {"minimum": N, "maximum": N, "type": "integer"}}}',
    '{"$ref": "#/default", "default": {"const": N}}', '{"$ref": "#/default/0", "default": [{"enum": [N]}]}',
    '{"$ref": "#/x/properties", "x": {"properties": {"const": {"a": N}}}}',
    '{"$ref": "#/x/properties", "x": {"properties": {"enum": [[{"a": N}]], "type": "object"}}}',
    '{"const": 1, "const": N}', '{"type": "integer", "enum": [N], "minLength": N, "maxLength": N}',
    '{"type": "string", "maxLength": N}',
]  # fmt: skip


def test_no_number_ends_the_process() -> None:
    pairs = few(itertools.product(SHAPES, NUMBERS), 0.15, family=itemgetter(0))
    larks = [shape.replace("N", number) for shape, number in pairs]
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(larks), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]
