"""The configuration from files, environment and flags; the examples of docs/config.md are loaded as they stand."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.places import ROOT

from shepherd import config
from shepherd.backends.router import Route
from shepherd.config import Config, RouteConfig
from shepherd.config.dead_routes import covers
from shepherd.config.kinds import SAMPLING, Kind, Table
from shepherd.config.schema import PROVIDER_TYPES, SCHEMA
from shepherd.core import ConfigError, Sampling

PAGE = (ROOT / "docs" / "config.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```(toml|json)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

Load = Callable[..., Config]
TRUSTED = {"SHEPHERD_TRUST": "1"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a project file and a user file in folders of their own, with nothing else around."""

    def run(
        toml: str = "", *, user: str = "", flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
    ) -> Config:
        for folder, name, text in ((tmp_path, "shepherd.toml", toml), (tmp_path / "user", "config.toml", user)):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        home = {"HOME": str(tmp_path / "home"), **TRUSTED}
        return config.load(flags=flags or {}, env=home | dict(env or {}), cwd=tmp_path, user_dir=tmp_path / "user")

    return run


TWO = """
[models.big]
path = "big.gguf"
gpu_layers = 10
[models.small]
path = "small.gguf"
[caches.main]
model = "big"
n_ctx = 4096
[caches.fast]
model = "small"
[[routes]]
match = "*haiku*"
cache = "fast"
[[routes]]
match = "*"
cache = "main"
"""
CLOUD = """
[providers.claude]
type = "anthropic"
model = "claude-sonnet-4-5"
[[routes]]
match = "*"
provider = "claude"
"""


def model(made: Config, name: str) -> config.ModelConfig:
    return next(each for each in made.models if each.name == name)


def cache(made: Config, name: str) -> config.CacheConfig:
    return next(each for each in made.caches if each.name == name)


# Nothing, and one model


def test_without_any_configuration_the_embedded_model_runs(load: Load) -> None:
    made = load()
    assert made == Config(
        models=(config.ModelConfig("lamb", "embedded", sampling=Sampling(temperature=0)),),
        caches=(config.CacheConfig("main", "lamb"),),
        routes=(RouteConfig(match="*", cache="main"),),
    )


@pytest.mark.parametrize("name", ["model", "model_path"])
@pytest.mark.parametrize("layer", ["file", "environment", "flags"])
def test_one_model_is_short_for_an_entry_a_cache_and_a_route(load: Load, tmp_path: Path, layer: str, name: str) -> None:
    spec = "sub/qwen3-8b.gguf"
    made = {
        "file": lambda: load(f'{name} = "{spec}"'),
        "environment": lambda: load(env={"MODEL_PATH": spec}),
        "flags": lambda: load(flags={name: spec}),
    }[layer]()
    assert made.models == (config.ModelConfig("qwen3-8b", str(tmp_path / spec)),)
    assert made.caches == (config.CacheConfig("main", "qwen3-8b"),)
    assert made.routes == (RouteConfig(match="*", cache="main"),)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("embedded", "lamb"),
        ("/m/llama-3.1-70b.gguf", "llama-3.1-70b"),
        ("/m/big-00001-of-00003.gguf", "big"),
        ("/m/folder-3.1/", "folder-3.1"),
        ("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen3-8B-GGUF:Q4_K_M"),
        ("ollama:llama3.2:1b", "llama3.2:1b"),
        ("qwen3", "qwen3"),
        ("/", "model"),
    ],
)
def test_a_model_is_named_like_its_file(load: Load, spec: str, name: str) -> None:
    assert [each.name for each in load(flags={"model": spec}).models] == [name]


def test_specs_and_bare_names_are_left_to_the_catalogue(load: Load) -> None:
    for spec in ("hf:o/r:Q4_K_M", "ollama:a/b:c", "qwen3-8b", "embedded"):
        assert load(flags={"model": spec}).models[0].path == spec


def test_a_relative_path_starts_where_it_is_written(load: Load, tmp_path: Path) -> None:
    for place in ("user/a.gguf", "b.gguf", "models/c.gguf", "models/dir"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert load(user='model = "a.gguf"').models[0].path == str(tmp_path / "user/a.gguf")
    assert load(user='model = "b.gguf"').models[0].path == str(tmp_path / "b.gguf")
    assert load('model = "c.gguf"').models[0].path == str(tmp_path / "models/c.gguf")
    assert load('model = "dir"').models[0].path == str(tmp_path / "models/dir")
    assert load('model = "~/d.gguf"').models[0].path == str(tmp_path / "home/d.gguf")
    assert load(user='[memory]\ndatabase_path = "m.db"').memory.database_path == str(tmp_path / "user/m.db")
    assert load(env={"RAG_DB_PATH": "m.db"}).memory.database_path == str(tmp_path / "m.db")


# Layers


def test_flags_beat_environment_beats_project_beats_user(load: Load) -> None:
    layers: dict[str, Any] = {
        "user": "[server]\nport = 1\nhost = 'user'",
        "toml": "[server]\nport = 2",
        "env": {"SHEPHERD_PORT": "3"},
        "flags": {"port": 4},
    }
    for name, port in (("flags", 4), ("env", 3), ("toml", 2), ("user", 1)):
        assert load(**layers).server.port == port
        del layers[name]
    assert load(user="[server]\nport = 1\nhost = 'user'", toml="[server]\nport = 2").server.host == "user"


def test_a_named_file_takes_the_place_of_the_project_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"max_tokens": 7}')
    (tmp_path / "shepherd.toml").write_text("reserve = 5")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text("system = 'user'")
    where: dict[str, Any] = {"cwd": tmp_path, "user_dir": tmp_path / "user"}
    by_flag = config.load(env={}, file=Path("other.json"), **where)
    by_variable = config.load(env={"SHEPHERD_CONFIG": "other.json"}, **where)
    assert by_flag == by_variable
    assert (by_flag.max_tokens, by_flag.reserve, by_flag.system) == (7, None, "user")
    with pytest.raises(ConfigError, match=r"none\.toml: this configuration file does not exist"):
        config.load(env={}, file=tmp_path / "none.toml", **where)
    assert config.load(env={}, read_files=False, **where).system is None


def test_toml_wins_over_json_beside_it_and_says_so(load: Load, tmp_path: Path) -> None:
    (tmp_path / "shepherd.json").write_text('{"max_tokens": 1}')
    made = load("max_tokens = 2")
    assert made.max_tokens == 2
    assert made.warnings == (f"{tmp_path}/shepherd.json: ignored, because shepherd.toml is beside it",)


def test_files_are_looked_for_in_a_stated_order(tmp_path: Path) -> None:
    assert [path.relative_to(tmp_path).as_posix() for path in config.search_paths(tmp_path / "p", tmp_path / "u")] == [
        "p/shepherd.toml", "p/shepherd.json", "u/config.toml", "u/shepherd.toml", "u/shepherd.json",
    ]  # fmt: skip


def test_one_folder_for_user_and_project_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text("reserve = 1")
    made = config.load(env={}, cwd=tmp_path, user_dir=tmp_path)
    assert [(source.kind, source.keys) for source in made.sources] == [("project file", ("reserve",))]


def test_every_layer_that_spoke_is_a_source(load: Load, tmp_path: Path) -> None:
    made = load("reserve = 1", user="[rag]\nrecall = true", env={"GROK_API_KEY": "x"}, flags={"thinking": False})
    assert made.sources == (
        config.Source("user file", ("rag.recall",), tmp_path / "user/config.toml"),
        config.Source("project file", ("reserve",), tmp_path / "shepherd.toml"),
        config.Source("environment", ("GROK_API_KEY",)),
        config.Source("flags", ("--nothink",)),
    )


@pytest.mark.parametrize(
    ("variable", "text", "dotted", "value"),
    [
        ("SHEPHERD_CONTEXT_SIZE", "2048", "caches.0.n_ctx", 2048),
        ("SHEPHERD_THREADS", "3", "models.0.n_threads", 3),
        ("SHEPHERD_SYSTEM", "", "system", ""),
        ("SHEPHERD_HOST", "0.0.0.0", "server.host", "0.0.0.0"),
        ("SHEPHERD_PORT", "0", "server.port", 0),
        ("SHEPHERD_API_KEY", "a, b", "server.api_keys", ("a", "b")),
        ("SHEPHERD_API_KEY", "", "server.api_keys", ()),
        ("RAG_MAX_SIZE", "99", "memory.max_size_bytes", 99),
        ("OPENAI_API_KEY", "k", "providers.0.api_key", "k"),
        ("GOOGLE_API_KEY", "k", "providers.0.type", "gemini"),
        ("SHEPHERD_BACKEND", "tensorrt", "backend", "tensorrt"),
        ("SHEPHERD_PORT", "", "server.port", 8000),
    ],
)
def test_a_variable_reaches_its_key(load: Load, variable: str, text: str, dotted: str, value: Any) -> None:
    found: Any = load(env={variable: text})
    for part in dotted.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    assert found == value


def test_every_flag_of_the_command_line_reaches_its_key(load: Load) -> None:
    made = load(
        flags={
            "model": "m.gguf", "backend": "llamacpp", "context_size": 1, "gpu_layers": 2, "host": "h", "port": 3,
            "threads": 4, "batch": 5, "system": "", "thinking": False, "overflow": "evict", "temperature": 0.5,
            "top_p": 0.6, "top_k": 7, "min_p": 0.8, "seed": 9, "max_tokens": 10, "flash_attn": True,
            "cache_type_k": "q8_0", "cache_type_v": "q4_0", "api_keys": ("k",), "enable_tools": ("a",),
            "rpc_servers": ("box:50052",),
            "disable_tools": ("b",), "reserve": 11, "show_thinking": None,
        }
    )  # fmt: skip
    (first,) = made.models
    assert (first.gpu_layers, first.n_threads, first.n_batch, first.flash_attn) == (2, 4, 5, True)
    assert (first.cache_type_k, first.cache_type_v) == ("q8_0", "q4_0")
    assert first.rpc_servers == ("box:50052",)
    assert first.sampling == Sampling(temperature=0.5, top_p=0.6, top_k=7, min_p=0.8, seed=9)
    assert made.caches == (config.CacheConfig("main", "m", 1, overflow="evict"),)
    assert (made.server.host, made.server.port, made.server.api_keys) == ("h", 3, ("k",))
    assert (made.tools.enabled, made.tools.disabled) == (("a",), ("b",))
    assert (made.system, made.thinking, made.show_thinking, made.max_tokens, made.reserve) == ("", False, False, 10, 11)


# Shorthands over tables


def test_a_shorthand_fills_what_tables_leave_out_and_a_stronger_layer_changes_the_default_only(load: Load) -> None:
    made = load(TWO, flags={"context_size": 1000, "gpu_layers": 0, "threads": 2})
    assert (cache(made, "main").n_ctx, cache(made, "fast").n_ctx) == (1000, 1000)
    assert (model(made, "big").gpu_layers, model(made, "small").gpu_layers) == (0, 0)
    same_layer = load("context_size = 1000\ngpu_layers = 5\n" + TWO)
    assert (cache(same_layer, "main").n_ctx, cache(same_layer, "fast").n_ctx) == (4096, 1000)
    assert (model(same_layer, "big").gpu_layers, model(same_layer, "small").gpu_layers) == (10, 5)
    other = load(TWO.replace('model = "small"', 'model = "small"\nn_ctx = 77'), flags={"context_size": 1000})
    assert (cache(other, "main").n_ctx, cache(other, "fast").n_ctx) == (1000, 77)


def test_sampling_of_a_file_is_a_default_and_that_of_a_flag_an_order(load: Load) -> None:
    toml = TWO + "[models.big.sampling]\ntemperature = 0.9\n[sampling]\ntemperature = 0.1\ntop_k = 5\n"
    made = load(toml)
    assert model(made, "big").sampling == Sampling(temperature=0.9, top_k=5)
    assert model(made, "small").sampling == Sampling(temperature=0.1, top_k=5)
    ordered = load(toml, flags={"temperature": 0})
    assert (model(ordered, "big").sampling.temperature, model(ordered, "small").sampling.temperature) == (0, 0)


def test_eviction_on_the_command_line_wins_over_the_rule_of_the_default_route(load: Load) -> None:
    made = load(TWO + 'overflow = "error"\n', flags={"overflow": "evict"})
    assert cache(made, "main").overflow == "evict"
    assert made.routes[-1].overflow is None


@pytest.mark.parametrize("how", ["environment", "flags"])
def test_another_model_is_put_into_the_default_cache(load: Load, tmp_path: Path, how: str) -> None:
    made = load(TWO, flags={"model": "new.gguf"}) if how == "flags" else load(TWO, env={"MODEL_PATH": "new.gguf"})
    assert made.caches == (
        config.CacheConfig("main", "new", 4096),
        config.CacheConfig("fast", "small"),
        config.CacheConfig("big", "big"),
    )
    assert model(made, "big").load == "demand"
    assert made.models[0] == config.ModelConfig("new", str(tmp_path / "new.gguf"))
    assert made.routes[-1] == RouteConfig(match="*", cache="main")


def test_a_flag_replaces_the_model_of_all_caches_that_shared_the_default_ones(load: Load) -> None:
    toml = """
[models.big]
path = "big.gguf"
[models.other]
path = "other.gguf"
[caches.main]
model = "big"
[caches.fast]
model = "big"
[caches.apart]
model = "other"
"""
    made = load(toml, flags={"model": "new.gguf"})
    models = {cache.name: cache.model for cache in made.caches}
    assert models == {"main": "new", "fast": "new", "apart": "other", "big": "big"}  # the last: on demand


def test_a_known_model_chooses_the_cache_that_is_on_it(load: Load) -> None:
    made = load(TWO, flags={"model": "small"})
    assert [each.name for each in made.caches] == ["fast", "main"]
    assert made.routes[-1] == RouteConfig(match="*", cache="fast")
    assert len(made.models) == 2


def test_a_second_model_of_the_same_name_gets_another_name(load: Load) -> None:
    made = load(TWO, flags={"model": "/elsewhere/big.gguf"})
    assert made.models[0] == config.ModelConfig("big-2", "/elsewhere/big.gguf")


def test_models_without_caches_get_one_each_and_are_asked_for_by_name(load: Load) -> None:
    made = load("[models.b]\npath = 'b.gguf'\n[models.a]\npath = 'a.gguf'")
    assert [(each.name, each.model) for each in made.caches] == [("b", "b"), ("a", "a")]
    assert set(made.routes[:-1]) == {RouteConfig(model="a", cache="a"), RouteConfig(model="b", cache="b")}
    assert made.routes[-1] == RouteConfig(match="*", cache="b")


def test_the_caches_of_the_stronger_file_come_first(load: Load) -> None:
    made = load("[models.project]\npath = 'p.gguf'", user="[models.user]\npath = 'u.gguf'")
    assert [each.name for each in made.caches] == ["project", "user"]


def test_a_cache_without_a_model_takes_the_only_one(load: Load) -> None:
    assert load("model = 'm.gguf'\n[caches.long]\nn_ctx = 9").caches == (config.CacheConfig("long", "m", 9),)
    assert load("[caches.long]\nn_ctx = 9").caches == (config.CacheConfig("long", "lamb", 9),)
    with pytest.raises(ConfigError, match=r"caches\.c: has no model; known models: a, b"):
        load("[models.a]\npath='a.gguf'\n[models.b]\npath='b.gguf'\n[caches.c]\nn_ctx=1")


# The KV cache


def test_what_is_not_said_of_the_kv_cache_has_its_default(load: Load) -> None:
    made = load()
    assert made.kv == config.KvConfig(
        ram_bytes=1_073_741_824,
        checkpoint_bytes=1_073_741_824,
        disk=False,
        disk_bytes=10_737_418_240,
        folder=None,
        reuse_tail=False,
        swa_full=True,
        low_water=None,
        n_positions=None,
        stall_s=60.0,
    )
    (only,) = made.caches
    assert (only.sequences, only.queue) == (4, 64)
    # Not said: a conversation of our own evicts, a client that resends its history gets an error.
    assert only.overflow is None


KV = """
[caches.main]
sequences = 64
queue = 10000
[kv]
ram_bytes = 0
checkpoint_bytes = 2
disk = true
disk_bytes = 1
folder = "warm"
reuse_tail = true
swa_full = false
low_water = 0.1
n_positions = 1
stall_s = 5
system_changes = 0
"""


def test_everything_about_the_kv_cache_can_be_said(load: Load, tmp_path: Path) -> None:
    made = load(KV)
    assert made.kv == config.KvConfig(0, 2, True, 1, str(tmp_path / "warm"), True, False, 0.1, 1, 5.0, 0)
    assert made.caches == (config.CacheConfig("main", "lamb", sequences=64, queue=10_000),)
    assert made.warnings == ()


def test_a_repeatable_cache_computes_one_request_at_a_time(load: Load) -> None:
    (cache,) = load("[caches.main]\nrepeatable = true").caches
    assert cache == config.CacheConfig("main", "lamb", repeatable=True, sequences=1)
    assert load("[caches.main]\nrepeatable = true\nsequences = 1").caches == (cache,)
    (cache,) = load("[caches.main]\nrepeatable = false\nsequences = 8").caches
    assert cache.sequences == 8


def test_a_stronger_layer_changes_one_key_of_the_kv_cache(load: Load, tmp_path: Path) -> None:
    made = load("[kv]\nlow_water = 0.5", user='[kv]\nlow_water = 0.9\ndisk = true\nfolder = "~/warm"')
    assert made.kv == config.KvConfig(low_water=0.5, disk=True, folder=str(tmp_path / "home/warm"))


@pytest.mark.parametrize("layer", ["file", "cache", "flags"])
def test_eviction_that_is_asked_for_reaches_the_cache(load: Load, layer: str) -> None:
    made = {
        "file": lambda: load('overflow = "evict"'),
        "cache": lambda: load('[caches.main]\noverflow = "evict"'),
        "flags": lambda: load(flags={"overflow": "evict"}),
    }[layer]()
    assert [each.overflow for each in made.caches] == ["evict"]


# Providers and keys


def test_a_cloud_backend_is_a_provider_and_the_default_route(load: Load) -> None:
    made = load(env={"ANTHROPIC_API_KEY": "k"}, flags={"backend": "anthropic", "model": "claude-x"})
    assert made.backend == "anthropic"
    assert made.providers == (config.ProviderConfig("anthropic", "anthropic", "claude-x", api_key="k"),)
    assert made.routes == (RouteConfig(match="*", provider="anthropic"),)
    assert not made.caches
    assert not made.models


def test_a_model_path_in_the_environment_is_no_name_for_a_cloud_model(load: Load) -> None:
    made = load(env={"MODEL_PATH": "x.gguf", "OPENAI_API_KEY": "k"}, flags={"backend": "openai"})
    assert made.providers[0].model is None


def test_a_local_file_on_the_command_line_leaves_the_cloud(load: Load) -> None:
    for toml in ('backend = "openai"', CLOUD):
        made = load(toml, flags={"model": "x.gguf"})
        assert made.backend == "llamacpp"
        assert made.routes[-1] == RouteConfig(match="*", cache="main")


def test_a_provider_can_be_chosen_by_its_name(load: Load) -> None:
    made = load(TWO + CLOUD.partition("[[routes]]")[0], flags={"model": "claude"})
    assert made.routes[-1] == RouteConfig(match="*", provider="claude")
    assert made.backend == "anthropic"


def test_a_provider_entry_without_local_models_starts_no_local_model(load: Load) -> None:
    made = load(CLOUD)
    assert not made.models
    assert not made.caches
    unrouted = load(CLOUD.partition("[[routes]]")[0])
    assert unrouted.routes == (RouteConfig(match="*", provider="claude"),)


def test_made_up_names_avoid_those_that_are_taken(load: Load) -> None:
    made = load("[providers.main]\ntype = 'anthropic'", flags={"model": "m.gguf"})
    assert made.caches == (config.CacheConfig("main-2", "m"),)
    made = load("[caches.openai]\nn_ctx = 1", flags={"backend": "openai"})
    assert made.routes[-1] == RouteConfig(match="*", provider="openai-2")


def test_a_key_in_the_environment_sends_no_prompt_anywhere(load: Load) -> None:
    made = load(env={"OPENAI_API_KEY": "k"})
    assert made.backend == "llamacpp"
    assert made.routes == (RouteConfig(match="*", cache="main"),)
    assert [provider.name for provider in made.providers] == ["openai"]


def test_a_key_in_a_file_is_used_when_nothing_local_is_configured(load: Load) -> None:
    assert load('[api_keys]\nopenai = "k"').routes == (RouteConfig(match="*", provider="openai"),)
    local = load('model = "m.gguf"\n[api_keys]\nopenai = "k"')
    assert local.routes == (RouteConfig(match="*", cache="main"),)


@pytest.mark.parametrize(
    ("entry", "env", "key"),
    [
        ('type = "openai"\napi_key = "own"', {"OPENAI_API_KEY": "other"}, "own"),
        ('type = "openai"\napi_key_env = "MINE"', {"OPENAI_API_KEY": "other", "MINE": "mine"}, "mine"),
        ('type = "openai"\napi_key_env = "MINE"', {"OPENAI_API_KEY": "other"}, None),
        ('type = "openai"', {"OPENAI_API_KEY": "other"}, "other"),
        ('type = "openai_compat"\nbase_url = "http://h:1/v1/"', {"OPENAI_API_KEY": "other"}, None),
    ],
)
def test_a_provider_gets_its_own_key_or_that_of_its_type(load: Load, entry: str, env: dict[str, str], key: str) -> None:
    made = load(f"[providers.p]\n{entry}", env=env)
    assert made.providers[0].api_key == key
    assert bool(made.warnings) == ("MINE" in entry and key is None)


def test_the_environment_beats_the_keys_of_a_file(load: Load) -> None:
    made = load('[api_keys]\ngoogle = "file"', env={"GOOGLE_API_KEY": "env"})
    assert [(each.type, each.api_key) for each in made.providers] == [("gemini", "env")]


def test_an_address_is_kept_without_its_version(load: Load) -> None:
    for text in ("http://h:9", "http://h:9/", "http://h:9/v1", "http://h:9/v1/"):
        made = load(f'[providers.p]\ntype = "openai_compat"\nbase_url = "{text}"')
        assert made.providers[0].base_url == "http://h:9"


SECRETS = """
[api_keys]
grok = "hush-1"
[providers.p]
type = "openai"
api_key = "hush-2"
base_url = "http://user:hush-3@127.0.0.1:1"
[server]
api_keys = ["hush-4"]
[[mcp_servers]]
name = "m"
command = "c"
env = { TOKEN = "hush-5" }
[[mcp_servers]]
name = "n"
url = "https://h/v1"
headers = { Authorization = "hush-6" }
"""


def test_secrets_are_loaded_and_never_shown(load: Load) -> None:
    made = load(SECRETS, flags={"model": "m.gguf"})
    assert made.server.api_keys == ("hush-4",)
    assert [server.url for server in made.mcp_servers] == [None, "https://h/v1"]
    shown = config.to_toml(made)
    assert "hush" not in shown
    assert "TOKEN" in shown
    assert "hush" not in re.sub("hush-3", "", repr(made))


def test_a_wrong_secret_is_not_repeated(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"providers\.p\.api_key: got a number, expected a text") as caught:
        load("[providers.p]\ntype = 'openai'\napi_key = 12345678")
    assert "12345678" not in caught.value.message


def test_a_provider_is_reached_as_its_own_table_says_and_else_as_that_for_all(load: Load) -> None:
    made = load(
        '[network]\nproxy = "http://u:hush@[::1]:3128/"\nattempts = 2\n[providers.openai]\n'
        'network = {attempts = 5, idle_s = 1}\n[providers.groq.network]\nproxy = "none"\n'
    )
    openai, groq = (each.network.over(made.network) for each in made.providers)
    assert (openai.attempts, openai.idle_s, openai.proxy) == (5, 1.0, "http://u:hush@[::1]:3128/")
    assert (groq.attempts, groq.idle_s, groq.proxy) == (2, None, "none")
    shown = config.to_toml(made)
    assert "hush" not in shown + repr(made)
    assert "[providers.openai.network]\nidle_s = 1.0\nattempts = 5" in shown


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('api_keys = ["hush", ""]', "server.api_keys: got a list with an empty text, expected a list of texts that"),
        ('api_keys = ["hush", 5]', "server.api_keys: got a list with something else, expected a list of texts that"),
        ('api_keys = "hush"', "server.api_keys: got a text, expected a list of texts that are not empty"),
        ('[[server.keys]]\nname = "ann"\nkey = ""', "key: got an empty text, expected a text"),
    ],
)
def test_a_wrong_secret_is_described_and_not_shown(load: Load, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(f"[server]\n{line}\n")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("connect_s = 0", r"connect_s: got 0, expected a number from 0\.1 to 3600"),
        ("idle_s = -1", r"idle_s: got -1, expected a number from 0\.1"),
        ("attempts = 0", "attempts: got 0, expected a whole number from 1 to 20"),
        ('patience_s = "long"', 'patience_s: got "long", expected a number from 0'),
        ('ca_file = "none.pem"', r'ca_file: got "none\.pem", expected a file that exists and holds certificates'),
        ('ca_file = "shepherd.toml"', "ca_file: got .* expected a file that exists and holds certificates"),
        *(
            (f'proxy = "{proxy}"', 'proxy: got an? .*text, expected "none", or http://, https:// or socks5:// with')
            for proxy in (
                "proxy.lan:3128", "ftp://u:hush@h", "http://", "http://u:hush@", "http://u:hush@h:0x1", "http://h h",
                "http://u:hush@h:65536", "http://u:hu/sh@h", "http://u:hu@sh@h", "http://h/path?hush", "",
            )
        ),
    ],
)  # fmt: skip
def test_a_wrong_way_to_a_provider_is_named_without_its_secret(load: Load, line: str, words: str) -> None:
    for table in ("network", "providers.openai.network"):
        with pytest.raises(ConfigError, match=rf"{table}\.{words}") as caught:
            load(f"[{table}]\n{line}\n")
        assert "hush" not in caught.value.message


@pytest.mark.parametrize("name", ["api_keys", "keys"])
def test_an_empty_list_of_server_keys_stays_closed_and_says_so(load: Load, name: str) -> None:
    made = load(f"[server]\n{name} = []")
    assert getattr(made.server, name) == ()
    assert f"server.{name} holds no key: every request will be refused" in made.warnings[0]
    assert getattr(load().server, name) is None


# Tools, thinking


def test_what_one_layer_disables_no_other_enables(load: Load) -> None:
    made = load(
        '[tools]\nenabled = ["http"]\ndisabled = ["command_execution"]',
        flags={"enable_tools": ("command",), "disable_tools": ("http",)},
    )
    assert made.tools.enabled == ("command",)
    assert made.tools.disabled == ("command_execution", "http")


def test_each_address_of_a_provider_is_a_replica_with_all_that_the_provider_has(load: Load) -> None:
    made = load(
        "[providers.vllm]\nmodel = 'qwen'\napi_key = 'k-123'\nbudget_tokens = 9\n"
        "base_urls = ['http://10.0.0.1:8000/v1', 'http://me:pw@b:8000']"
    )
    group, first, second = made.providers
    assert (group.name, group.replicas, group.group) == ("vllm", ("vllm-1", "vllm-2"), "")
    assert [each.base_url for each in made.providers] == [None, "http://10.0.0.1:8000", "http://me:pw@b:8000"]
    assert replace(first, name="", base_url="") == replace(second, name="", base_url="")
    assert (first.model, first.api_key, first.budget_tokens, first.group) == ("qwen", "k-123", 9, "vllm")
    shown = config.to_toml(made)
    assert 'base_urls = ["http://10.0.0.1:8000", "http://***@b:8000"]' in shown
    assert [each.name for each in load(shown).providers] == ["vllm", "vllm-1", "vllm-2"]


def test_a_provider_type_has_all_its_names(load: Load) -> None:
    made = load('[providers.xai]\n[providers.x]\ntype = "google"\n')
    assert {each.name: each.type for each in made.providers} == {"xai": "grok", "x": "gemini"}
    assert load("", env={"SHEPHERD_BACKEND": "claude"}).backend == "anthropic"


def test_thinking_is_a_switch_or_a_level(load: Load) -> None:
    assert load('thinking = "high"').reasoning == "high"
    assert load("", flags={"effort": "max"}).reasoning == "max"
    assert [load(f"thinking = {word}").reasoning for word in ("true", "false")] == ["on", "off"]
    assert load("").reasoning is None
    with pytest.raises(ConfigError, match="one of low, medium, high, max"):
        load('thinking = "deep"')


@pytest.mark.parametrize(
    ("toml", "thinking", "shown"),
    [
        ("", None, True),
        ("thinking = true", True, True),
        ("thinking = false", False, False),
        ("thinking = false\nshow_thinking = true", False, True),
        ("show_thinking = false", None, False),
    ],
)
def test_no_thinking_is_no_shown_thinking(load: Load, toml: str, thinking: bool | None, shown: bool) -> None:
    made = load(toml)
    assert (made.thinking, made.show_thinking) == (thinking, shown)


# What is refused

REFUSED = [
    ("port = 1\nhost = ", r"cannot be understood: Invalid value"),
    ("[server]\nport = 70000", r"server\.port: got 70000, expected a whole number from 0 to 65535"),
    ("[server]\nport = '80'", r'server\.port: got "80", expected a whole number'),
    ("[server]\nport = true", r"server\.port: got true"),
    ("server = 3", r"server: got 3, expected a table"),
    ("models = 3", r"models: got 3, expected tables such as \[models\.NAME\]"),
    ("[models]\nqwen = 3", r"models\.qwen: got 3, expected a table"),
    ("routes = 'x'", r'routes: got "x", expected a list of tables'),
    ("routes = ['x']", r'routes\[0\]: got "x", expected a table'),
    ("backend = 'nobody'", r'backend: got "nobody", expected one of llamacpp, tensorrt, openai, anthropic, gemini'),
    ("overflow = 'drop'", r'overflow: got "drop", expected one of error, evict'),
    ("[providers.vllm]\nprices = {input = -1}", r"providers\.vllm\.prices: got .*, expected prices such as"),
    ("[providers.vllm]\nprices = {tokens = 1}", r"providers\.vllm\.prices: got .*, expected prices such as"),
    ("[providers.vllm]\nbudget_tokens = -1", r"providers\.vllm\.budget_tokens: got -1, expected a whole number from 0"),
    ("[providers.vllm]\nbudget_money = 1", r"providers\.vllm\.prices: a budget in money needs prices"),
    (
        "[providers.vllm]\n[providers.both]\ntype = 'vllm'\nreplicas = ['vllm']\nbudget_tokens = 1",
        r"providers\.both\.budget_tokens: the replicas have budgets",
    ),
    ("[providers.vllm]\nbase_urls = []", r"providers\.vllm\.base_urls: got \[\], expected a list of 1 to 64 addresses"),
    (f"[providers.vllm]\nbase_urls = {['http://a'] * 65}", r"base_urls: got .*, expected a list of 1 to 64 addresses"),
    ("[providers.vllm]\nbase_urls = ['a:8000']", r"base_urls: got .*, expected a list of 1 to 64 addresses"),
    (
        "[providers.vllm]\nbase_urls = ['http://a:80/v1', 'http://A/']",
        r"providers\.vllm\.base_urls: names the same server twice: a:80",
    ),
    (
        "[providers.vllm]\nbase_urls = ['http://localhost:1', 'http://127.0.0.1:1']",
        r"base_urls: names the same server twice: localhost:1",
    ),
    ("[providers.vllm]\nbase_urls = ['http://a', 'https://b']", r"base_urls: mixes http and https, so that prompts"),
    (
        "[providers.vllm]\nbase_urls = ['http://a']\nbase_url = 'http://b'",
        r"providers\.vllm\.base_urls: give either base_urls or base_url",
    ),
    (
        "[providers.a]\ntype = 'vllm'\nbase_urls = ['http://a']\n[providers.a-1]\ntype = 'vllm'",
        r"providers\.a\.base_urls: would be called 'a-1', which there is already",
    ),
    ("[providers.vllm]\nprobe_s = 0.01", r"probe_s: got 0\.01, expected 0, or a number from 0\.1 to 3600"),
    ("[providers.vllm]\nprobe_s = true", r"probe_s: got true, expected 0, or a number from 0\.1 to 3600"),
    ("[providers.vllm]\nprobe_s = false", r"probe_s: got false, expected 0, or a number from 0\.1 to 3600"),
    ("[providers.vllm]\nreplicas = []", r"providers\.vllm\.replicas: got \[\], expected a list of 1 to 64 names"),
    (
        "[providers.vllm]\n[providers.both]\ntype = 'vllm'\nreplicas = ['vllm', 'vllm']",
        r"providers\.both\.replicas: names 'vllm' twice",
    ),
    (
        "[providers.vllm]\nbase_urls = ['http://a']\n[providers.both]\ntype = 'vllm'\nreplicas = ['vllm']",
        r"providers\.both\.replicas: a replica must be a single provider",
    ),
    (
        "[providers.vllm]\nbase_urls = ['http://127.0.0.1:1', 'http://a']\n"
        "[[routes]]\nmatch = '*'\nprovider = 'vllm'\nprivacy = 'local'",
        r"routes\[0\]\.privacy: the provider 'vllm-2' is not on this machine",
    ),
    ("[sampling]\ntop_p = 1.5", r"sampling\.top_p: got 1\.5, expected a number from 0 to 1"),
    ("[sampling]\ntemperature = nan", r"sampling\.temperature: got NaN"),
    ("[sampling]\ntemperature = false", r"sampling\.temperature: got false"),
    ("[tools]\nenabled = 'http'", r'tools\.enabled: got "http", expected a list of texts'),
    ("model = ''", r'model: got "", expected a text that is not empty'),
    ("[models.a]\ncache_type_k = 'q6'", r"models\.a\.cache_type_k: .*one of f32, f16"),
    ("[models.a]\ngpu_layers = 1", r"models\.a: has no path: give a file"),
    ("[caches.c]\nsequences = 0", r"caches\.c\.sequences: got 0, expected a whole number from 1 to 64"),
    ("[caches.c]\nsequences = 65", r"caches\.c\.sequences: got 65, expected a whole number from 1 to 64"),
    (
        "[caches.c]\nrepeatable = true\nsequences = 2",
        r"caches\.c\.sequences: got 2, but a repeatable cache computes one request at a time: leave it out",
    ),
    ("[caches.c]\nqueue = 0", r"caches\.c\.queue: got 0, expected a whole number from 1 to 10000"),
    ("[caches.c]\nqueue = 1.5", r"caches\.c\.queue: got 1\.5, expected a whole number"),
    ("[caches.c]\noverflow = 'evct'", r'caches\.c\.overflow: got "evct", expected one of error, evict'),
    ("[caches.c]\nwindow = 0", r"caches\.c\.window: got 0, expected a number of tokens, or a text such as"),
    ("[caches.c]\nwindow = '8y'", r'caches\.c\.window: got "8y", expected a number of tokens'),
    ("[caches.c]\nwindow = 0.5", r"caches\.c\.window: got 0\.5"),
    ("[caches.c]\nwindow = true", r"caches\.c\.window: got true"),
    ("[caches.c]\nspeculate = 8", r'caches\.c\.speculate: got 8, expected true, false, or "auto"'),
    ("speculate = 'yes'", r'speculate: got "yes", expected true, false, or "auto"'),
    (
        "[caches.c]\nleaving = {tasks = true}",
        r"caches\.c\.leaving: got .*, expected a table with some of stale_results",
    ),
    ("[caches.c]\nleaving = {task = 1}", r"caches\.c\.leaving: got .*task \(true or false\)"),
    ("[caches.c]\nleaving = {long_results = -1}", r"caches\.c\.leaving: got"),
    ("kv = true", r"kv: got true, expected a table"),
    ("[kv]\nram_bytes = -1", r"kv\.ram_bytes: got -1, expected a whole number from 0 to"),
    ("[kv]\nram_bytes = '1 GiB'", r'kv\.ram_bytes: got "1 GiB", expected a whole number'),
    ("[kv]\nram_bytes = 1e9", r"kv\.ram_bytes: got 1000000000\.0, expected a whole number"),
    ("[kv]\ndisk = 1", r"kv\.disk: got 1, expected true or false"),
    ("[kv]\ndisk_bytes = 0", r"kv\.disk_bytes: got 0, expected a whole number from 1 to"),
    ("[kv]\nfolder = ''", r'kv\.folder: got "", expected a path'),
    ("[kv]\nfolder = true", r"kv\.folder: got true, expected a path"),
    ("[kv]\nreuse_tail = 'yes'", r'kv\.reuse_tail: got "yes", expected true or false'),
    ("[kv]\nswa_full = 0", r"kv\.swa_full: got 0, expected true or false"),
    ("[kv]\nlow_water = 0.05", r"kv\.low_water: got 0\.05, expected a number from 0\.1 to 0\.95"),
    ("[kv]\nlow_water = 1", r"kv\.low_water: got 1, expected a number from 0\.1 to 0\.95"),
    ("[kv]\nlow_water = '75%'", r'kv\.low_water: got "75%", expected a number'),
    ("[models.m]\noverride_tensor = ['ffn']", r"models\.m\.override_tensor: got .*, expected a list of PATTERN=BUFFER"),
    ("[models.m]\noverride_tensor = ['ffn_(=CPU']", r"models\.m\.override_tensor: got .*, expected a list of PATTERN"),
    ("[models.m]\nrpc_servers = '10.0.0.5:50052'", r"models\.m\.rpc_servers: got .*, expected a list of at most 16"),
    ("[models.m]\nrpc_servers = ['10.0.0.5']", r"models\.m\.rpc_servers: got .*HOST:PORT, such as 10\.0\.0\.5:50052"),
    ("[models.m]\nrpc_servers = ['box:65536']", r"models\.m\.rpc_servers: got .*, expected a list"),
    (
        "[models.m]\nrpc_servers = ['[::1]:50052']",
        r"models\.m\.rpc_servers: got .*, expected a list .*\(IPv4, or a name\)",
    ),
    ("[models.m]\nrpc_servers = ['a:1', 'a:1']", r"models\.m\.rpc_servers: got .*, expected a list of .* different"),
    (f"[models.m]\nrpc_servers = {[f'a:{n}' for n in range(1, 18)]}", r"models\.m\.rpc_servers: got .* at most 16"),
    ("[models.m]\nmlock = 1", r"models\.m\.mlock: got 1, expected true or false"),
    ("[models.m]\nn_threads = 513", r"models\.m\.n_threads: got 513, expected a whole number from 0 to 512"),
    ("[models.m.sampling]\nrepetition_penalty = 0", r"repetition_penalty: got 0, expected a number from 0\.01 to 100"),
    (
        "[models.m.sampling]\nrepeat_last_n = 2147483648",
        r"repeat_last_n: got 2147483648, expected a whole number from -1",
    ),
    ("[models.m.sampling]\ntemperature = nan", r"temperature: got NaN, expected a number from 0 to 100"),
    ("[models.m.sampling]\ndry_sequence_breakers = ['" + 41 * "a" + "']", "expected a list of at most 32 texts"),
    ("[kv]\nn_positions = 0", r"kv\.n_positions: got 0, expected a whole number from 1 to"),
    ("[kv]\nn_positions = true", r"kv\.n_positions: got true"),
    ("[rag]\nmax_size_bytes = 1\n[memory]\nmax_size_bytes = 2", r"set twice, as rag\.max_size_bytes and as memory\."),
    ("[providers.p]\nmodel = 'x'", r"providers\.p\.type: has no type; expected one of openai"),
    ("[providers.p]\ntype = 'openai_compat'", r"providers\.p\.base_url: .*needs a base_url"),
    ("[providers.p]\ntype = 'openai'\nbase_url = 'h:9'", r"base_url: got \"h:9\", expected an address such as http"),
    ("[providers.main]\ntype='openai'\n[caches.main]", r"providers\.main: there is a cache called 'main' too"),
    ("tools.http.allow_hosts = ['http://x']", r'allow_hosts: got \["http://x"\], expected a list of hosts such as'),
    ("tools.http.allow_hosts = 'x'", r'allow_hosts: got "x", expected a list of hosts'),
    ("tools.command.keep_env = ['A=b']", r'keep_env: got \["A=b"\], expected a list of names of environment variables'),
    ("[[mcp_servers]]\nname = 'x'\ncommand = 'x'\nenv = {A = 1}", r"mcp_servers\[0\]\.env: .* values are all texts"),
    ("[[mcp_servers]]\ncommand = 'x'", r"mcp_servers\[0\]\.name: needs a name of its own"),
    ("[[mcp_servers]]\nname = 'x'", r"mcp_servers\[0\]: needs either a command or a url"),
    (
        TWO.replace('"big"', '"bgi"'),
        r"caches\.main\.model: no model is called 'bgi' \(did you mean 'big'\?\); known: big",
    ),
    (TWO.replace('cache = "fast"', 'cache = "fats"'), r"routes\[0\]\.cache: no cache is called 'fats'.*'fast'"),
    (TWO.replace('cache = "fast"', 'provider = "x"'), r"routes\[0\]\.provider: no provider is called 'x'; known: none"),
    (
        TWO + 'fallback = ["nobody"]',
        r"routes\[1\]\.fallback: no cache or provider is called 'nobody'; known: main, fast",
    ),
    (TWO.replace('match = "*haiku*"', ""), r"routes\[0\]: matches nothing: give match, model or endpoint"),
    (TWO.replace('cache = "fast"', ""), r"routes\[0\]: needs one target"),
    (CLOUD + "cache = 'main'\n[caches.main]", r"routes\[0\]: needs one target"),
    (
        "[models.m]\npath = 'm.gguf'\nrpc_servers = ['127.0.0.1:1', 'box:50052']\n[caches.c]\nmodel = 'm'\n"
        "[[routes]]\nmatch = '*'\ncache = 'c'\nprivacy = 'local'",
        r"routes\[0\]\.privacy: the model 'm' is computed at box:50052 too",
    ),
    (CLOUD + "privacy = 'local'", r"routes\[0\]\.privacy: the provider 'claude' is not on this machine"),
    *(
        (f"[[server.keys]]\n{row}\n", words)
        for row, words in (
            ('key = "a"', r"server\.keys\[0\]\.name: needs a name"),
            ('name = "a"', r"server\.keys\[0\]: needs one of key, key_env and key_hash"),
            ('name = "a"\nkey = "b"\nkey_env = "C"', "needs one of"),
            ('name = "a"\nkey_env = "NOBODY_SETS_THIS"', r"key_env: the variable NOBODY_SETS_THIS is not set"),
            ('name = "a"\nkey_hash = "md5:12"', r"key_hash: is written sha256:"),
            ('name = "a"\nkey = "b"\nrequests_per_minute = 0', r"got 0, expected a whole number from 1"),
            ('name = "a"\nkey = "b"\nuser = "  "', r"server\.keys\[0\]\.user: needs 1 to 256 characters"),
            ('name = "a"\nkey = "b"\nuser = ""', r"server\.keys\[0\]\.user: got \"\", expected a text"),
            ('name = "a"\nkey = 7', r"got a number, expected a text"),
        )
    ),
    ("[models.big]\npath = 'big.gguf'\nadapters = 'law.gguf'", "expected a list of tables"),
    ("[models.big]\npath = 'big.gguf'\n[[models.big.adapters]]", r"models\.big\.adapters\[0\].*no path"),
    *(
        (f"[models.big]\npath = 'big.gguf'\n[[models.big.adapters]]\npath = 'a.gguf'\n{row}", words)
        for row, words in (
            ("scale = nan", r"adapters\[0\]\.scale.*-1000 to 1000"),
            ("scale = inf", r"adapters\[0\]\.scale"),
            ('scale = "much"', r'adapters\[0\]\.scale.*"much"'),
            ("scale = 1001", r"adapters\[0\]\.scale.*1001"),
            ('name = "a b"', r"adapters\[0\]\.name.*blanks"),
            ('name = "a:b"', r"adapters\[0\]\.name.*colons"),
            ("apply = 1", r"adapters\[0\]\.apply.*true or false"),
            ("layers = [3, 2]", r"adapters\[0\]\.layers.*\[3, 2\]"),
            ("layers = [0, 2]", r"adapters\[0\]\.layers"),
            ("layers = 3", r"adapters\[0\]\.layers"),
            ('[[models.big.adapters]]\npath = "b/A.gguf"', r"adapters\[1\]\.name.*two adapters"),
        )
    ),
]


@pytest.mark.parametrize(("toml", "says"), REFUSED)
def test_what_is_wrong_is_refused_in_one_sentence_with_file_and_key(load: Load, toml: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(toml)
    assert caught.value.file.endswith("shepherd.toml")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"), [("shepherd.json", '{"system": "Grüße"}'), ("shepherd.toml", 'system="Grüße"')]
)
def test_a_file_is_read_in_the_encodings_of_windows(tmp_path: Path, encoding: str, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode(encoding))
    assert config.load(env={}, cwd=tmp_path, user_dir=tmp_path).system == "Grüße"


@pytest.mark.parametrize("name", ["config.toml", "shepherd.toml", "shepherd.json"])
def test_what_stands_in_the_place_of_a_file_is_reported(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.symlink_to("/nonexistent/away.toml")
    with pytest.raises(
        ConfigError, match=f"{name}: is a link to /nonexistent/away.toml, which does not exist; mend or"
    ):
        config.load(env={}, cwd=tmp_path / "none", user_dir=tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=f"{name}: is a folder, and a configuration is a file; remove or rename it"):
        config.load(env={}, cwd=tmp_path / "none", user_dir=tmp_path)
    file.rmdir()
    file.symlink_to(os.devnull)  # a file that is switched off
    config.load(env={}, cwd=tmp_path / "none", user_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "cannot be understood"),
        (b"[]", r"got \[\], expected a table"),
        (b'{"reserve": 1, "reserve": 2}', "the key 'reserve' is set twice"),
        (b'{"reserve": 1e999}', "got Infinity"),
        (b'{"reserve": ' + b"9" * 5000 + b"}", "cannot be understood"),
        (b'{"system": "\xff"}', "is not text in UTF-8 or UTF-16"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_json_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "shepherd.json").write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        config.load(env={}, cwd=tmp_path, user_dir=tmp_path / "none")


@pytest.mark.parametrize(
    ("env", "flags", "says"),
    [
        ({"SHEPHERD_PORT": "http"}, {}, r'^SHEPHERD_PORT: got "http", expected a whole number from 0 to 65535'),
        ({"SHEPHERD_CONTEXT_SIZE": "-1"}, {}, "^SHEPHERD_CONTEXT_SIZE: got -1"),
        ({"SHEPHERD_BACKEND": "x"}, {}, '^SHEPHERD_BACKEND: got "x", expected one of llamacpp'),
        ({}, {"temperature": "hot"}, '^--temperature: got "hot", expected a number from 0 to 100'),
        ({}, {"cache_type_k": "x"}, '^--cache-type-k: got "x"'),
        ({}, {"overflow": "x"}, "^--enable-eviction: got"),
    ],
)
def test_a_wrong_variable_or_flag_is_called_by_its_name(
    load: Load, env: dict[str, str], flags: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load(env=env, flags=flags)


# What is warned of


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("contxt_size = 1", "unknown key 'contxt_size'; did you mean 'context_size'?"),
        ("[server]\nprot = 1", "unknown key 'server.prot'; did you mean 'port'?"),
        ("[models.a]\npath = 'a'\nquux = 1", "unknown key 'models.a.quux'; it is ignored"),
        ("[kv]\nlow_watr = 0.5", "unknown key 'kv.low_watr'; did you mean 'low_water'?"),
        (TWO + "cach = 'main'", "unknown key 'routes[1].cach'; did you mean 'cache'?"),
        (TWO.replace('match = "*"\n', 'match = "q*"\n'), 'no route has match = "*"'),
        (TWO.replace('"*haiku*"', '"*"'), "routes[1] can never be reached, because routes[0] takes its requests first"),
        (TWO + "archive = true", "routes[1] has archive = true and no user: requests that name no user"),
        (
            "[memory]\nenable_archival = false\n" + TWO + "user = 'ann'\narchive = true",
            "routes[1] has archive = true, and memory.enable_archival = false: nothing is archived",
        ),
        (
            TWO + "archive = true\n[server]\napi_keys = ['x']\n[[server.keys]]\nname = 'a'\nkey = 'k'\nuser = 'a'",
            "routes[1] has archive = true and no user",
        ),
    ],
)
def test_what_is_likely_a_mistake_is_warned_of(load: Load, tmp_path: Path, toml: str, says: str) -> None:
    (warning,) = load(toml).warnings
    assert warning.startswith(f"{tmp_path}/shepherd.toml: ")
    assert says in warning


@pytest.mark.parametrize(
    "toml",
    [
        TWO + "user = 'ann'\narchive = true",
        TWO + "archive = true\n[[server.keys]]\nname = 'a'\nkey = 'k'\nuser = 'a'",
        TWO + "archive = false",
    ],
)
def test_a_route_that_archives_all_of_its_requests_is_not_warned_of(load: Load, toml: str) -> None:
    assert load(toml).warnings == ()


@pytest.mark.parametrize(
    ("toml", "given", "place"),
    [
        ("probe = false", {}, "{}/shepherd.toml: probe"),
        ("[models.a]\npath = 'a'\nprobe = true", {}, "{}/shepherd.toml: models.a.probe"),
        ("", {"env": {"SHEPHERD_PROBE": "0"}}, "SHEPHERD_PROBE"),
        ("", {"flags": {"probe": False}}, "--probe"),
    ],
)
def test_a_setting_of_an_earlier_version_is_accepted_with_a_note(
    load: Load, tmp_path: Path, toml: str, given: dict[str, Any], place: str
) -> None:
    made = load(toml, **given)
    assert made.warnings == (
        f"{place.format(tmp_path)} has no effect: a start does not measure defaults any more; "
        "'shepherd optimize' finds the fastest settings",
    )
    without = load(toml.replace("probe", "quux"))
    assert replace(made, warnings=(), sources=()) == replace(without, warnings=(), sources=())


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ({"match": "*"}, {"match": "x"}, True),
        ({"match": "*"}, {"endpoint": "/v1"}, True),
        ({"match": "*a*"}, {"match": "xA*"}, True),
        ({"match": "*a*"}, {"model": "cat"}, True),
        ({"match": "*a*"}, {"match": "*b*"}, False),
        ({"match": "?"}, {"match": "*"}, False),
        ({"match": "[ab]*"}, {"match": "a"}, False),
        ({"match": "*", "endpoint": "/v1"}, {"match": "x"}, False),
        ({"match": "*", "endpoint": "/v1"}, {"model": "x", "endpoint": "/v1"}, True),
        ({"model": "X"}, {"model": "x"}, True),
        ({"model": "x"}, {"match": "x"}, False),
        ({"endpoint": "/v1/*"}, {"endpoint": "/v1/messages"}, True),
        ({"endpoint": "/v1/*"}, {"endpoint": "/messages"}, True),
        ({"endpoint": "/v1/messages"}, {"endpoint": "/messages"}, True),
        ({"endpoint": "/v1/messages"}, {"endpoint": "/v1/messages/count_tokens"}, True),
        ({"endpoint": "/v1/messages/count_tokens"}, {"endpoint": "/v1/messages"}, False),
        ({"endpoint": "/api/*"}, {"endpoint": "/v1/*"}, False),
        ({"endpoint": "/v1/*"}, {"endpoint": "/v1/m*"}, True),
        ({"endpoint": "*"}, {"match": "*x*"}, True),
        ({"endpoint": "/v1/messages"}, {"match": "x"}, False),
        ({"endpoint": "/v1/messages", "match": "*"}, {"endpoint": "/v1/messages", "model": "x"}, True),
        ({"match": "*b*"}, {"match": "a[bc]"}, False),
        ({"match": "a*"}, {"match": "a[bc]"}, True),
        ({"match": "a[bc]"}, {"match": "a[bc]"}, True),
        ({"match": "?"}, {"match": "a"}, False),
    ],
)
def test_a_rule_is_hidden_only_where_that_is_certain(
    load: Load, first: dict[str, str], second: dict[str, str], hidden: bool
) -> None:
    rules = [json.dumps(rule | {"cache": "main"}).replace('": ', '" = ') for rule in (first, second)]
    made = load(f"routes = [{', '.join(rules)}]\n[caches.main]\n")
    assert any("routes[1] can never be reached" in warning for warning in made.warnings) == hidden


# The page for users, and showing


@pytest.mark.parametrize(("form", "text"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_page_loads_without_a_warning(tmp_path: Path, form: str, text: str) -> None:
    (tmp_path / f"shepherd.{form}").write_text(text)
    made = config.load(env={"ANTHROPIC_API_KEY": "k", **TRUSTED}, cwd=tmp_path, user_dir=tmp_path / "none")
    assert made.warnings == ()
    assert made.sources[0].keys


@pytest.mark.parametrize("text", [text for form, text in EXAMPLES if form == "toml"])
def test_toml_and_json_say_the_same(tmp_path: Path, text: str) -> None:
    made = []
    for name, content in (("a.toml", text), ("a.json", json.dumps(tomllib.loads(text)))):
        (tmp_path / name).write_text(content)
        made.append(config.load(env={}, cwd=tmp_path, user_dir=tmp_path / "none", file=tmp_path / name))
    assert replace(made[0], sources=(), warnings=()) == replace(made[1], sources=(), warnings=())


@pytest.mark.parametrize(
    ("text", "window"),
    [("1000000", 10**6), ("'1M'", 2**20), ("'128k'", 2**17), ("'8x'", 8.0), ("'1.5 x'", 1.5), ("8.0", 8.0)],
)
def test_a_window_is_tokens_or_so_many_times_the_context(load: Load, text: str, window: float) -> None:
    (made,) = load(f"window = {text}").caches
    assert (made.window, type(made.window)) == (window, type(window))
    (made,) = load(f"[caches.main]\nwindow = {text}\nleaving = {{task = false}}").caches
    assert (made.window, dict(made.leaving)) == (window, {"task": False})
    (again,) = load(config.to_toml(load(f"[caches.main]\nwindow = {text}\nleaving = {{task = false}}"))).caches
    assert again == made


@pytest.mark.parametrize(("text", "speculates"), [("true", True), ("false", False), ("'auto'", None)])
def test_drafts_are_on_or_off_or_as_the_engine_has_them(load: Load, text: str, speculates: bool | None) -> None:
    for written in (f"speculate = {text}", f"[caches.main]\nspeculate = {text}"):
        (made,) = load(written).caches
        assert made.speculate is speculates
        (again,) = load(config.to_toml(load(written))).caches
        assert again == made


def test_a_window_without_a_model_of_this_machine_is_ignored_and_that_is_said(load: Load) -> None:
    made = load('window = "8x"\n[providers.far]\ntype = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "far"\n')
    assert made.caches == ()
    (warning,) = made.warnings
    assert "window is ignored" in warning


def test_the_page_names_every_key() -> None:
    def words(keys: Mapping[str, Kind | Table]) -> set[str]:
        below = [words(kind.keys) for kind in keys.values() if isinstance(kind, Table)]
        return set(keys).union(*below)

    for word in words(SCHEMA) | set(PROVIDER_TYPES):
        assert re.search(rf"\b{word}\b", PAGE), f"docs/config.md does not name {word}"


def test_sampling_has_a_key_for_every_field_that_a_file_can_say() -> None:
    assert set(SAMPLING.keys) == {each.name for each in fields(Sampling)} - {"logit_bias"}


@pytest.mark.grid(0.4)
@pytest.mark.parametrize(
    "text", ["", TWO, CLOUD, KV, 'system = "a\\u007f\\"\\n"', *(text for form, text in EXAMPLES if form == "toml")]
)
def test_what_is_shown_loads_as_the_same_configuration(tmp_path: Path, text: str) -> None:
    shown = tmp_path / "shown" / "shepherd.toml"
    (tmp_path / "shepherd.toml").write_text(text)
    shown.parent.mkdir()
    made = config.load(env=TRUSTED, cwd=tmp_path, user_dir=tmp_path / "none")
    shown.write_text(config.to_toml(made))
    again = config.load(env=TRUSTED, cwd=shown.parent, user_dir=tmp_path / "none")
    assert _open(again) == _open(made)


def _open(made: Config) -> Config:
    """Without what is not shown."""
    return replace(
        made,
        sources=(),
        warnings=(),
        network=replace(made.network, proxy=None),
        providers=tuple(
            replace(each, api_key=None, headers={}, network=replace(each.network, proxy=None), is_declared=True)
            for each in made.providers
        ),
        server=replace(made.server, api_keys=None, keys=None),
        mcp_servers=tuple(replace(each, env={}, headers={}, client_secret=None) for each in made.mcp_servers),
    )


# Models that come and go


LOADS = """
[models.big]
path = "big.gguf"
[models.spare]
path = "spare.gguf"
keep_alive = "10m"
[models.vec]
path = "vec.gguf"
pooling = "cls"
load = "start"
[caches.main]
model = "big"
"""


def test_models_without_a_cache_get_one_on_demand(load: Load) -> None:
    made = load(LOADS)
    assert [(each.name, each.load, each.keep_alive) for each in made.models] == [
        ("big", "start", None),
        ("spare", "demand", 600),
        ("vec", "start", None),
    ]
    assert [(each.name, each.model) for each in made.caches] == [("main", "big"), ("spare", "spare"), ("vec", "vec")]
    assert RouteConfig(model="spare", cache="spare") in made.routes
    assert made.routes[-1] == RouteConfig(match="*", cache="main")


def test_without_any_cache_the_first_model_is_loaded_at_the_start(load: Load) -> None:
    made = load("[models.b]\npath = 'b.gguf'\n[models.a]\npath = 'a.gguf'")
    assert [(each.name, each.load) for each in made.models] == [("b", "start"), ("a", "demand")]
    made = load("[models.b]\npath = 'b.gguf'\n[models.a]\npath = 'a.gguf'", flags={"model": "a"})
    assert [(each.name, each.load) for each in made.models] == [("a", "start"), ("b", "demand")]


def test_a_cache_of_a_models_name_on_another_model_keeps_its_name(load: Load) -> None:
    made = load("[models.a]\npath = 'a.gguf'\n[models.b]\npath = 'b.gguf'\n[caches.b]\nmodel = 'a'\n")
    assert [(each.name, each.model) for each in made.caches] == [("b", "a"), ("b-2", "b")]


def test_rules_of_a_file_alone_decide_what_goes_where(load: Load) -> None:
    made = load(f'{LOADS}[[routes]]\nmatch = "*"\ncache = "spare"\nbackground = true\n')
    assert made.routes == (RouteConfig(match="*", cache="spare", background=True),)


KEYS = """
[server]
concurrent = 8
[[server.keys]]
name = "ann"
key = "hush-1"
requests_per_minute = 60
[[server.keys]]
name = "bob"
key_env = "BOBS_KEY"
concurrent = 2
user = " bob "
[[server.keys]]
name = "eve"
key_hash = "sha256:{digest}"
""".replace("{digest}", "ab" * 32)


def test_keys_have_names_and_limits_and_come_from_the_environment_or_as_a_hash(load: Load) -> None:
    made = load(KEYS, env={"BOBS_KEY": "hush-2"})
    ann, bob, eve = made.server.keys or ()
    assert (ann.name, ann.key, ann.requests_per_minute, ann.concurrent) == ("ann", "hush-1", 60, None)
    assert (bob.key, bob.concurrent) == ("hush-2", 2)
    assert (ann.user, bob.user) == (None, "bob")
    assert (eve.key, eve.key_hash) == (None, "sha256:" + "ab" * 32)
    assert made.server.concurrent == 8
    assert made.warnings == ()
    assert "hush" not in repr(made)
    assert "# keys: set, not shown, for ann, bob, eve" in config.to_toml(made)
    assert "hush" not in config.to_toml(made)


TIMES = [
    ("300", 300), ("0", 0), ("-1", -1), ("-5", -1), ("1.5", 1.5), ('"5m"', 300), ('"1h30m"', 5400), ('"90s"', 90),
    ('"500ms"', 0.5), ('"-1"', -1), ('"-1s"', None), ('"2d"', 172_800), ('"300"', 300), ('"5 m"', None),
    ('""', None), ('"m"', None), ("true", None), ('"nan"', None), ('"inf"', None), ("1e300", None),
    ('"5m3"', None), ("[]", None),
]  # fmt: skip
AMOUNTS = [
    ("8589934592", 8 * 2**30), ('"8 GiB"', 8 * 2**30), ('"8GB"', 8 * 2**30), ('"8g"', 8 * 2**30),
    ('"1.5 GiB"', 3 * 2**29), ('"512MiB"', 2**29), ('"80%"', 0.8), ('"80 %"', 0.8), ("0.5", 0.5), ("1.0", 1.0),
    ("1", 1), ('"100%"', 1.0), ('"120%"', None), ('"0%"', None), ("0", None), ("-1", None), ("true", None),
    ('"lots"', None), ('"8 XiB"', None), ("1.5", None), ('"200%"', None), ('"4096"', 4096), ('"100 b"', 100),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "words", "text", "expected"),
    [("keep_alive", "seconds", *row) for row in TIMES] + [("memory_budget", "bytes", *row) for row in AMOUNTS],
)
def test_times_and_amounts_of_memory_are_written_in_many_ways(
    load: Load, key: str, words: str, text: str, expected: float | None
) -> None:
    table = "models.a." if key == "keep_alive" else ""
    toml = f"{key} = {text}\n" if not table else f"[models.a]\npath = 'a.gguf'\n{key} = {text}\n"
    if expected is None:
        with pytest.raises(ConfigError, match=rf"{table}{key}: got .*, expected a number of {words}"):
            load(toml)
    else:
        made = load(toml)
        found = made.models[0].keep_alive if table else made.memory_budget
        assert found == expected
        assert table or type(found) is type(expected)


# Routes that cannot be reached


def test_a_rule_whose_own_words_disagree_takes_nothing(load: Load) -> None:
    rules = '{ model = "qwen", match = "gpt*", cache = "main" }, { match = "*", cache = "main" }'
    made = load(f"routes = [{rules}]\n[caches.main]\n")
    assert len(made.warnings) == 1
    assert "routes[0] can never be reached, because its model 'qwen' does not fit its match 'gpt*'" in made.warnings[0]


GLOBS = st.text("ab*?[]", min_size=1, max_size=5)
WORDS = st.text("ab", max_size=5)
RULES = st.builds(
    RouteConfig,
    match=st.none() | GLOBS,
    model=st.none() | st.text("ab", min_size=1, max_size=3),
    endpoint=st.none() | st.sampled_from(["/v1/a", "/a", "/v1/*", "/v1/a/count_tokens", "/v1/a*", "*", "/v1/[ab]"]),
)
PATHS = ["/v1/a", "/a", "/v1/b", "/v1/a/count_tokens", "/v1/v1/a", "/api/a"]


@given(RULES, RULES, st.lists(WORDS, min_size=1, max_size=20))
@settings(deadline=None, max_examples=examples(500))
def test_what_one_rule_is_said_to_cover_it_takes(first: RouteConfig, second: RouteConfig, names: list[str]) -> None:
    if not covers(first, second):
        return
    rules = [Route("x", match=rule.match, model=rule.model, endpoint=rule.endpoint) for rule in (first, second)]
    for name in (*names, second.model or "", (second.match or "").replace("*", "")):
        for path in PATHS:
            assert not rules[1].takes(name, path) or rules[0].takes(name, path)


# ---- adapters

ADAPTED = """
[models.big]
path = "big.gguf"
[[models.big.adapters]]
path = "adapters/law.gguf"
[[models.big.adapters]]
path = "/med.gguf"
name = "medicine"
scale = -0.5
apply = false
layers = [2, 9]
[caches.main]
model = "big"
"""


def test_adapters_are_entries_of_their_model_and_named_by_their_files(load: Load, tmp_path: Path) -> None:
    law, med = load(ADAPTED).models[0].adapters
    assert (law.name, law.path, law.scale, law.apply) == ("law", str(tmp_path / "adapters" / "law.gguf"), 1.0, True)
    assert (med.name, med.path, med.scale, med.apply, med.layers) == ("medicine", "/med.gguf", -0.5, False, (2, 9))
    shown = config.to_toml(load(ADAPTED))
    assert load(shown).models == load(ADAPTED).models
