"""The network: a llama (rotary positions, RMS norms, SwiGLU, tied embeddings), computed in bfloat16 where asked.

Every token has a position of its own, so that a conversation may begin far away, or have a hole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    n_tokens: int = 2048
    width: int = 256
    n_layers: int = 7
    n_heads: int = 4
    n_hidden: int = 704
    base: float = 100_000.0
    """Of the rotary positions."""
    epsilon: float = 1e-5
    n_ctx: int = 4096
    """Tokens of a conversation, as the model file declares them."""
    n_positions: int = 36_864
    """The positions that training draws from."""

    @property
    def head(self) -> int:
        return self.width // self.n_heads


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * weight).to(x.dtype)


def gated(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`x`: batch, token, head, 2 halves of the head."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def shares(scores: Tensor, first: int, scale: float) -> Tensor:
    """Softmax of the scores of queries `first`, `first` + 1 and so on; none sees a key behind its own place."""
    places = torch.arange(scores.shape[-2], device=scores.device)[:, None] + first
    behind = torch.arange(scores.shape[-1], device=scores.device) > places
    return torch.softmax((scores.float() * scale).masked_fill(behind, -math.inf), -1).to(scores.dtype)


def score_gradient(share: Tensor, gradient: Tensor, scale: float) -> Tensor:
    """The gradient of the scores from the one of their softmax."""
    wide, product = share.float(), share.float() * gradient.float()
    return ((product - wide * product.sum(-1, keepdim=True)) * scale).to(share.dtype)


class Functions:
    """The element-wise functions, which a compiler makes several times faster."""

    def __init__(self) -> None:
        self.norm, self.gated, self.rotated = norm, gated, rotated
        self.shares, self.score_gradient = shares, score_gradient

    def compile(self) -> None:
        for name, function in vars(self).items():
            setattr(self, name, torch.compile(function, dynamic=True))


FUNCTIONS = Functions()
Cache = dict[str, Tensor]
QUERIES = 256
"""That attention computes together: what they see of each other beyond their own place is computed in vain."""


class Attention(torch.autograd.Function):
    """Causal attention on a processor: two to three times as fast as PyTorch's own there, which the whole training took
    three fifths of its time for. Matrix products of blocks of queries; the shares are kept for the way back.

    `q`, `k`, `v`: batch, head, token, part of the head.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        scale, kept, seen = q.shape[-1] ** -0.5, list[Tensor](), torch.empty_like(q)
        for start, end in _blocks(q.shape[2]):
            share = FUNCTIONS.shares(q[:, :, start:end] @ k[:, :, :end].transpose(-1, -2), start, scale)
            seen[:, :, start:end] = share @ v[:, :, :end]
            kept.append(share)
        ctx.save_for_backward(q, k, v, *kept)
        return seen

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, *kept = ctx.saved_tensors
        gradient, scale = gradient.contiguous(), q.shape[-1] ** -0.5
        of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for share, (start, end) in zip(kept, _blocks(q.shape[2]), strict=True):
            part = gradient[:, :, start:end]
            of_v[:, :, :end] += share.transpose(-1, -2) @ part
            of_scores = FUNCTIONS.score_gradient(share, part @ v[:, :, :end].transpose(-1, -2), scale)
            of_q[:, :, start:end] = of_scores @ k[:, :, :end]
            of_k[:, :, :end] += of_scores.transpose(-1, -2) @ q[:, :, start:end]
        return of_q, of_k, of_v


def _blocks(n: int) -> list[tuple[int, int]]:
    return [(start, min(start + QUERIES, n)) for start in range(0, n, QUERIES)]


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.n_hidden
        self.shape = shape
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.hidden_norm = nn.Parameter(torch.ones(width))
        self.qkv = nn.Parameter(torch.empty(3 * width, width))
        self.out = nn.Parameter(torch.empty(width, width))
        self.gate_up = nn.Parameter(torch.empty(2 * hidden, width))
        self.down = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, cache: Cache | None = None) -> Tensor:
        n_rows, n, width = x.shape
        heads, size, epsilon = self.shape.n_heads, self.shape.head, self.shape.epsilon
        as_x = x.dtype
        before = FUNCTIONS.norm(x, self.attention_norm, epsilon)
        qkv = F.linear(before, self.qkv.to(as_x)).view(n_rows, n, 3, heads, size)
        qk = FUNCTIONS.rotated(qkv[:, :, :2].reshape(n_rows, n, 2 * heads, size), cosines, sines)
        q, k, v = qk[:, :, :heads].transpose(1, 2), qk[:, :, heads:].transpose(1, 2), qkv[:, :, 2].transpose(1, 2)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
            cache["k"], cache["v"] = k, v
        if cache is None and x.device.type == "cpu":
            seen = Attention.apply(q, k, v)
        else:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + F.linear(seen.transpose(1, 2).reshape(n_rows, n, width), self.out.to(as_x))
        before = FUNCTIONS.norm(x, self.hidden_norm, epsilon)
        return x + F.linear(FUNCTIONS.gated(F.linear(before, self.gate_up.to(as_x))), self.down.to(as_x))


class Network(nn.Module):
    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.n_tokens, shape.width))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.final_norm = nn.Parameter(torch.ones(shape.width))
        chance = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                spread = 0.5 / math.sqrt(weight.shape[1]) * (0.2 if name.endswith((".out", ".down")) else 1.0)
                nn.init.normal_(weight, std=0.04 if name == "embedding" else spread, generator=chance)
        speeds = 1.0 / shape.base ** (torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.outer(torch.arange(shape.n_positions).float(), speeds)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def hidden(self, ids: Tensor, positions: Tensor, dtype: torch.dtype, caches: list[Cache] | None = None) -> Tensor:
        x = F.embedding(ids, self.embedding).to(dtype)
        cosines, sines = (table[positions][:, :, None].to(dtype) for table in (self.cosines, self.sines))
        for at, block in enumerate(self.blocks):
            x = block(x, cosines, sines, None if caches is None else caches[at])
        return FUNCTIONS.norm(x, self.final_norm, self.shape.epsilon)

    def loss(
        self, ids: Tensor, positions: Tensor, weights: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted sum of the losses; each token's loss where its weight is 1; whether it was the likeliest there.

        `weights`: of predicting each token.
        """
        hidden = self.hidden(ids[:, :-1], positions[:, :-1], dtype)
        chosen = weights[:, 1:] > 0
        wanted, weight = ids[:, 1:][chosen], weights[:, 1:][chosen]
        scores = F.linear(hidden[chosen], self.embedding.to(dtype)).float()
        losses = F.cross_entropy(scores, wanted, reduction="none")
        is_answer = weight == 1
        return (
            (losses * weight).sum(),
            losses.detach()[is_answer],
            (scores.detach().argmax(-1) == wanted)[is_answer],
        )

    @torch.no_grad()
    def greedy(self, ids: list[int], end: int, most: int, positions: list[int] | None = None) -> list[int]:
        """The likeliest tokens behind a prompt, in float32, up to `end`, which is left out. `positions`: its own."""
        caches: list[Cache] = [{} for _ in self.blocks]
        new, at, out = ids, positions or list(range(len(ids))), list[int]()
        while len(out) < most:
            hidden = self.hidden(torch.tensor([new]), torch.tensor([at]), torch.float32, caches)
            token = int((hidden[0, -1] @ self.embedding.T).argmax())
            if token == end:
                break
            out.append(token)
            new, at = [token], [at[-1] + 1]
        return out


def n_parameters(shape: Shape) -> int:
    width, hidden = shape.width, shape.n_hidden
    block = 4 * width * width + 3 * width * hidden + 2 * width
    return shape.n_tokens * width + shape.n_layers * block + width
