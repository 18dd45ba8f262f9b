"""The tests of `tests/unit/engine/test_reranking.py` that take long."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.llama_server import llama_server
from tests.unit.engine.test_reranking import DOCUMENTS, MANY, asked, decoder, encoder  # noqa: F401 - fixtures
from tests.unit.engine.tiny_bert import write_bert
from tests.unit.engine.tiny_qwen3 import TEMPLATE, write_qwen3

from shepherd.engine.llamacpp.reranking import RerankModel

pytestmark = pytest.mark.model


@pytest.mark.parametrize("kind", ["encoder", "several labels", "decoder", "decoder without a template"])
def test_scores_and_tokens_are_those_of_llama_server(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "made.gguf"
    if kind.startswith("decoder"):
        write_qwen3(path, template=None if "without" in kind else TEMPLATE)
    else:
        write_bert(path, pooling=4, n_labels=3 if "several" in kind else 1, n_ctx=512)
    documents = [*DOCUMENTS[:2], *DOCUMENTS[3:], *MANY, "a b c d e f g h " * 20]
    with llama_server(path, "--rerank", "--no-warmup") as url, RerankModel.load(path, n_threads=1) as model:

        def theirs(query: str, documents: list[str]) -> tuple[list[float], int]:
            body = json.dumps({"query": query, "documents": documents}).encode()
            request = urllib.request.Request(f"{url}/v1/rerank", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                found = json.load(answer)
            results = sorted(found["results"], key=lambda each: each["index"])
            return [each["relevance_score"] for each in results], found["usage"]["prompt_tokens"]

        for document in [*documents[:12], documents[-1]]:
            ours = model.score(asked("k l m n o p a", [document]))
            assert (list(ours.values), sum(ours.n_tokens)) == theirs("k l m n o p a", [document])
        scores, n_tokens = theirs("a b", documents)
        ours = model.score(asked("a b", documents))
        assert n_tokens == sum(ours.n_tokens)
        # In what company a pair is computed changes its score a little, theirs as well.
        assert np.allclose(ours.values, scores, atol=4e-3)
        assert np.ptp(scores) > 0.05, "otherwise this tests nothing"
