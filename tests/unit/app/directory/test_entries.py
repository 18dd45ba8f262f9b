"""What is told of models before any of them is loaded: kinds, sizes, terms."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import gguf
import psutil
import pytest
from tests.unit.engine.adapter_files import write_lora
from tests.unit.engine.tiny_gguf import RECIPES, Vocabulary, write

from shepherd import config
from shepherd.app.directory.entries import ON_DEMAND_S, Machine, ModelRegistry, kind_of, machine_of, makes_vectors
from shepherd.app.model_pool import Residency
from shepherd.config import ModelConfig, model_name
from shepherd.core import ConfigError, EngineDown, Sampling, ShepherdError
from shepherd.models import draft
from shepherd.models.catalog import embedded
from shepherd.models.gguf import read_header
from shepherd.models.sizing import Cells, budget_bytes, context_size, fit, padded

GIB = 2**30


def header_of(path: Path, architecture: str, *tokens: str, **keys: int | str) -> Path:
    """A GGUF without tensors: enough to be looked at."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        name = key.replace("__", ".")
        if isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_uint32(name, value)
    if tokens:
        writer.add_token_list(list(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def registry(tmp_path: Path) -> Callable[..., ModelRegistry]:
    def make(text: str, budget: int = 8 * GIB) -> ModelRegistry:
        (tmp_path / "shepherd.toml").write_text(text)
        made = config.load(env={"SHEPHERD_TRUST": "1"}, cwd=tmp_path, user_dir=tmp_path / "none")
        return ModelRegistry(made, env={}, machine=Machine(budget))

    return make


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("llama", {}, False),
        ("llama", {"llama__pooling_type": 0}, False),
        ("qwen3", {"qwen3__pooling_type": 3}, True),
        ("qwen3", {"qwen3__pooling_type": 4}, True),
        ("bert", {}, True),
        ("nomic-bert", {}, True),
        ("gemma-embedding", {}, True),
        ("t5encoder", {}, True),
    ],
)
def test_a_file_says_whether_it_cannot_chat(
    tmp_path: Path, architecture: str, keys: dict[str, int], expected: bool
) -> None:
    assert makes_vectors(read_header(header_of(tmp_path / "m.gguf", architecture, **keys))) is expected


@pytest.mark.parametrize(
    ("number", "pooling", "kind"),
    [
        (4, None, "reranker"),
        (1, None, "embedding"),
        (0, None, "chat"),
        (None, None, "chat"),
        (None, "rank", "reranker"),
        (1, "rank", "reranker"),
        (4, "mean", "embedding"),
    ],
)
def test_a_reranker_is_known_by_its_file_or_its_entry(
    tmp_path: Path, number: int | None, pooling: str | None, kind: str
) -> None:
    keys = {} if number is None else {"llama__pooling_type": number}
    assert kind_of(read_header(header_of(tmp_path / "m.gguf", "llama", **keys)), pooling) == kind


@pytest.mark.parametrize(
    ("tokens", "keys", "fills"),
    [
        (["a", "b"], {}, False),
        (["a", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"], {}, True),
        (["a"], {f"tokenizer__ggml__fim_{part}_token_id": 0 for part in ("pre", "suf", "mid")}, True),
        (["a"], {f"tokenizer__ggml__{part}_token_id": 0 for part in ("prefix", "suffix", "middle")}, True),
        (["a"], {"tokenizer__ggml__fim_pre_token_id": 0}, False),
        (["a <|fim_middle|> b"], {}, False),
    ],
)
def test_a_vocabulary_with_tokens_for_a_gap_fills_it(
    registry: Callable[..., ModelRegistry], tmp_path: Path, tokens: list[str], keys: dict[str, int], fills: bool
) -> None:
    path = header_of(tmp_path / "m.gguf", "llama", *tokens, **keys)
    (entry,) = registry(f'[models.m]\npath = "{path}"\n').entries.values()
    card = entry.card
    assert card.capabilities == (("completion", "insert") if fills else ("completion",))


@pytest.mark.parametrize(
    ("said", "keep_alive_s", "stays"),
    [
        ("", inf, True),
        ('load = "demand"', ON_DEMAND_S, False),
        ('keep_alive = "10m"', 600, False),
        ('load = "demand"\nkeep_alive = -1', inf, False),
        ("keep_alive = -1", inf, True),
        ("keep_alive = 0", 0, False),
    ],
)
def test_terms(registry: Callable[..., ModelRegistry], said: str, keep_alive_s: float, stays: bool) -> None:
    entry = registry(f'[models.m]\npath = "embedded"\n{said}\n').entries["m"]
    assert entry.residency == Residency(entry.residency.n_bytes, keep_alive_s, stays)


def test_each_cache_has_its_size_and_all_count(registry: Callable[..., ModelRegistry]) -> None:
    text = (
        '[models.m]\npath = "embedded"\n[caches.a]\nmodel = "m"\nn_ctx = 1000\n'
        '[caches.b]\nmodel = "m"\ncache_type_k = "q8_0"\n'
    )
    entry = registry(text).entries["m"]
    assert [(plan.cache.name, plan.n_ctx, plan.cells.types) for plan in entry.plans] == [
        ("a", 1024, ("f16", "f16")),
        ("b", 4096, ("q8_0", "f16")),
    ]
    alone = registry('[models.m]\npath = "embedded"\n[caches.a]\nmodel = "m"\nn_ctx = 1000\n').entries["m"]
    assert entry.header is not None
    assert entry.residency.n_bytes > alone.residency.n_bytes > entry.header.size_bytes
    assert entry.card.memory_bytes == entry.residency.n_bytes
    assert entry.card.n_slots == sum(plan.cache.sequences for plan in entry.plans) > 0
    assert entry.card.sampling == entry.model.sampling
    assert entry.card.n_ctx == 1024


@pytest.mark.parametrize(("window", "n_ctx"), [("'8x'", 8192), ("4096", 4096), ("'1M'", 2**20), ("1024", 1024)])
def test_a_window_is_what_clients_see(registry: Callable[..., ModelRegistry], window: str, n_ctx: int) -> None:
    card = registry(f'model = "embedded"\n[caches.main]\nn_ctx = 1000\nwindow = {window}\n').entries["lamb"].card
    assert (card.n_ctx, card.n_cells) == (n_ctx, 1024)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("window = 512", "a window of 512 tokens is smaller than the context of 1024"),
        ("window = '2x'\noverflow = 'error'", "in a window, old turns leave the context; leave overflow out"),
    ],
)
def test_a_window_that_cannot_be(registry: Callable[..., ModelRegistry], keys: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry(f'model = "embedded"\n[caches.main]\nn_ctx = 1000\n{keys}\n')


def test_the_weights_of_several_caches_count_once(registry: Callable[..., ModelRegistry], lamb: Path) -> None:
    header = read_header(lamb)
    text = '[models.m]\npath = "embedded"\n' + "".join(f'[caches.{c}]\nmodel = "m"\nn_ctx = 512\n' for c in "ab")
    least = fit(header, [Cells(512)] * 2).least
    assert registry(text, budget=least).entries["m"].residency.n_bytes == least
    with pytest.raises(ConfigError, match=r"caches\.b\.n_ctx"):
        registry(text, budget=least - 1)


def test_models_on_demand_are_sized_for_what_those_that_stay_leave(registry: Callable[..., ModelRegistry]) -> None:
    text = '[models.a]\npath = "embedded"\n[models.b]\npath = "embedded"\n[models.c]\npath = "embedded"\n'
    entries = registry(text, budget=100 * 2**20).entries
    sizes = {name: entry.plans[0].n_ctx for name, entry in entries.items() if entry.plans}
    assert sizes["a"] >= sizes["b"] == sizes["c"]
    assert all(entry.residency.n_bytes <= 100 * 2**20 for entry in entries.values())


def test_a_model_that_is_too_large_is_refused_at_the_start_and_told_of_on_demand(
    registry: Callable[..., ModelRegistry], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"caches\.m\.model: lamb\.gguf needs .* MiB is free; choose a smaller model"):
        registry('[models.m]\npath = "embedded"\n', budget=2**20)
    text = (
        '[models.a]\npath = "embedded"\n[models.big]\npath = "embedded"\n'
        '[caches.a]\nmodel = "a"\n[caches.big]\nmodel = "big"\nn_ctx = 10000000\n'
    )
    with pytest.raises(ConfigError, match=r"caches\.big\.n_ctx"):
        registry(text, budget=2**30)
    entry = registry(text.replace("[models.big]", '[models.big]\nload = "demand"'), budget=2**30).entries["big"]
    assert "caches.big.n_ctx" in entry.problem
    assert "'big' cannot be loaded now" in caplog.text
    assert entry.header is None


def test_a_model_that_is_added_has_nothing_that_was_said_of_another(
    registry: Callable[..., ModelRegistry], tmp_path: Path, lamb: Path
) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    shutil.copy(lamb, tmp_path / "other.gguf")
    entry = (
        'path = "embedded"\nn_threads = 3\nconstrain_calls = false\ndialect = "plain"\nchat_template = "own.jinja"\n'
    )

    def added(sampling: str, spec: str) -> ModelConfig:
        said = (
            f"{sampling}\n[models.m]\n{entry}[models.m.sampling]\ntop_k = 9\n[caches.main]\nmodel = 'm'\nn_ctx = 512\n"
        )
        made = registry(said)
        cache = made.add(spec, "main")
        assert (cache.n_ctx, cache.model) == (512, model_name(spec))
        return made.entries[cache.model].model

    other = str(tmp_path / "other.gguf")
    plain = ModelConfig("other", other, n_threads=3, load="demand", keep_alive=-1.0)
    assert added("", other) == plain, "only the embedded model is greedy"
    told = Sampling(temperature=0, top_p=0.5)
    assert added("[sampling]\ntemperature = 0\ntop_p = 0.5", other) == replace(plain, sampling=told)


def test_the_memorys_model_is_one_of_them_by_its_file(registry: Callable[..., ModelRegistry], lamb: Path) -> None:
    alone = registry(f'[models.m]\npath = "embedded"\n[memory]\nembedding_model = "{lamb}"\n')
    assert alone.memory == "lamb"
    assert alone.entries["lamb"].makes_vectors
    assert alone.entries["lamb"].residency.stays
    own = registry(
        f'[models.m]\npath = "embedded"\n[models.v]\npath = "{lamb}"\npooling = "mean"\n'
        f'[memory]\nembedding_model = "{lamb}"\n'
    )
    assert own.memory == "v"
    assert [entry.card.id for entry in own.entries.values()] == ["m", "v"]


def test_the_length_that_is_read_for_a_vector_is_that_of_the_models_cache(
    registry: Callable[..., ModelRegistry],
) -> None:
    text = '[models.v]\npath = "embedded"\npooling = "mean"\n'
    assert registry(text).entries["v"].n_tokens is None
    assert registry(f'{text}[caches.v]\nmodel = "v"\nn_ctx = 300\n').entries["v"].n_tokens == 300


def test_a_window_for_a_model_that_makes_vectors_is_ignored_and_that_is_said(
    registry: Callable[..., ModelRegistry], caplog: pytest.LogCaptureFixture
) -> None:
    made = registry('[models.v]\npath = "embedded"\npooling = "mean"\n[caches.c]\nmodel = "v"\nwindow = "8x"\n')
    assert made.entries["v"].makes_vectors
    (record,) = caplog.records
    assert "caches.c.window is ignored" in record.getMessage()


@pytest.mark.parametrize(("said", "expected"), [(123, 123), (0.5, 50 * GIB), (1.0, 100 * GIB), (None, 39 * GIB)])
def test_the_budget_is_what_is_said_or_what_is_free_but_for_a_reserve(said: int | float | None, expected: int) -> None:
    assert budget_bytes(said, free=40 * GIB, total=100 * GIB) == expected
    assert budget_bytes(None, free=1600, total=9999) == 1500


@pytest.mark.model
def test_the_budget_is_of_the_memory_where_the_models_will_be() -> None:
    from shepherd.engine.llamacpp.library import gpu_memory

    machine = psutil.virtual_memory()
    cpu_only = config.Config(models=(config.ModelConfig("m", gpu_layers=0),), memory_budget=1.0)
    assert machine_of(cpu_only).budget_bytes == machine.total
    cards = gpu_memory()
    anywhere = replace(cpu_only, models=(config.ModelConfig("m"),))
    assert machine_of(anywhere).budget_bytes == (cards.total if cards else machine.total)
    split = replace(cpu_only, models=(config.ModelConfig("m", gpu_layers=3),))
    assert machine_of(split).budget_bytes == machine.total + (cards.total if cards else 0)
    itself = gpu_memory(kind=0)  # the CPU, which is told of in the same way
    assert itself is not None
    assert 0 < itself.free <= itself.total == machine.total


def test_a_context_nobody_has_sized_takes_half_of_what_the_weights_leave(lamb: Path) -> None:
    header = read_header(lamb)

    def size(room: int) -> int:
        return context_size(header, cache="c", cells=Cells(0), is_loaded=False, room=room)

    assert size(8 * GIB) == 4096
    small = size(header.size_bytes + 8 * 2**20)
    assert 1024 <= small < 4096
    assert padded(1000) == 1024


def test_a_chat_model_opened_for_vectors_has_a_key_of_its_own_whatever_others_are_called(
    registry: Callable[..., ModelRegistry],
) -> None:
    found = registry('[models.m]\npath = "embedded"\n["models"."m (vectors)"]\npath = "embedded"\n')
    assert [entry.card.id for entry in found.entries.values()] == ["m", "m (vectors)"]
    assert len(found.residencies()) == 4
    assert [found.get(key).key == key for key in found.residencies()] == [True] * 4
    assert found.embedders["m"].makes_vectors
    assert not found.entries["m (vectors)"].makes_vectors


ADAPTED = """
[models.lamb]
path = "embedded"
[[models.lamb.adapters]]
path = "law.gguf"
[caches.main]
model = "lamb"
n_ctx = 512
"""


def test_adapters_count_in_the_memory_of_their_model(tmp_path: Path, registry: Callable[..., ModelRegistry]) -> None:
    without = registry(ADAPTED.replace('[[models.lamb.adapters]]\npath = "law.gguf"\n', ""))
    write_lora(tmp_path / "law.gguf", read_header(embedded()), seed=1)
    entry, bare = registry(ADAPTED).entries["lamb"], without.entries["lamb"]
    assert entry.adapters is not None
    n_bytes = entry.adapters.adapters[0].n_bytes
    assert n_bytes > 10_000
    assert entry.residency.n_bytes - bare.residency.n_bytes == n_bytes
    assert bare.adapters is None
    embedder = registry(ADAPTED).embedders["lamb"]
    assert (embedder.adapters, embedder.residency.n_bytes) == (None, without.embedders["lamb"].residency.n_bytes)


def test_names_with_adapters_are_names_of_the_model(tmp_path: Path, registry: Callable[..., ModelRegistry]) -> None:
    write_lora(tmp_path / "law.gguf", read_header(embedded()), seed=1)
    assert registry(ADAPTED).adapter_names() == {"lamb:law": "lamb"}


def test_an_adapter_that_does_not_fit_stops_the_start(tmp_path: Path, registry: Callable[..., ModelRegistry]) -> None:
    with pytest.raises(ConfigError, match=r"law\.gguf: this model file does not exist"):
        registry(ADAPTED)
    write(RECIPES["qwen2"], tmp_path / "qwen2.gguf")
    write_lora(tmp_path / "law.gguf", read_header(tmp_path / "qwen2.gguf"), seed=1)
    with pytest.raises(
        ConfigError, match=r"law\.gguf: is an adapter for qwen2 models, but lamb\.gguf is a llama model"
    ):
        registry(ADAPTED)
    write(RECIPES["plain"], tmp_path / "other.gguf")
    write_lora(tmp_path / "law.gguf", read_header(tmp_path / "other.gguf"), seed=1)
    with pytest.raises(ConfigError, match=r"lamb\.gguf: 'blk\.0\.attn_q\.weight' is 256 x 256.*another model"):
        registry(ADAPTED)


def test_a_model_that_makes_vectors_takes_no_adapters(tmp_path: Path, registry: Callable[..., ModelRegistry]) -> None:
    write_lora(tmp_path / "law.gguf", read_header(embedded()), seed=1)
    with pytest.raises(ConfigError, match=r"models\.lamb\.adapters: .*makes vectors.*without adapters"):
        registry(ADAPTED.replace('path = "embedded"', 'path = "embedded"\npooling = "mean"'))


# -- over several machines ---------------------------------------------------------------------------------------------

SPREAD = '[models.m]\npath = "embedded"\nrpc_servers = ["10.0.0.5:50052", "box:1"]\n[caches.m]\nmodel = "m"\n'


@pytest.fixture
def spread(tmp_path: Path) -> Callable[..., ModelRegistry]:
    """With workers that lend so many bytes, or raise."""

    def make(text: str, budget: int, lent: int | ShepherdError) -> ModelRegistry:
        def elsewhere(servers: Sequence[str]) -> int:
            assert tuple(servers) in {(), ("10.0.0.5:50052", "box:1")}
            if isinstance(lent, ShepherdError):
                raise lent
            return lent if servers else 0

        (tmp_path / "shepherd.toml").write_text(text)
        made = config.load(env={"SHEPHERD_TRUST": "1"}, cwd=tmp_path, user_dir=tmp_path / "none")
        return ModelRegistry(made, env={}, machine=Machine(budget, elsewhere=elsewhere))

    return make


def test_a_model_that_is_too_large_for_this_machine_alone_is_not_refused(
    spread: Callable[..., ModelRegistry], registry: Callable[..., ModelRegistry]
) -> None:
    header = read_header(embedded())
    room = header.size_bytes // 2
    with pytest.raises(ConfigError, match="of memory"):
        registry(SPREAD.replace("rpc_servers", "tags"), budget=room)
    (entry,) = spread(SPREAD, room, 8 * GIB).entries.values()
    assert entry.plans[0].n_ctx == padded(header.n_ctx_train or 0)
    assert entry.residency.n_bytes == entry.card.memory_bytes <= room
    (roomy,) = spread(SPREAD, 8 * GIB, 8 * GIB).entries.values()
    assert roomy.residency.n_bytes < header.size_bytes, "only its input stays"
    (few,) = spread(SPREAD + "n_ctx = 256", room, header.size_bytes).entries.values()
    assert few.plans[0].n_ctx == 256


def test_what_workers_and_this_machine_have_together_decides(spread: Callable[..., ModelRegistry]) -> None:
    with pytest.raises(ConfigError, match=r"lamb\.gguf needs .* of memory, .* is free"):
        spread(SPREAD, 2**20, 2**20)
    kept = SPREAD.replace("[caches.m]", "gpu_layers = 0\n[caches.m]")
    with pytest.raises(ConfigError, match=r"models\.m\.gpu_layers: .* of this machine beside that of its workers"):
        spread(kept, read_header(embedded()).size_bytes // 2, 8 * GIB)
    (entry,) = spread(kept, 8 * GIB, GIB).entries.values()
    assert entry.residency.n_bytes > read_header(embedded()).size_bytes


def test_a_worker_that_does_not_answer_is_named_at_the_start_or_at_a_later_request(
    spread: Callable[..., ModelRegistry],
) -> None:
    lost = EngineDown("nothing listens at box:1")
    with pytest.raises(ConfigError, match=r"^models\.m\.rpc_servers: nothing listens at box:1$"):
        spread(SPREAD, GIB, lost)
    made = spread(SPREAD.replace("[caches.m]", 'load = "demand"\n[caches.m]'), GIB, lost)
    assert made.entries["m"].problem == "models.m.rpc_servers: nothing listens at box:1"
    with pytest.raises(ConfigError, match="nothing listens"):
        made.reread("m")


# draft models


DRAFTED = """
[models.big]
path = "embedded"
draft = "{draft}"
[caches.one]
model = "big"
n_ctx = 1024
[caches.two]
model = "big"
n_ctx = 2048
sequences = 2
{cache}
"""


def test_a_draft_model_and_its_contexts_are_counted(registry: Callable[..., ModelRegistry]) -> None:
    header = read_header(embedded())

    def needed(drafting: str, cache: str = "") -> int:
        return registry(DRAFTED.format(draft=drafting, cache=cache)).entries["big"].residency.n_bytes

    alone, with_draft = needed("none"), needed("embedded")
    cells = [draft.cells_of(header, n_ctx, n, flash_attention=False) for n_ctx, n in ((1024, 4), (2048, 2))]
    assert with_draft - alone == fit(header, cells).needed, "the weights once, a context for each cache"
    assert needed("embedded", 'draft = "none"') - alone == fit(header, cells[:1]).needed
    assert needed("none", 'draft = "embedded"') - alone == fit(header, cells[1:]).needed


def test_a_cache_of_repeatable_answers_has_no_draft_model(registry: Callable[..., ModelRegistry]) -> None:
    text = DRAFTED.replace("sequences = 2", "repeatable = true")
    plans = registry(text.format(draft="embedded", cache="")).entries["big"].plans
    assert [plan.draft is not None for plan in plans] == [True, False]
    with pytest.raises(ConfigError, match=r"caches\.two\.draft: a repeatable answer is computed without drafts"):
        registry(text.format(draft="none", cache='draft = "embedded"'))


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("missing.gguf", "this model file does not exist"),
        ("other.gguf", "has a vocabulary of 300 tokens, lamb.gguf one of 2048; name another draft model"),
        ("bert.gguf", "bert.gguf makes vectors or scores, and guesses no text"),
        ("broken.gguf", "is a web page, not GGUF"),
    ],
)
def test_what_cannot_draft_is_refused_by_its_key(
    registry: Callable[..., ModelRegistry], tmp_path: Path, file: str, says: str
) -> None:
    words = [f"word{n}" for n in range(300)]
    write(RECIPES["plain-1"], tmp_path / "other.gguf", Vocabulary("gpt2", words, [1] * 300, [0.0] * 300))
    header_of(tmp_path / "bert.gguf", "bert", *words)
    (tmp_path / "broken.gguf").write_bytes(b"<html>")
    for text, key in (
        (DRAFTED.format(draft=tmp_path / file, cache=""), "models.big.draft: "),
        (DRAFTED.format(draft="none", cache=f'draft = "{tmp_path / file}"'), "caches.two.draft: "),
    ):
        with pytest.raises(ConfigError) as raised:
            registry(text)
        assert raised.value.message.startswith(key)
        assert says in raised.value.message
        assert raised.value.message.count(str(tmp_path / file)) <= 1


def test_a_model_of_vectors_has_no_draft_model(registry: Callable[..., ModelRegistry], tmp_path: Path) -> None:
    header_of(tmp_path / "bert.gguf", "bert", "a", "b")
    with pytest.raises(ConfigError, match=r"models\.m\.draft: bert\.gguf makes vectors or scores"):
        registry(f'[models.m]\npath = "{tmp_path}/bert.gguf"\ndraft = "embedded"\n')
