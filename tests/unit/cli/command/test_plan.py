"""`shepherd plan`: what a model needs for so many users, and the configuration to run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.hub import Hub, NoRanges
from tests.unit.cli.conftest import Home
from tests.unit.engine import tiny_gguf
from tests.unit.models.test_outline import SMALL

from shepherd import config as configuration
from shepherd.cli.command.plan import fragment
from shepherd.config import Config
from shepherd.models import catalog, gguf, plan
from shepherd.models.machines import parse
from shepherd.models.pull.head import FIRST_BYTES
from shepherd.models.sizing import Cells

pytestmark = pytest.mark.model


def planned(home: Home, *arguments: str | Path) -> dict[str, Any]:
    done = home.run("plan", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def loaded(text: str, folder: Path) -> Config:
    """The configuration that our own loader reads from a fragment."""
    file = folder / "planned.toml"
    file.write_text(text)
    return configuration.load(env={}, cwd=folder, user_dir=folder, file=file)


def test_a_suggestion_is_planned_before_it_is_here(home: Home) -> None:
    done = home.run("plan", "Qwen3 8B", "--users", "4", "--context", "8k", "--machine", "4090")
    assert done.returncode == 0, done.stderr
    assert "8.2 billion parameters" in done.stderr
    assert "4.7 GiB of weights, 144.0 KiB of cache for a token" in done.stderr
    assert "Use 4090, llama.cpp." in done.stderr
    assert "estimates from their makers' figures" in done.stderr
    config = loaded(done.stdout, home.folder)
    (model,), (cache,) = config.models, config.caches
    assert (model.path, model.gpu_layers) == ("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", -1)
    assert (cache.n_ctx, cache.sequences) == (4 * 8192, 4)
    assert config.warnings == ()


def test_the_json_has_the_ways_the_choice_and_the_configuration(home: Home) -> None:
    found = planned(home, "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", "--users", "4", "--machine", "2x3090")
    assert found["token_bytes"] == 144 * 1024
    assert [way["way"] for way in found["ways"]] == ["one", "several", "upstream"]
    assert found["use"] == found["ways"][0]
    assert found["use"]["problem"] is None
    assert found["use"]["alone"] > found["use"]["each"] > 0
    assert loaded(found["config"], home.folder).warnings == ()


def test_many_users_are_sent_to_a_server_for_many(home: Home) -> None:
    done = home.run("plan", "Qwen3 8B", "--users", "200", "--context", "4096", "--machine", "2xh100")
    assert done.returncode == 0, done.stderr
    assert "computes at most 64 conversations at once" in done.stderr
    served = "vllm serve Qwen/Qwen3-8B --max-model-len 4096 --max-num-seqs 200 --tensor-parallel-size 2"
    assert served in done.stdout
    config = loaded(done.stdout, home.folder)
    (provider,) = (each for each in config.providers if each.is_declared)
    assert (provider.type, provider.n_ctx, config.warnings) == ("vllm", 4096, ())
    assert config.routes[0].provider == "upstream"


def test_two_servers_are_replicas_that_share_the_users(home: Home) -> None:
    found = planned(home, "Qwen3 8B", "--users", "300", "--context", "2048", "--machine", "h100", "--machine", "h100")
    assert found["use"]["title"] == "h100 + h100, vLLM or the like"
    config = loaded(found["config"], home.folder)
    group = next(each for each in config.providers if each.name == "upstream")
    assert (group.replicas, config.warnings) == (("upstream-1", "upstream-2"), ())
    assert "--max-num-seqs 150" in found["config"]
    user_bytes = 2048 * found["token_bytes"]
    assert found["use"]["memory_bytes"] == 2 * found["weights_bytes"] + 300 * user_bytes


def test_two_machines_are_joined_by_the_network(home: Home) -> None:
    done = home.run("plan", "gpt-oss 120B", "--machine", "m4-pro", "--machine", "m1-max", "--network", "10G")
    assert done.returncode == 0, done.stderr
    assert "Use m4-pro + m1-max, llama.cpp over RPC." in done.stderr
    assert 'rpc_servers = ["worker-1.local:50052"]' in done.stdout
    assert "# On worker-1, the m1-max: shepherd rpc-worker --host ITS_ADDRESS" in done.stdout
    assert loaded(done.stdout, home.folder).warnings == ()


@pytest.mark.parametrize("kind", ["one", "several", "rpc", "upstream"])
@pytest.mark.parametrize("spec", ["embedded", "hf:a/b:Q4_K_M", "/models/a b.gguf", "ollama:qwen3:8b", 'Ünï "code"'])
def test_a_fragment_of_every_way_is_one_that_our_loader_reads(kind: plan.Kind, spec: str, tmp_path: Path) -> None:
    boxes = (parse("2x3090"), parse("4090"))[: 2 if kind == "rpc" else 1]
    need = plan.Need(3, 1024, Cells(3072, ("q8_0", "q8_0")))
    text = fragment(plan.Way(kind, boxes, 1, 2), spec, need, n_layer=12, note="First: pull it")
    config = loaded(text, tmp_path)
    assert config.warnings == ()
    if kind != "upstream":
        assert (config.models[0].cache_type_k, config.caches[0].sequences) == ("q8_0", 3)


@pytest.mark.parametrize(
    ("spec", "served", "says"),
    [
        ("embedded", "lamb", "lamb stands for a checkpoint of this model"),
        ("ollama:qwen3:8b", "qwen3-8b", "qwen3-8b stands for a checkpoint"),
        ("/models/a b.gguf", "a-b", "a-b stands for a checkpoint"),
        ("hf:ggml-org/gpt-oss-120b-GGUF:MXFP4", "ggml-org/gpt-oss-120b", "take what ggml-org/gpt-oss-120b-GGUF was"),
        ("hf:openai/gpt-oss-120b", "openai/gpt-oss-120b", ""),
    ],
)
def test_a_server_for_many_is_started_with_a_checkpoint(spec: str, served: str, says: str) -> None:
    """It does not know our names, and reads no file of Ollama's."""
    way = plan.Way("upstream", (parse("h100"),), 1, 2)
    text = fragment(way, spec, plan.Need(3, 1024, Cells(3072)), n_layer=12)
    assert f"vllm serve {served} --max-model-len" in text
    assert f'model = "{served}"' in text
    assert says in text
    assert ("stands for" in text or "was made from" in text) is bool(says)


def test_the_threads_of_a_plan_are_those_of_its_configuration(home: Home) -> None:
    """`--threads` decides its figures."""
    found = planned(home, "embedded", "--machine", "ram=8GiB,bandwidth=20,tflops=1", "--threads", "3")
    assert loaded(found["config"], home.folder).models[0].n_threads == 3


def test_a_processor_keeps_its_share_of_the_layers_beside_workers() -> None:
    boxes = (parse("ram=32GiB,bandwidth=50,tflops=1"), parse("3090"), parse("3090"))
    need = plan.Need(1, 1024, Cells(1024))
    text = fragment(plan.Way("rpc", boxes, 1, 2), "a.gguf", need, n_layer=80)
    assert "gpu_layers = 48" in text, "30 GiB of 75 stay here"
    assert 'rpc_servers = ["worker-1.local:50052", "worker-2.local:50052"]' in text


def test_what_fits_nowhere_says_what_would_and_fails(home: Home) -> None:
    done = home.run("plan", "gpt-oss 120B", "--machine", "3060")
    assert (done.returncode, done.stdout) == (1, "")
    assert "It fits nowhere here." in done.stderr
    assert "Not 3060, llama.cpp: it needs " in done.stderr
    assert "It would fit --machine " in done.stderr


def test_a_file_of_this_machine_is_read(home: Home) -> None:
    tiny_gguf.write(tiny_gguf.RECIPES["delta"], home.folder / "tiny.gguf")
    found = planned(home, home.folder / "tiny.gguf", "--context", "4096", "--machine", "m4")
    assert found["state_bytes"] > 0
    assert found["use"]["way"] == "one"
    assert str(home.folder / "tiny.gguf") in found["config"]
    done = home.run("plan", home.folder / "tiny.gguf", "--context", "5000", "--machine", "m4")
    assert "give a number from 1 to the 4,096 tokens that tiny.gguf was trained for" in done.stderr


@pytest.mark.parametrize("name", ["config.json", ""])
def test_the_configuration_of_a_checkpoint_is_enough(name: str, home: Home) -> None:
    folder = home.folder / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL))
    done = home.run("plan", folder / name, "--context", "2048", "--machine", "4090", "--quant", "Q8_0")
    assert done.returncode == 0, done.stderr
    assert "# path: a GGUF file of this model in Q8_0" in done.stdout
    assert 'path = "checkpoint-Q8_0.gguf"' in done.stdout


def test_the_weights_of_a_checkpoint_are_those_of_its_files(home: Home) -> None:
    folder = home.folder / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL | {"architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(5_000_000)
    assert planned(home, folder, "--context", "2048", "--machine", "4090")["weights_bytes"] == 5_000_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing",), "no model is called 'nothing'"),
        (("n" * 5000,), "no model is called"),
        (("~nobody/x.gguf",), "does not exist"),
        (("embedded", "--users", "0"), "'0' is not a whole number of at least 1"),
        (("embedded", "--users", "9999999"), "users is 9,999,999; give a number from 1 to 1,000,000"),
        (("embedded", "--context", "0"), "context is 0 tokens; give a number from 1 to the 4,096"),
        (("embedded", "--context", "8k"), "the 4,096 tokens that lamb.gguf was trained for"),
        (("embedded", "--machine", "3091"), "did you mean 3090? Known are this, 3060"),
        (("embedded", "--network", "fast"), "network is 'fast'; give its bits per second"),
        (("embedded", "--quant", "Q9"), "quant is 'Q9'; give one of F32"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(arguments: tuple[str, ...], says: str, home: Home) -> None:
    done = home.run("plan", *arguments, *(() if "--machine" in arguments else ("--machine", "4090")))
    assert done.returncode != 0
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_of_a_remote_model_only_the_head_is_read(home: Home) -> None:
    content = catalog.embedded().read_bytes()
    assert len(content) > FIRST_BYTES
    with Hub() as hub:
        hub.put_repo("some/tiny-GGUF", {"tiny-Q8_0.gguf": content})
        hub.put_repo("some/tiny", {"config.json": json.dumps(SMALL).encode()})
        home.env["HF_ENDPOINT"] = hub.url
        for name in ("hf:some/tiny-GGUF", "hf:some/tiny-GGUF:Q8_0"):
            found = planned(home, name, "--context", "4096", "--machine", "4090")
            assert found["weights_bytes"] == gguf.read_header(catalog.embedded()).size_bytes
            assert found["config"].startswith("# First: shepherd pull hf:some/tiny-GGUF")
        assert set(hub.ranges("cdn")) == {f"bytes=0-{FIRST_BYTES - 1}"}
        hub.fail("cdn", NoRanges())
        assert planned(home, "hf:some/tiny-GGUF", "--machine", "4090")["parameters"] == found["parameters"]
        plain = planned(home, "hf:some/tiny", "--context", "2048", "--machine", "4090")
        assert plain["token_bytes"] == 4 * 2 * 128 * 2
        missing = home.run("plan", "hf:some/nothing", "--machine", "4090")
        assert "nothing" in missing.stderr
        assert missing.returncode == 1


def test_what_is_no_model_at_its_source_is_told(home: Home) -> None:
    with Hub() as hub:
        hub.put_repo("some/bad-GGUF", {"bad-Q8_0.gguf": b"GGUF" + b"\xff" * 5000})
        home.env["HF_ENDPOINT"] = hub.url
        done = home.run("plan", "hf:some/bad-GGUF:Q8_0", "--machine", "4090")
        assert done.returncode == 1
        assert "is no readable GGUF file" in done.stderr


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("shepherd plan embedded --machine m4", ["m4", "m4-max", "m4-pro"]),
        ("shepherd plan embedded --machine th", ["this"]),
        ("shepherd plan embedded --quant Q5_K", ["Q5_K_M", "Q5_K_S"]),
        ("shepherd plan hf:Qwen/Qwen3-14B", ["hf:Qwen/Qwen3-14B-GGUF:Q4_K_M"]),
    ],
)
def test_machines_formats_and_models_are_completed(line: str, found: list[str], home: Home) -> None:
    words = {"_SHEPHERD_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    home.env |= words
    assert [each.partition(",")[2] for each in home.run().stdout.split() if each.startswith("plain,")] == found
