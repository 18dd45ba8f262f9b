"""Greedy answers of a GGUF to the cases, by llama.cpp: the share that is right, by task.

    python evaluate.py MODEL.gguf cases-a.json [--shard 0/2] [--seconds 600] [--out FILE] [--show 4]
    python evaluate.py MODEL.gguf cases-a.json --checkpoint ckpt.pt [--f16]     # against PyTorch's greedy answers

*exact*: word for word, and ended by itself. *contains*: the value that was asked for is in the answer.
"""

import argparse
import json
import time
from collections import defaultdict

MOST_TOKENS, N_CTX = 160, 4096


def answer(model, ids):
    """The tokens of an answer, and whether it ended by itself."""
    model.reset()
    out = []
    for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
        if token == model.token_eos():
            return out, True
        out.append(token)
        if len(out) >= MOST_TOKENS:
            break
    return out, False


def torch_answer(model, ids, end):
    """The same by the trainer's own network, in float32."""
    import torch

    caches, new, position, out = [{} for _ in model.blocks], torch.tensor([ids]), 0, []
    with torch.no_grad():
        while len(out) < MOST_TOKENS:
            hidden = model.hidden(new, False, position, caches)
            position += new.shape[1]
            token = (hidden[0, -1] @ model.emb.T).argmax().item()
            if token == end:
                break
            out.append(token)
            new = torch.tensor([[token]])
    return out


def checkpoint(path, as_f16):
    import torch
    from model import LM, Cfg

    torch.set_num_threads(1)
    stored = torch.load(path)
    model = LM(Cfg(**stored["cfg"]))
    model.load_state_dict(stored["sd"], strict=False)
    if as_f16:
        for each in model.parameters():
            if each.ndim == 2:
                each.data = each.data.half().float()
    return model.eval()


def main():
    from llama_cpp import Llama

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("cases")
    parser.add_argument("--shard", default="0/1", help="which of how many parts: one process for each core")
    parser.add_argument("--limit", type=int, default=10**9, help="cases of a task")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="wrong answers of a task")
    parser.add_argument("--out", help="a file for the result, as JSON")
    parser.add_argument("--checkpoint", help="compare with the answers of this checkpoint")
    parser.add_argument("--f16", action="store_true", help="round its weights to float16 before")
    asked = parser.parse_args()
    with open(asked.cases) as file:
        part, parts = map(int, asked.shard.split("/"))
        cases = json.load(file)[part::parts]
    model = Llama(
        asked.model, n_ctx=N_CTX, n_threads=asked.threads, n_threads_batch=asked.threads, n_batch=512, verbose=False
    )
    other = checkpoint(asked.checkpoint, asked.f16) if asked.checkpoint else None
    rows = defaultdict(lambda: {"n": 0, "exact": 0, "valued": 0, "contains": 0})
    wrong, began = defaultdict(list), time.time()
    n_ended = n_same_tokens = n_same_answers = 0
    for case in cases:
        row = rows[case["task"]]
        if time.time() - began > asked.seconds:
            break
        if row["n"] >= asked.limit:
            continue
        ids = model.tokenize(case["prompt"].encode(), add_bos=False, special=True)
        if len(ids) > N_CTX - MOST_TOKENS:
            continue
        out, has_ended = answer(model, ids)
        text = model.detokenize(out, special=True).decode("utf-8", "replace")
        is_right = has_ended and text == case["expect"]
        row["n"] += 1
        row["exact"] += is_right
        n_ended += has_ended
        n_same_tokens += ids == case["ids"]
        if case["val"]:
            row["valued"] += 1
            row["contains"] += case["val"] in text
        if not is_right:
            wrong[case["task"]].append((case["prompt"][-160:], case["expect"], text))
        if other is not None:
            n_same_answers += torch_answer(other, case["ids"], model.token_eos()) == out
    n = sum(row["n"] for row in rows.values())
    print(f"{n} cases, {time.time() - began:.0f} s; tokenised as by HF {n_same_tokens}/{n}; ended {n_ended}/{n}")
    if other is not None:
        print(f"the checkpoint's own answers: {n_same_answers}/{n}")
    for task, row in rows.items():
        if row["n"]:
            value = f"  contains {row['contains'] / row['valued']:.3f}" if row["valued"] else ""
            print(f"{task:28s} n={row['n']:4d} exact {row['exact'] / row['n']:.3f}{value}")
        for prompt, expected, text in wrong[task][: asked.show]:
            print(f"   PROMPT ...{prompt!r}\n   EXPECTED {expected!r}\n   ANSWER   {text!r}")
    if asked.out:
        with open(asked.out, "w") as file:
            json.dump({"tasks": rows, "wrong": wrong, "ended": n_ended, "n": n}, file)


if __name__ == "__main__":
    main()
