"""The Jinja environment of model templates: sandboxed, set up as Hugging Face does, and origin-keeping.

Jinja makes and joins strings in five places outside of `str` itself: printing, the final join, `~`, `%` and calls of
methods on the template's own literals (`"\\n".join(...)`). This environment replaces each, so that origins survive
(`provenance`). Not here: the variables of templates (`template`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from shepherd.dialects.render.provenance import (
    Arguments,
    OriginStr,
    as_origin_str,
    join,
    origins,
    plain,
    text_of,
    whole,
    with_origin,
)


class TemplateRefusal(TemplateError):
    """`raise_exception` raises it: the template refuses the conversation, with its own words."""


class GenerationTag(Extension):
    """`{% generation %}` marks text for training; in a prompt only its inside counts."""

    tags = {"generation"}  # noqa: RUF012  # jinja reads it from the class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class OriginCode(CodeGenerator):
    """Compiles `a ~ b` to a join that keeps origins."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(environment.finalize, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


class PromptEnvironment(SandboxedEnvironment):
    """Everything a chat template may use. One per template; safe to share between renderings.

    Templates may append to lists, as Kimi K2's does: each rendering gets new values.
    """

    code_generator_class = OriginCode
    concat = staticmethod(join)
    intercepted_binops = frozenset(["%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
            finalize=text_of,
        )
        for name in self.filters.keys() - PASSING:
            self.filters[name] = guarded(self.filters[name])
        self.filters.update(
            tojson=to_json,
            from_json=from_json,
            string=text_of,
            safe=text_of,
            trim=lambda value, chars=None: as_origin_str(text_of(value)).strip(chars),
            replace=lambda value, old, new, count=-1: as_origin_str(text_of(value)).replace(old, text_of(new), count),
            join=join_filter,
            indent=indent,
            format=lambda value, *args, **kwargs: percent(text_of(value), kwargs or args),
        )
        self.globals.update(raise_exception=refuse)

    def getattr(self, obj: Any, attribute: str) -> Any:
        # Nearly all are fields of messages and of namespaces, read tens of thousands of times in a rendering.
        if type(obj) is dict:
            if attribute in obj and attribute not in DICT_METHODS:
                return obj[attribute]
        elif type(obj) in (Namespace, LoopContext) and not attribute.startswith("_"):
            value = getattr(obj, attribute, None)
            if value is not None and not callable(value):
                return value
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Bytes would come back as strings without origin.
        return super().is_safe_attribute(obj, attr, value) and not (isinstance(obj, str) and attr == "encode")

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, BuiltinMethodType) and type(obj.__self__) is str:
            obj = getattr(OriginStr(obj.__self__), obj.__name__)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return percent(left, right) if isinstance(left, str) else super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        if value.__name__ == "format_map":
            return lambda mapping: self.format_text(value.__self__, (), mapping)
        return lambda *args, **kwargs: self.format_text(value.__self__, args, kwargs)

    def format_text(self, template: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """`template.format(*args, **kwargs)`, sandboxed, with the origins of what was inserted."""
        formatter = SandboxedFormatter(self)
        if origins(template):
            return whole(formatter.vformat(plain(template), args, kwargs), template, args, kwargs)
        parts: list[str] = []
        unnamed = 0
        for literal, field, spec, conversion in formatter.parse(plain(template)):
            parts.append(literal)
            if field is None:
                continue
            if not field or field[0] in ".[":
                field, unnamed = f"{unnamed}{field}", unnamed + 1
            value, _ = formatter.get_field(field, args, kwargs)
            if not spec and conversion in (None, "s"):
                parts.append(text_of(value))
            else:
                form = formatter.vformat(spec or "", args, kwargs)
                shown = formatter.format_field(formatter.convert_field(value, conversion), form)
                parts.append(whole(shown, value))
        return join(parts)


DICT_METHODS = frozenset(dir(dict))


def refuse(message: str) -> NoReturn:
    raise TemplateRefusal(text_of(message))


PASSING = frozenset({"first", "last", "min", "max", "random", "default", "d", "attr"})
"""The filters that return a value that they were given, which knows its origin."""


def guarded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The filter; a plain string that it makes of request text counts as request text as a whole."""

    @functools.wraps(filter_)
    def guard(*args: Any, **kwargs: Any) -> Any:
        result = filter_(*args, **kwargs)
        if not isinstance(result, str) or isinstance(result, OriginStr):
            return result
        return whole(result, [arg for arg in args if not isinstance(arg, Context)], kwargs)

    return guard


DIRECTIVE = re.compile(r"%(?:\((?P<key>[^)]*)\))?[-#0 +]*(?P<width>\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?(?P<kind>[a-zA-Z%])")


def percent(form: str, values: Any) -> str:
    if origins(form) or "*" in form:
        return whole(plain(form) % values, form, values)
    parts: list[str] = []
    at = taken = 0
    for directive in DIRECTIVE.finditer(form):
        parts.append(form[at : directive.start()])
        at = directive.end()
        if directive["kind"] == "%":
            parts.append("%")
            continue
        if directive["key"] is not None:
            value, filled = values[directive["key"]], {directive["key"]: values[directive["key"]]}
            shown = directive[0] % filled
        else:
            value = values[taken] if isinstance(values, tuple) else values
            taken += 1
            shown = directive[0] % (value,)
        exact_text = directive[0] in ("%s", f"%({directive['key']})s")
        parts.append(text_of(value) if exact_text else whole(shown, value))
    parts.append(form[at:])
    _ = plain(form) % values  # the same errors as Python's own operator
    return join(parts)


def join_filter(values: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        values = [value[attribute] for value in values]
    return as_origin_str(text_of(d)).join(map(text_of, values))


def indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """The text with every line but the first indented; blank lines only with `blank`."""
    margin = width if isinstance(width, str) else " " * width
    lines = (as_origin_str(value) + "\n").splitlines()
    moved = [line if number == 0 or not (line or blank) else join((margin, line)) for number, line in enumerate(lines)]
    return join((margin if first else "", OriginStr("\n").join(moved)))


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The value as JSON, not escaped for HTML; a call's arguments come out as the model wrote them."""
    if isinstance(value, Arguments):
        return value.text
    if isinstance(value, Iterator):  # what `map` and `select` give
        value = list(value)
    kept: dict[str, str] = {}
    text = json.dumps(
        exact(value, kept), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    for placeholder, arguments in kept.items():
        text = text.replace(placeholder, arguments)
    return whole(text, value)


def exact(value: Any, kept: dict[str, str]) -> Any:
    """The value with a placeholder for each `Arguments`; `kept` maps the JSON of each to the text it stands for."""
    match value:
        case Arguments():
            # The lone surrogate cannot occur in any request: nothing decodes to it.
            placeholder = f"\ud800{len(kept)}\ud800"
            kept[json.dumps(placeholder)] = kept[f'"{placeholder}"'] = plain(value.text)
            return placeholder
        case Mapping():
            return {key: exact(item, kept) for key, item in value.items()}
        case list() | tuple():
            return [exact(item, kept) for item in value]
        case _:
            return value


def from_json(text: str) -> Any:
    """The value that a JSON text spells, its strings of the text's origin."""
    value, found = json.loads(text), origins(text)
    return with_origin(value, found.pop()) if found else value
