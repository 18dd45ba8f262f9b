"""`[aliases]`: what a name of one's own stands for, wherever the configuration names a model."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_trust import asked_about

from shepherd import config
from shepherd.app.directory.names import Names
from shepherd.backends.router import Route, Router
from shepherd.config import Config
from shepherd.core import ConfigError, InvalidRequest, UnknownModel
from shepherd.models.copies import FILE, Copies

Load = Callable[..., Config]
TWO = '[models.big]\npath = "big.gguf"\n[models.small]\npath = "small.gguf"\n'
GPT = '[providers.openai]\ntype = "openai"\napi_key = "k"\n'


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def run(toml: str, *, user: str = "", flags: Mapping[str, Any] | None = None, **env: str) -> Config:
        for folder, name, text in ((tmp_path, "shepherd.toml", toml), (tmp_path / "user", "config.toml", user)):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "SHEPHERD_TRUST": "1"}
        return config.load(flags=flags or {}, env=home | env, cwd=tmp_path, user_dir=tmp_path / "user")

    return run


def default(made: Config) -> str | None:
    rule = next(each for each in made.routes if each.takes_all)
    return rule.cache or rule.provider


def test_a_chain_is_followed_to_its_end(load: Load) -> None:
    made = load(TWO + '[aliases]\nfast = "Daily"\ndaily = "small"\nclever = "big"\n')
    assert made.aliases == {"fast": "small", "daily": "small", "clever": "big"}
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        ('a = "b"\nb = "c"\nc = "A"', r"aliases\.a: stands for itself in the end \(a -> b -> c -> A\)"),
        ('a = "a"', r"\(a -> a\); let one of these name a model"),
        ('x = "a"\na = "b"\nb = "a"', r"aliases\.\w: stands for itself .*a -> b -> a"),
        ('"two words" = "big"', "'two words' cannot be another name of a model: .* without spaces"),
        ('"hf:a/b" = "big"', "'hf:a/b' cannot be another name"),
        ('embedded = "big"', "'embedded' cannot be another name"),
        ("fast = 3", r"aliases\.fast: got 3, expected a text"),
        ('fast = ""', r"aliases\.fast: got .*, expected a text that is not empty"),
    ],
)
def test_what_can_be_no_alias_is_refused_with_its_names(load: Load, aliases: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(f"{TWO}[aliases]\n{aliases}\n")


def test_a_list_is_no_table_of_aliases(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"aliases: got .*, expected a table"):
        load('aliases = ["a"]')


def test_each_alias_comes_from_the_strongest_layer_that_has_it(load: Load) -> None:
    user = TWO + '[aliases]\nfast = "big"\nclever = "big"\n'
    made = load('[aliases]\nfast = "small"\n', user=user)
    assert made.aliases == {"fast": "small", "clever": "big"}


def test_an_alias_of_a_file_is_a_model_of_that_name_loaded_on_demand(load: Load, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "near.gguf").touch()
    user = '[aliases]\ncoder = "hf:owner/repo:Q4_K_M"\nnear = "near.gguf"\nsame = "hf:owner/repo:Q4_K_M"\n'
    made = load("", user=user)
    assert [(each.name, each.path, each.load) for each in made.models] == [
        ("lamb", "embedded", "start"),
        ("coder", "hf:owner/repo:Q4_K_M", "demand"),
        ("near", str(tmp_path / "user" / "near.gguf"), "demand"),
    ]
    assert {each.model for each in made.caches} == {"lamb", "coder", "near"}
    assert made.aliases == {"same": "coder"}
    assert default(made) == "main"


def test_an_alias_of_a_file_takes_no_requests_of_a_provider(load: Load) -> None:
    made = load(f'model = "openai/gpt-5"\n{GPT}[aliases]\nmine = "hf:owner/repo"\n')
    assert default(made) == "openai"
    assert [(each.name, each.load) for each in made.models] == [("mine", "demand")]


@pytest.mark.parametrize(
    ("word", "target"),
    [("fast", "small"), ("FAST", "small"), ("clever", "big"), ("gpt", "openai"), ("far", "openai")],
)
def test_the_model_of_a_command_line_may_be_an_alias(load: Load, word: str, target: str) -> None:
    aliases = '[aliases]\nfast = "small"\nclever = "fast2"\nfast2 = "big"\ngpt = "openai/gpt-5"\nfar = "openai"\n'
    made = load(TWO + GPT + aliases, flags={"model": word})
    cache = default(made)
    assert next((each.model for each in made.caches if each.name == cache), cache) == target
    if word == "gpt":
        assert made.providers[0].model == "gpt-5"


def test_the_tables_name_aliases_and_an_entry_counts_before_one(load: Load) -> None:
    made = load(
        f'{TWO}{GPT}[aliases]\nfast = "small"\nsmall = "big"\nfar = "openai"\ncoder = "hf:a/b"\n'
        '[caches.one]\nmodel = "small"\n[caches.two]\nmodel = "fast"\n[caches.three]\nmodel = "coder"\n'
        '[[routes]]\nmatch = "x"\ncache = "coder"\nfallback = ["far"]\n[[routes]]\nmatch = "*"\ncache = "one"\n'
    )
    assert {each.name: each.model for each in made.caches} == {"one": "small", "two": "big", "three": "coder"}
    assert [(each.cache, each.fallback) for each in made.routes] == [("three", ("openai",)), ("one", ())]
    assert "aliases.small hides what has this name in the tables" in " ".join(made.warnings)


def test_the_vectors_of_the_memory_may_come_from_an_alias(load: Load, tmp_path: Path) -> None:
    files = f'[models.embed]\npath = "{tmp_path}/embed.gguf"\n'
    for word in ("vectors", "embed"):
        made = load(f'{files}[aliases]\nvectors = "embed"\n[memory]\nembedding_model = "{word}"\n')
        assert made.memory.embedding_model == f"{tmp_path}/embed.gguf"
    made = load(f'{GPT}[aliases]\nv = "openai/text-embedding-3-small"\n[memory]\nembedding_model = "v"\n')
    assert made.embedding_provider == ("openai", "text-embedding-3-small")


def test_the_reranker_of_the_memory_may_be_an_alias(load: Load, tmp_path: Path) -> None:
    files = f'[models.order]\npath = "{tmp_path}/order.gguf"\n'
    aliases = f'[aliases]\nfirst = "order"\nfile = "{tmp_path}/other.gguf"\n'
    for word, meant in (("first", "order"), ("order", "order"), ("file", f"{tmp_path}/other.gguf")):
        assert load(f'{files}{aliases}[memory]\nreranker = "{word}"\n').memory.reranker == meant


def test_an_alias_of_a_providers_model_has_a_route_where_the_routes_are_made(load: Load) -> None:
    made = load('[aliases]\ngpt = "openai/gpt-5"\nsonnet = "claude-sonnet-4-5"\n', OPENAI_API_KEY="k")
    assert made.aliases == {"gpt": "openai/gpt-5", "sonnet": "anthropic/claude-sonnet-4-5"}
    assert [(each.model, each.provider) for each in made.routes if each.provider] == [
        ("gpt", "openai"),
        ("sonnet", "anthropic"),
    ]
    assert default(made) == "main"


def test_a_provider_that_always_answers_with_another_model_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"aliases\.gpt: 'openai' always answers with its model 'a', not with 'b'"):
        load('[providers.openai]\ntype = "openai"\nmodel = "a"\n[aliases]\ngpt = "openai/b"\n')


def test_a_route_to_one_model_of_a_provider_says_how_it_is_done(load: Load) -> None:
    route = '[[routes]]\nmatch = "*"\ncache = "big"\nfallback = ["gpt"]\n'
    with pytest.raises(ConfigError, match=r"'gpt' stands for a model of the provider 'openai'.*\[providers\.NAME\]"):
        load(f'{TWO}{GPT}[aliases]\ngpt = "openai/gpt-5"\n{route}')


def test_routes_that_lead_an_alias_elsewhere_are_a_warning(load: Load) -> None:
    route = '[[routes]]\nmatch = "*"\ncache = "big"\n'
    made = load(f'{TWO}[aliases]\nfast = "small"\nclever = "big"\n{route}')
    (warning,) = made.warnings
    assert "requests for the alias 'fast' go to 'big', not to 'small'" in warning
    assert load(f'{TWO}[aliases]\nfast = "small"\n[[routes]]\nmodel = "small"\ncache = "small"\n{route}').warnings == ()


def test_a_word_that_is_nearly_a_model_is_a_warning(load: Load) -> None:
    made = load(TWO + '[aliases]\nfast = "smal"\n')
    assert "no table has 'smal' (did you mean 'small'?)" in " ".join(made.warnings)


def test_what_is_shown_is_the_same_again(load: Load) -> None:
    made = load(f'{TWO}{GPT}[aliases]\nfast = "small"\n"a.b" = "openai/gpt-5"\ncoder = "hf:a/b"\n')
    text = config.to_toml(made)
    assert tomllib.loads(text)["aliases"] == {"fast": "small", "a.b": "openai/gpt-5"}
    assert load(text).aliases == made.aliases


@pytest.mark.parametrize(
    ("target", "needs_trust"),
    [
        *(("small", False), ("hf:a/b", False), ("openai/gpt-5", True), ("OpenAI", True), ("claude-opus-4-5", True)),
        *(("far", True), ("Far/x", True), ("theirs", True)),
    ],
)
def test_an_alias_that_leads_to_a_provider_needs_trust(tmp_path: Path, target: str, needs_trust: bool) -> None:
    user = '[aliases]\ntheirs = "far"\n[providers.far]\ntype = "openai_compat"\nbase_url = "https://far.example"\n'
    text = f'[aliases]\nmine = "{target}"\n'
    if needs_trust:
        assert asked_about(tmp_path, text, user) == [f"aliases.mine may send prompts to a provider: {target}"]
    else:
        assert asked_about(tmp_path, text, user) == []


def test_a_rule_takes_a_request_by_its_name_and_by_what_that_stands_for() -> None:
    routes = [Route("a", model="fast"), Route("b", model="qwen"), Route("c", match="gpt-*")]
    router = Router(routes, meaning=lambda name: {"fast": "qwen", "daily": "qwen", "g": "gpt-5"}.get(name, name))
    assert [router.choose(name).target for name in ("fast", "daily", "qwen", "g")] == ["a", "b", "b", "c"]
    with pytest.raises(UnknownModel):
        router.choose("other")


# -- names of clients -------------------------------------------------------------------------------------------------


def test_names_of_clients_count_behind_those_of_the_configuration(load: Load, tmp_path: Path) -> None:
    made = load(TWO + '[aliases]\nfast = "small"\n')
    names = Names(made, {"SHEPHERD_MODELS": str(tmp_path / "m")})
    names.copy("fast", "mine")
    for taken in ("big", "FAST", "small:latest"):
        with pytest.raises(InvalidRequest, match="is a name of the configuration"):
            names.copy("big", taken)
    with pytest.raises(InvalidRequest, match="cannot be another name"):
        names.copy("big", "a b")
    again = Names(made, {"SHEPHERD_MODELS": str(tmp_path / "m")})
    assert again.all() == {"fast": "small", "mine": "small"}
    assert [again.meaning(name) for name in ("Mine:latest", "fast", "big", "x")] == ["small", "small", "big", "x"]
    assert names.forget("MINE")
    assert not again.forget("mine")
    assert again.meaning("mine") == "mine"


def test_an_alias_of_the_configuration_hides_a_clients_name(load: Load, tmp_path: Path) -> None:
    folder = {"SHEPHERD_MODELS": str(tmp_path / "m")}
    Names(load(TWO), folder).copy("big", "mine")
    made = load(TWO + '[aliases]\nmine = "small"\n')
    assert Names(made, folder).all() == {"mine": "small"}
    assert Names(made, folder).meaning("mine") == "small"


def test_a_clients_name_is_a_model_of_the_command_line_and_never_stops_a_start(load: Load, tmp_path: Path) -> None:
    folder = str(tmp_path / "m")
    Copies(Path(folder)).change({"mine": "small", "loop": "big", "lost": "nowhere"})
    assert default(load(TWO, flags={"model": "mine"}, SHEPHERD_MODELS=folder)) == "small"
    assert load(TWO + '[aliases]\nclever = "loop"\n', SHEPHERD_MODELS=folder).aliases == {"clever": "big"}
    Copies(Path(folder)).change({"big": "loop2", "loop2": "big"})
    assert load(TWO, SHEPHERD_MODELS=folder).aliases == {}
    Copies(Path(folder)).change({"round": "clever"})
    made = load(TWO + '[aliases]\nclever = "round"\n', SHEPHERD_MODELS=folder)
    assert [each.path for each in made.models if each.name == "clever"] == ["round"]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"names": 3}', b"[" * 100_000])
def test_a_damaged_file_of_names_has_none_and_can_be_written_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    copies = Copies(tmp_path)
    assert copies.read() == {}
    copies.change({"mine": "small"})
    assert copies.read() == Copies(tmp_path).read() == {"mine": "small"}


def test_names_of_another_process_are_seen_at_once(tmp_path: Path) -> None:
    ours, theirs = Copies(tmp_path), Copies(tmp_path)
    for word in ("a", "b", "c"):
        theirs.change({"mine": word})
        assert ours.read() == {"mine": word}
