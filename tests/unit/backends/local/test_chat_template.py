"""Where a chat template and a dialect come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shepherd.backends.local.chat_template import (
    BUILT_IN_TEMPLATES,
    FAMILY_TEMPLATES,
    TemplateSources,
    find_chat_format,
)
from shepherd.core import ConfigError, Message, ToolSpec

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
HERMES = PLAIN + "{% if tools %}<tool_call>{{ tools }}</tool_call>{% endif %}"


def test_the_model_files_own_template_counts_and_decides_the_dialect(tmp_path: Path) -> None:
    speech = find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES))
    assert (speech.template.source, speech.dialect.name, speech.with_tools) == (HERMES, "hermes", None)
    assert str(speech) == "'hermes' (from the chat template of the model file)"


def test_a_second_template_for_tools_is_kept_and_decides_the_dialect(tmp_path: Path) -> None:
    speech = find_chat_format(TemplateSources(tmp_path / "m.gguf", PLAIN, {"tool_use": HERMES, "rag": "no"}))
    assert speech.template.source == PLAIN
    assert speech.with_tools is not None
    assert speech.with_tools.source == HERMES
    assert speech.dialect.name == "hermes"


def test_the_configuration_counts_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(PLAIN)
    sources = TemplateSources(tmp_path / "m.gguf", HERMES, {"tool_use": HERMES})
    speech = find_chat_format(sources, template=tmp_path / "own.jinja", dialect="hermes")
    assert (speech.template.source, speech.with_tools, speech.dialect.name) == (PLAIN, None, "hermes")
    assert str(speech) == "'hermes' (set in the configuration)"


@pytest.mark.parametrize(
    ("name", "text", "tools"),
    [
        ("chat_template.jinja", HERMES, None),
        ("chat_template.json", json.dumps({"chat_template": HERMES}), None),
        ("tokenizer_config.json", json.dumps({"chat_template": HERMES, "bos_token": "x"}), None),
        (
            "tokenizer_config.json",
            json.dumps(
                {"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": HERMES}]}
            ),
            "T",
        ),
    ],
)
def test_without_one_in_the_file_the_files_beside_it_are_asked(
    name: str, text: str, tools: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    speech = find_chat_format(TemplateSources(tmp_path / "m.gguf"))
    assert speech.template.source == HERMES
    assert (speech.with_tools.source if speech.with_tools else None) == tools
    assert (speech.origin, speech.is_ours) == (name, False)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"chat_template": 3}', '{"chat_template": [3]}'])
def test_what_holds_no_template_is_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(text)
    speech = find_chat_format(TemplateSources(tmp_path / "m.gguf"))
    assert speech.template.source == BUILT_IN_TEMPLATES[0][2]
    assert speech.origin.startswith("ChatML, which the model may not know; set chat_template")
    assert speech.is_ours


@pytest.mark.parametrize(("name", "tokens", "template"), BUILT_IN_TEMPLATES)
def test_control_tokens_give_a_family_away(name: str, tokens: frozenset[str], template: str, tmp_path: Path) -> None:
    speech = find_chat_format(TemplateSources(tmp_path / "m.gguf", control=[*tokens, "<pad>"]))
    assert speech.template.source == template
    assert name in speech.origin
    talk = [Message.system("Be kind."), Message.user("Hi"), Message.assistant("Hello"), Message.user("Bye")]
    text = "".join(piece.text for piece in speech.template.render(talk, tools=[ToolSpec("t")]))
    assert [text.count(said) for said in ("Be kind.", "Hi", "Hello", "Bye")] == [1, 1, 1, 1]
    assert "None" not in text


@pytest.mark.parametrize(("name", "families", "template"), FAMILY_TEMPLATES)
def test_the_model_type_tells_a_family_without_control_tokens(
    name: str, families: frozenset[str], template: str, tmp_path: Path
) -> None:
    for family in families:
        speech = find_chat_format(TemplateSources(tmp_path, bos_text="<s>", eos_text="</s>", family=family))
        assert (speech.template.source, speech.is_ours) == (template, True)
        assert speech.origin == f"Shepherd for {name}, because its model_type is {family}"
        talk = [Message.system("Be kind."), Message.user("Hi"), Message.assistant("Hello"), Message.user("Bye")]
        text = "".join(piece.text for piece in speech.template.render(talk, tools=[ToolSpec("t")]))
        assert [text.count(said) for said in ("Be kind.", "Hi", "Hello", "Bye")] == [1, 1, 1, 1]


def test_llama_3_is_told_from_llama_2_by_its_control_tokens(tmp_path: Path) -> None:
    tokens = BUILT_IN_TEMPLATES[1][1]
    speech = find_chat_format(TemplateSources(tmp_path, control=tokens, family="llama"))
    assert "<|start_header_id|>" in speech.template.source
    assert "[INST]" in find_chat_format(TemplateSources(tmp_path, family="llama")).template.source


def test_a_dialect_that_there_is_none_of_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no dialect 'klingon'.*hermes.*plain") as caught:
        find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES), dialect="klingon", key="models.m.chat_template")
    assert caught.value.key == "models.m.dialect"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.jinja"):
        find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES), template=tmp_path / "missing.jinja")


def test_a_family_of_another_package_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "klingon-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: klingon\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[shepherd.dialects]\nklingon = klingon_family:KLINGON\n")
    (package.parent / "klingon_family.py").write_text(
        "from shepherd.dialects.parse.markup import Markup\n"
        "from shepherd.dialects.parse.tags import TagDialect\n"
        "KLINGON = TagDialect('klingon', Markup(), marks=('<tool_call>', 'batlh'))\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    assert find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES)).dialect.name == "hermes"
    assert find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES + "batlh")).dialect.name == "klingon"
    assert find_chat_format(TemplateSources(tmp_path / "m.gguf", HERMES), dialect="klingon").dialect.name == "klingon"
