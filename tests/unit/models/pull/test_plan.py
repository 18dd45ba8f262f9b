"""Which source a text names, and which files of a repository are taken."""

from __future__ import annotations

import pytest

from shepherd.core import InvalidRequest
from shepherd.models.pull.network import retry_after_s
from shepherd.models.pull.plan import Candidate, RepoFile, candidates, choose, projector
from shepherd.models.pull.source import HubSource, OllamaSource, Source, UrlSource, parse, parse_ollama

GB = 10**9
HOST = "registry.ollama.ai"


@pytest.mark.parametrize(
    ("text", "source", "spec"),
    [
        ("hf:o/r", HubSource("o/r"), "hf:o/r"),
        ("hf:o/r:Q4_K_M", HubSource("o/r", "Q4_K_M"), "hf:o/r:Q4_K_M"),
        ("hf.co/o/r:q8_0", HubSource("o/r", "q8_0"), "hf:o/r:q8_0"),
        ("https://huggingface.co/o/r", HubSource("o/r"), "hf:o/r"),
        ("https://huggingface.co/o/r/resolve/main/a/x-Q4_0.gguf?download=true", HubSource("o/r", "x-Q4_0.gguf"), None),
        ("https://hf.co/o/r/blob/main/x.gguf", HubSource("o/r", "x.gguf"), "hf:o/r:x.gguf"),
        ("ollama:qwen3", OllamaSource(HOST, "library", "qwen3", "latest"), "ollama:qwen3:latest"),
        ("ollama:qwen3:8b", OllamaSource(HOST, "library", "qwen3", "8b"), "ollama:qwen3:8b"),
        ("ollama:me/qwen3:8b", OllamaSource(HOST, "me", "qwen3", "8b"), "ollama:me/qwen3:8b"),
        ("ollama:hf.co/o/r:Q4_0", OllamaSource("hf.co", "o", "r", "Q4_0"), "ollama:hf.co/o/r:Q4_0"),
        ("ollama:10.0.0.1:5000/library/a", OllamaSource("10.0.0.1:5000", "library", "a", "latest"), None),
        ("http://h/a/x.gguf", UrlSource("http://h/a/x.gguf"), "http://h/a/x.gguf"),
        ("https://h/x.GGUF?a=b#c", UrlSource("https://h/x.GGUF?a=b"), "https://h/x.GGUF?a=b"),
    ],
)
def test_every_form_of_a_source_is_read(text: str, source: Source, spec: str | None) -> None:
    found = parse(text)
    assert found == source
    assert spec is None or found.spec == spec
    assert parse(found.spec) == found


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("o/r", "did you mean hf:o/r?"),
        ("o/r:Q4_0", "did you mean hf:o/r:Q4_0?"),
        ("qwen3:8b", "did you mean ollama:qwen3:8b?"),
        ("", "give hf:owner/repo"),
        ("hf:r", "give hf:owner/repo"),
        ("hf:../x", "give hf:owner/repo"),
        ("hf:o/..", "give hf:owner/repo"),
        ("hf:o/r:a/b", "give hf:owner/repo"),
        ("ollama:../../x", "give hf:owner/repo"),
        ("ollama:a:..", "give hf:owner/repo"),
        ("ollama:", "give hf:owner/repo"),
        ("https://h/page.html", "not the address of a file whose name ends in .gguf"),
        ("https://h/%2e%2e%2fx.gguf/..", "not the address of a file"),
        ("https:///x.gguf", "is no address"),
        ("https://h:99999/x.gguf", "is no address"),
        ("http://[/x.gguf", "is no address"),
        ("x" * 5000, "give hf:owner/repo"),
    ],
)
def test_anything_else_gets_one_sentence(text: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert hint in caught.value.message
    assert len(caught.value.message) < 600


def test_a_client_of_ollama_means_ollama() -> None:
    assert parse_ollama("qwen3") == OllamaSource(HOST, "library", "qwen3", "latest")
    assert parse_ollama("hf.co/o/r:Q4_0") == parse_ollama("hf:o/r:Q4_0") == HubSource("o/r", "Q4_0")
    assert parse_ollama("me/x:1b") == OllamaSource(HOST, "me", "x", "1b")


def of(**sizes: float) -> list[Candidate]:
    return candidates(RepoFile(f"m-{kind}.gguf", int(size * GB)) for kind, size in sizes.items())


EIGHT_B = {"BF16": 16.4, "Q8_0": 8.7, "Q6_K": 6.7, "Q5_K_M": 5.9, "Q4_K_M": 5.0, "Q3_K_M": 4.1, "Q2_K": 3.3}
SMALL = {"BF16": 1.2, "Q8_0": 0.64, "Q4_K_M": 0.4}


@pytest.mark.parametrize(
    ("sizes", "memory_gb", "label"),
    [
        (EIGHT_B, 6.2, "Q4_K_M"),
        (EIGHT_B, 32, "Q4_K_M"),
        (EIGHT_B, 70, "Q8_0"),
        (EIGHT_B, 6.0, "Q3_K_M"),
        (EIGHT_B, 4.5, "Q2_K"),
        (EIGHT_B, None, "Q4_K_M"),
        (SMALL, 8, "Q8_0"),
        (SMALL, 2, "Q4_K_M"),
        ({"MXFP4": 12.1, "F16": 13.8}, 16, "MXFP4"),
        ({"Q8_0": 5.0, "F16": 10}, 16, "Q8_0"),
        ({"IQ3_M": 5.0, "IQ2_M": 4.0}, 16, "IQ3_M"),
    ],
)
def test_the_memory_chooses_the_format(sizes: dict[str, float], memory_gb: float | None, label: str) -> None:
    memory = None if memory_gb is None else int(memory_gb * GB)
    chosen, why = choose("o/r", of(**sizes), "", memory)
    assert chosen.label == label
    assert why.startswith(label)


def test_where_nothing_fits_the_smallest_is_named_and_may_be_pulled_all_the_same() -> None:
    with pytest.raises(InvalidRequest, match=r"smallest, Q2_K \(3.1 GiB\), needs about .* hf:o/r:Q2_K"):
        choose("o/r", of(**EIGHT_B), "", 3 * GB)
    assert choose("o/r", of(**EIGHT_B), "Q2_K", 3 * GB)[0].label == "Q2_K"
    with pytest.raises(InvalidRequest):
        choose("o/r", of(**EIGHT_B), "", 9 * GB // 2, extra_bytes=2 * GB)


def test_shards_and_folders_are_models_and_all_else_is_not() -> None:
    files = [
        RepoFile("Q8_0/m-Q8_0-00002-of-00002.gguf", 2),
        RepoFile("Q8_0/m-Q8_0-00001-of-00002.gguf", 3),
        RepoFile("UD-Q4_K_XL/model-00001-of-00001.gguf", 4),
        RepoFile("m-Q6_K-00001-of-00002.gguf", 4),
        RepoFile("mmproj-F16.gguf", 1),
        RepoFile("m-imatrix.gguf", 1),
        RepoFile("README.md", 1),
        RepoFile("._x.gguf", 1),
    ]
    found = candidates(files)
    assert [(each.label, each.folder, each.size_bytes) for each in found] == [
        ("Q8_0", "m-Q8_0", 5),
        ("UD-Q4_K_XL", "UD-Q4_K_XL", 4),
    ]
    assert [file.path[-19:-5] for file in found[0].files] == ["00001-of-00002"] * 1 + ["00002-of-00002"]
    assert choose("o/r", found, "ud-q4_k_xl", None)[0] == found[1]
    assert choose("o/r", found, "q8_0", None)[0] == choose("o/r", found, "m-q8_0", None)[0] == found[0]


def test_a_label_of_two_models_asks_for_the_name_of_one() -> None:
    found = candidates([RepoFile("a-Q4_0.gguf", 1), RepoFile("b-Q4_0.gguf", 1), RepoFile("a-UD-Q4_0.gguf", 1)])
    with pytest.raises(InvalidRequest, match="several models in q4_0: name one of a-Q4_0, b-Q4_0"):
        choose("o/r", found, "q4_0", None)
    assert choose("o/r", found, "b-Q4_0", None)[0].folder == "b-Q4_0"
    assert choose("o/r", found, "UD-Q4_0", None)[0].folder == "a-UD-Q4_0"


def test_the_projector_beside_the_model_comes_with_it_f16_first() -> None:
    top = [RepoFile("mmproj-m-f32.gguf", 4), RepoFile("mmproj-m-bf16.gguf", 2), RepoFile("m.mmproj-f16.gguf", 2)]
    (here,) = candidates([RepoFile("m-Q4_0.gguf", 1)])
    (below,) = candidates([RepoFile("x/m-Q8_0.gguf", 1)])
    beside = RepoFile("x/mmproj.gguf", 1)
    assert projector([*top, beside], here) == top[2]
    assert projector([*top, beside], below) == beside
    assert projector(top, below) == top[2]
    assert projector([beside], here) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({"retry-after": "-1"}, None),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"ratelimit": "x"}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds
