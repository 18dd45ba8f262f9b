"""How fast pairs are scored and texts become vectors, against llama-server: the same library source, threads and model,
taking turns.

    uv run python -m bench.memory.rerank [--vectors] [--rounds 9] [--quick]

The model has the shape of MiniLM-L6 (6 layers x 384, 30,522 words) and random weights: its score of a pair is
meaningless, what it costs is not. Both servers run at the same time and are asked one after the other, who goes first
changes from round to round. Texts per second are by the clock and by the processor time of the server; the ratio is
that of processor times, median of the rounds: above 1 = ours is faster. `memory` is what a search of the memory waits
for: 20 messages that are scored one by one in this process, in ms for each. `--vectors`: lists of texts to
`/v1/embeddings`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from bench.rig import machine
from bench.rig.llama_tools import folder
from bench.rig.sides import SIDES, Server, Setup, Side, in_turn, running
from rich.console import Console
from rich.table import Table

from shepherd.engine.llamacpp.reranking import RerankModel
from shepherd.memory.search.reranking import MOST

N_LAYER, N_EMBD, N_FF, N_HEAD, N_VOCAB, N_CTX = 6, 384, 1536, 12, 30_522, 512
SHAPES = {
    "60 of 20 words": (60, 20),
    "30 of 100 words": (30, 100),
    "8 of 400 words": (8, 400),
    "1 of 100 words": (1, 100),
}
LISTS = {**SHAPES, "600 of 20 words": (600, 20), "200 of 5 to 400 words": (200, 0)}
"""0: they have different lengths."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def model(*, makes_vectors: bool = False) -> Path:
    """The path of the reranker, or of a model of vectors, made when it is missing."""
    target = folder() / f"random-{'embedder' if makes_vectors else 'reranker'}-{N_LAYER}x{N_EMBD}-f16.gguf"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_block_count(N_LAYER)
    writer.add_context_length(N_CTX)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_token_type_count(2)
    writer.add_pooling_type(gguf.PoolingType.MEAN if makes_vectors else gguf.PoolingType.RANK)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([*SPECIAL, *(f"\u2581{word(n)}" for n in range(N_VOCAB - len(SPECIAL)))])
    kinds = [gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * (N_VOCAB - len(SPECIAL))
    writer.add_token_types(kinds)
    for add, token in (("bos", 2), ("sep", 3), ("unk", 1), ("pad", 0), ("mask", 4)):
        getattr(writer, f"add_{add}_token_id")(token)
    square, up, down = (N_EMBD, N_EMBD), (N_FF, N_EMBD), (N_EMBD, N_FF)
    matrices = {"token_embd": (N_VOCAB, N_EMBD), "position_embd": (N_CTX, N_EMBD), "token_types": (2, N_EMBD)}
    linear: dict[str, tuple[int, int]] = {} if makes_vectors else {"cls": square, "cls.output": (1, N_EMBD)}
    norms = ["token_embd_norm"]
    for layer in range(N_LAYER):
        each = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square, "ffn_up": up}
        linear |= {f"blk.{layer}.{name}": shape for name, shape in (each | {"ffn_down": down}).items()}
        norms += [f"blk.{layer}.{name}" for name in ("attn_output_norm", "layer_output_norm")]
    for name, shape in (matrices | linear).items():
        drawn = random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))
        is_whole = name in {"position_embd", "token_types"}
        writer.add_tensor(f"{name}.weight", drawn if is_whole else drawn.astype(np.float16))
    for name, shape in linear.items():
        writer.add_tensor(f"{name}.bias", np.zeros(shape[0], np.float32))
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(N_EMBD, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def word(number: int) -> str:
    """A word of the vocabulary, in letters."""
    letters = ""
    while True:
        number, letter = divmod(number, 26)
        letters += chr(ord("a") + letter)
        if not number:
            return letters + "q"


def text(random: np.random.Generator, n_words: int) -> str:
    n = n_words or int(random.integers(5, 400))
    return " ".join(word(int(number)) for number in random.integers(0, N_VOCAB - len(SPECIAL), n))


def texts(n_texts: int, n_words: int, seed: int) -> tuple[str, list[str]]:
    """A question and what may answer it."""
    random = np.random.default_rng(seed)
    return text(random, 10), [text(random, n_words) for _ in range(n_texts)]


def ask(server: Server, query: str, given: list[str], *, for_vectors: bool) -> tuple[float, float, npt.NDArray[Any]]:
    """Seconds by the clock and of the processor, and the score of each text, or its vector."""
    path = "/v1/embeddings" if for_vectors else "/v1/rerank"
    wanted = {"input": given} if for_vectors else {"query": query, "documents": given}
    spent, began = server.processor_s, time.perf_counter()
    answer = server.post(path, wanted)
    took, spent = time.perf_counter() - began, server.processor_s - spent
    key, value = ("data", "embedding") if for_vectors else ("results", "relevance_score")
    rows = sorted(answer[key], key=lambda each: int(each["index"]))
    return took, spent, np.array([each[value] for each in rows])


def compared(setup: Setup, rounds: int, *, for_vectors: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with running("shepherd", setup) as ours, running("llama-server", setup) as theirs:
        servers: dict[Side, Server] = {"shepherd": ours, "llama-server": theirs}
        for name, (n_texts, n_words) in (LISTS if for_vectors else SHAPES).items():
            wall: dict[Side, list[float]] = {side: [] for side in SIDES}
            processor: dict[Side, list[float]] = {side: [] for side in SIDES}
            apart = 0.0
            for round_ in range(-1, rounds):  # the first one warms up
                (query, given), made = texts(n_texts, n_words, round_ + 1), {}
                for side in in_turn(round_):
                    took, spent, made[side] = ask(servers[side], query, given, for_vectors=for_vectors)
                    if round_ >= 0:
                        wall[side].append(took)
                        processor[side].append(spent)
                apart = max(apart, float(np.abs(made["shepherd"] - made["llama-server"]).max()))
            ratios = [their / our for our, their in zip(processor["shepherd"], processor["llama-server"], strict=True)]
            clock = [their / our for our, their in zip(wall["shepherd"], wall["llama-server"], strict=True)]
            found[name] = {
                "texts_per_s": {side: round(n_texts / statistics.median(wall[side]), 2) for side in SIDES},
                "texts_per_processor_s": {
                    side: round(n_texts / statistics.median(processor[side]), 2) for side in SIDES
                },
                "ratio": round(statistics.median(ratios), 3),
                "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
                "ratio_by_clock": round(statistics.median(clock), 3),
                "apart_at_most": apart,
            }
    return found


def memory(path: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of processor time for each message that the memory looks at, by its length in words."""
    found = {}
    with RerankModel.load(path, n_threads=1) as loaded:
        for n_words in (20, 100, 400):
            times = []
            for round_ in range(rounds + 1):
                query, given = texts(MOST, n_words, round_)
                began = time.process_time()
                for each in given:
                    loaded.relevance(query, [each])
                times.append((time.process_time() - began) * 1000 / MOST)
            found[str(n_words)] = round(statistics.median(times[1:]), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two rounds: shows that everything works")
    arguments = parser.parse_args()
    rounds, for_vectors = 2 if arguments.quick else arguments.rounds, arguments.vectors
    path = model(makes_vectors=for_vectors)
    # As many sequences as llama-server's own default, and flash attention, which it chooses by itself, too.
    flag = "--embeddings" if for_vectors else "--rerank"
    setup = Setup(path, N_CTX * 4, sequences=4, flash_attn=True, llama=(flag,))
    made = compared(setup, rounds, for_vectors=for_vectors)
    result: dict[str, Any] = {"model": path.name, "rounds": rounds, "texts" if for_vectors else "pairs": made}
    table = Table("texts", "ours, 1/s of processor", "llama-server's", "ratio", "range", "by the clock", "apart")
    for name, each in made.items():
        ours, theirs = (str(each["texts_per_processor_s"][side]) for side in SIDES)
        low, high = each["ratio_range"]
        table.add_row(name, ours, theirs, f"{each['ratio']:.2f}", f"{low:.2f}-{high:.2f}",
                      f"{each['ratio_by_clock']:.2f}", f"{each['apart_at_most']:.1e}")  # fmt: skip
    console = Console()
    console.print(table)
    if not for_vectors:
        result["memory_ms_for_each"] = memory(path, rounds)
        console.print(f"a message of the memory, by its words, in ms: {result['memory_ms_for_each']}")
    console.print(machine.save("vectors" if for_vectors else "rerank", result, quick=arguments.quick))


if __name__ == "__main__":
    main()
