"""Builds the byte-level BPE of 2,048 tokens from sampled conversations, as tokenizer.json and tok.json; some minutes.

Letter merges come first, then JSON punctuation, then G+word merges, so that a rare word is split alike with and without
a space before it.
"""

import collections
import itertools
import json
import re

import conversations as gen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]


def bytes_to_unicode():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs), strict=False))


def learn(words, n, banned=lambda s: False):
    ws = [(list(w), c) for w, c in words.items()]
    merges = []

    for _ in range(n):
        cnt = collections.Counter()
        for s, c in ws:
            for a, b in itertools.pairwise(s):
                cnt[a, b] += c
        if not cnt:
            break
        (a, b), c = cnt.most_common(1)[0]
        merges.append((a, b))
        for s, _ in ws:
            i = 0
            while i < len(s) - 1:
                if s[i] == a and s[i + 1] == b:
                    s[i : i + 2] = [a + b]
                else:
                    i += 1
    return merges


def main(V=2048):
    gen.R.seed(777)
    docs = [gen.render(gen.sample()) for _ in range(6000)]
    wc = collections.Counter()
    pc = collections.Counter()
    sp = collections.Counter()
    for d in docs:
        for w in re.findall(r" ?[A-Za-z]+", d):
            wc[w.strip()] += 1
            if w[0] == " ":
                sp[w.strip()] += 1
        for p in re.findall(r" ?[^\sA-Za-z0-9]+\n*|\n+", d):
            if set(p) <= set(' "{}[]:,\n<>/#'):
                pc[p.replace("\n", "Ċ").replace(" ", "Ġ")] += 1
    tot = collections.Counter()
    for w, c in wc.items():
        tot[w] = max(1, int(c**0.7))
    for w in gen.GENW:
        tot[w] += 6
        tot[w.capitalize()] += 1
    tot = collections.Counter(dict(tot.items()))
    base = 256
    nsp = len(SPECIAL)
    npunct = 24
    nG = 330
    nlet = V - base - nsp - npunct - nG
    m = learn(tot, nlet)
    toks = {a + b for a, b in m}
    pcw = {p: c for p, c in pc.items() if "/" not in p or "<" in p}
    mp = learn(pcw, npunct)
    vocab = [bytes_to_unicode()[b] for b in range(256)] + [a + b for a, b in m] + [a + b for a, b in mp]
    left = V - nsp - len(vocab)
    cand = [w for w, c in sp.most_common() if w in toks and len(w) >= 2][:left]
    mg = [("Ġ", w) for w in cand]
    vocab += ["Ġ" + w for w in cand]
    vocab = list(dict.fromkeys(vocab))
    while len(vocab) < V - nsp:
        vocab.append(f"<unused{len(vocab)}>")
    vocab += SPECIAL
    merges = m + mp + mg
    t = Tokenizer(models.BPE(vocab={v: i for i, v in enumerate(vocab)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    t.save("tokenizer.json")
    with open("tok.json", "w") as file:
        json.dump({"vocab": vocab, "merges": merges}, file)
    gen.R.seed(5)
    ds = [gen.render(gen.sample()) for _ in range(2000)]
    ls = [len(t.encode(d).ids) for d in ds]
    print(
        "vocab",
        t.get_vocab_size(),
        "chars/tok",
        sum(map(len, ds)) / sum(ls),
        "mean",
        sum(ls) / len(ls),
        "p50,p90,p99",
        *[sorted(ls)[int(len(ls) * q)] for q in (0.5, 0.9, 0.99)],
    )
    for s in [
        'My dog is called Biscuit and "Biscuit" /srv/data/notes_2.txt',
        gen.PRE + gen.POST,
        json.dumps(gen.tool_known("read_file")),
    ]:
        e = t.encode(s)
        print(len(e.ids), e.tokens[:120])
    print(mp)
    print(cand[:50])


if __name__ == "__main__":
    main()
