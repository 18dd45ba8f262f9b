"""Model directories for the fake `tensorrt_llm`: a checkpoint or an engine with a small real tokenizer."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = (
    "Place a cup of water on the table. The engine reads the whole prompt, and the answer begins with a word. "
    "A block of tokens leaves the cache when another one needs its room. Count to ten: one two three four five six. "
) * 4


@functools.cache
def trained() -> str:
    """A byte-level BPE of some four hundred tokens, as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    return tokenizer.to_str()


@functools.cache
def bytewise(n_specials: int = 64) -> str:
    """A tokenizer whose tokens 0 to 255 are the bytes; specials follow, of which the second ends an answer."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's table: the others are shifted
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + at) for at, byte in enumerate(hidden)}
    tokenizer = Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIALS, *(f"<|special_{n}|>" for n in range(n_specials - len(SPECIALS)))])
    return tokenizer.to_str()


def make(
    directory: Path,
    kind: Literal["checkpoint", "engine"] = "checkpoint",
    *,
    n_ctx: int = 512,
    tp: int = 1,
    pp: int = 1,
    block_size: int = 32,
    tokenizer: str | None = None,
    **fake: Any,
) -> Path:
    """A model directory; `fake` goes into `fake.json` (`settings.py` of the fake)."""
    directory.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any]
    if kind == "engine":
        mapping = {"world_size": tp * pp, "tp_size": tp, "pp_size": pp, "cp_size": 1, "gpus_per_node": 8}
        config = {
            "version": "1.2.1",
            "pretrained_config": {"architecture": "LlamaForCausalLM", "vocab_size": 400, "mapping": mapping},
            "build_config": {"max_seq_len": n_ctx, "max_batch_size": 8, "max_num_tokens": 8192,
                             "plugin_config": {"tokens_per_block": block_size}},
        }  # fmt: skip
        for rank in range(tp * pp):
            (directory / f"rank{rank}.engine").write_bytes(b"engine")
    else:
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": n_ctx,
            "vocab_size": 400, "eos_token_id": 1,
        }  # fmt: skip
        (directory / "model.safetensors").write_bytes(b"\0" * 64)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(tokenizer or trained())
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "bos_token": None, "chat_template": TEMPLATE})
    )
    (directory / "fake.json").write_text(json.dumps(fake))
    return directory


def load_tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


def prompt(tokenizer: Tokenizer, *turns: tuple[str, str], open_answer: bool = True) -> list[int]:
    """The tokens of a conversation of (role, text), as the template writes it."""
    text = "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)
    return list(tokenizer.encode(text + "<|im_start|>assistant\n" * open_answer, add_special_tokens=False).ids)
