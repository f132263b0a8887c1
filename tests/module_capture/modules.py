"""Modules that the tests capture."""

from __future__ import annotations

import torch
from torch import nn


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Decoder(nn.Module):
    """Layers of attention with grouped keys and a gated MLP, tied embedding."""

    def __init__(self, layers: int = 2, hidden: int = 128, heads: int = 4, kv_heads: int = 2, vocab: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([Layer(hidden, heads, kv_heads) for _ in range(layers)])
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Layer(nn.Module):
    """One layer of `Decoder`."""

    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, 3 * hidden, bias=False)
        self.up = nn.Linear(hidden, 3 * hidden, bias=False)
        self.down = nn.Linear(3 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, hidden = x.shape
        q = self.q(x).view(batch, seq, self.heads, self.size).transpose(1, 2)
        k, v = (f(x).view(batch, seq, self.kv_heads, self.size).transpose(1, 2) for f in (self.k, self.v))
        groups = self.heads // self.kv_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Cnn(nn.Module):
    """Two convolutions and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.classes = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(torch.relu(self.second(torch.relu(self.first(x)))).mean((2, 3)))


class Branches(nn.Module):
    """Asks a tensor which way to go."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


def build() -> nn.Module:
    """Build a module as a user's function does."""
    return Mlp()
