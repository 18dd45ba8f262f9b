"""The chat format of a model: its chat template, its dialect, and where both come from.

The template is searched where the model is described, the nearest place first (C11, TPL-03):

    the configuration ▸ the model file ▸ chat_template.jinja, chat_template.json, tokenizer_config.json beside it
    ▸ one of our own: that of the family that the vocabulary shows, else ChatML

Nothing is guessed from a file's name. A template of our own is a last resort and causes a warning when the model is
loaded: a model that was trained on other turns answers badly without an error. Completions and infill need no template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field
from shepherd.core.encoding import text_of
from shepherd.dialects import TagDialect, Template, detect, get, names
from shepherd.process.files import read_within

FOR_TOOLS = "tool_use"
"""The name under which models keep a second template, for requests with tools."""

BUILT_IN_TEMPLATES: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "ChatML",
        frozenset({"<|im_start|>", "<|im_end|>"}),
        "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    ),
    (
        "Llama 3",
        frozenset({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}),
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    ),
    (
        "Gemma",
        frozenset({"<start_of_turn>", "<end_of_turn>"}),
        "{{ bos_token }}{% for message in messages %}"
        "{% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}"
        "{{ message.content + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    ),
)
"""Templates for a vocabulary with these control tokens: a name, the tokens, a template."""
FAMILY_TEMPLATES: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "Llama 2",
        frozenset({"llama", "mistral"}),
        "{{ bos_token }}{% for message in messages %}"
        "{% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}"
        "{% else %}{{ ' ' + message.content + eos_token }}{% endif %}"
        "{% endfor %}",
    ),
    (
        "ChatGLM",
        frozenset({"chatglm"}),
        "{{ '[gMASK]<sop>' }}{% for message in messages %}"
        "{{ '<|' + message.role + '|>\n' + message.content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
)
"""Templates by `model_type`, for families that control tokens do not tell apart."""


@dataclass(frozen=True, slots=True)
class TemplateSources:
    """What a model file states about its chat format."""

    path: Path
    """The file, or a folder; files beside it may describe the model."""
    template: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    """Further templates by name, such as `tool_use`."""
    bos_text: str = ""
    eos_text: str = ""
    control: Collection[str] = ()
    """The texts of the vocabulary's control tokens."""
    family: str = ""
    """The model's `model_type`, where control tokens do not tell."""
    origin: str = "the model file"


@dataclass(frozen=True, slots=True)
class ChatFormat:
    template: Template
    dialect: TagDialect
    with_tools: Template | None = None
    """For requests with tools, if that is another one."""
    origin: str = "the model file"
    """Where the template comes from; for log lines."""
    chosen: bool = False
    """Whether the configuration named the dialect."""
    is_ours: bool = False
    """Whether no place describes the model, and the template is one of our own."""

    @property
    def shows_tools(self) -> bool:
        """Whether the template has a place for tools."""
        return "tools" in (self.with_tools or self.template).source

    def __str__(self) -> str:
        why = "set in the configuration" if self.chosen else f"from the chat template of {self.origin}"
        return f"{self.dialect.name!r} ({why})"


def find_chat_format(
    sources: TemplateSources,
    *,
    template: Path | None = None,
    dialect: str | None = None,
    key: str = "chat_template",
    derive: Callable[[str], TagDialect | None] = lambda template: None,
) -> ChatFormat:
    """The chat format of a model. `template` and `dialect` come from the configuration, and count first.

    `derive` finds the dialect of a template that no family knows.

    Raises: `ConfigError` that names `key` when a template cannot be read, or there is no such dialect.
    """
    named: Mapping[str, str]
    is_ours = False
    if template is not None:
        found, named, origin = read_text(template, key), {}, str(template)
    elif sources.template is not None:
        found, named, origin = sources.template, sources.named, sources.origin
    else:
        described = beside(sources.path)
        is_ours = described is None
        found, named, origin = described or built_in(sources.control, sources.family)
    for_tools = named.get(FOR_TOOLS)
    compiled = partial(Template, bos_token=sources.bos_text, eos_token=sources.eos_text)
    with_tools = compiled(for_tools) if for_tools and for_tools != found else None
    signs = with_tools.source if with_tools else found
    chosen = find_dialect(dialect, key.replace("chat_template", "dialect")) if dialect is not None else None
    return ChatFormat(
        compiled(found),
        chosen.fitted(signs) if chosen else detect(signs, _installed(), derive),
        with_tools,
        origin,
        chosen=dialect is not None,
        is_ours=is_ours,
    )


def find_dialect(name: str, key: str) -> TagDialect:
    """The dialect of a name, ours or one of an installed package. Raises: `ConfigError` that names `key`."""
    known = {name: get(name) for name in names()} | {each.name: each for each in _installed()}
    if name not in known:
        raise ConfigError(f"there is no dialect {name!r}; there are {', '.join(sorted(known))}", key=key)
    return known[name]


def _installed() -> list[TagDialect]:
    """The dialects of other packages."""
    return [entry.load() for entry in entry_points(group="shepherd.dialects")]


def beside(path: Path) -> tuple[str, Mapping[str, str], str] | None:
    """The templates that a file beside the model holds, the plain one first, and the file's name."""
    folder = path if path.is_dir() else path.parent
    for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
        file = folder / name
        if not file.is_file():
            continue
        text = read_text(file, "chat_template")
        named = {"default": text} if file.suffix == ".jinja" else templates_in(text)
        if named:
            return named.get("default", next(iter(named.values()))), named, name
    return None


def templates_in(text: str) -> dict[str, str]:
    """The templates by name that a JSON description of a tokenizer holds; none when it holds none."""
    try:
        described = json.loads(text)
    except ValueError:
        return {}
    held = described.get("chat_template") if isinstance(described, dict) else None
    match held:
        case str():
            return {"default": held}
        case list():
            pairs = ((item.get("name"), item.get("template")) for item in held if isinstance(item, dict))
            return {name: source for name, source in pairs if isinstance(name, str) and isinstance(source, str)}
        case _:
            return {}


def built_in(control: Collection[str], family: str = "") -> tuple[str, Mapping[str, str], str]:
    """A template of our own for the family with these control tokens, or of this name, and a name for it; else
    ChatML."""
    for name, tokens, template in BUILT_IN_TEMPLATES:
        if tokens <= set(control):
            return template, {}, f"Shepherd for {name}, because it has the control tokens of {name}"
    for name, families, template in FAMILY_TEMPLATES:
        if family in families:
            return template, {}, f"Shepherd for {name}, because its model_type is {family}"
    unknown = "ChatML, which the model may not know; set chat_template to a Jinja file if it answers badly"
    return BUILT_IN_TEMPLATES[0][2], {}, unknown


def read_text(path: Path, key: str) -> str:
    """The file's text. Raises: `ConfigError`."""
    try:
        return text_of(read_within(path)).replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read as a chat template: {why}", key=key) from error
