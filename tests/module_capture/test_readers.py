"""Models as their classes build them: what a capture counts, and what the reader of the same configuration counts."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm
from perfmodel.workloads.config import config_of

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

TOKENS, WIDTH, VOCAB = 16, 64, 1000
BASE = {"hidden_size": WIDTH, "vocab_size": VOCAB, "num_attention_heads": 4, "max_position_embeddings": 4096}
MAMBA = BASE | {"model_type": "mamba", "num_hidden_layers": 3, "state_size": 8, "use_bias": False}
ZAMBA = BASE | {
    "model_type": "zamba2",
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "layers_block_type": ["mamba", "mamba", "hybrid"] * 2 + ["mamba"],
    "n_mamba_heads": 8,
    "mamba_d_state": 24,
    "num_mem_blocks": 1,
    "adapter_rank": 6,
}


class First(nn.Module):
    """``MambaMixer`` behind its norm: the scan as one step, which has its parameters."""

    def __init__(self, inner: int = 128, state: int = 8, rank: int = 4) -> None:
        super().__init__()
        self.sizes, self.norm = [rank, state, state], nn.RMSNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 2 * inner, bias=False), nn.Linear(inner, WIDTH, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.chosen, self.step = nn.Linear(inner, sum(self.sizes), bias=False), nn.Linear(rank, inner)
        self.decay, self.direct = nn.Parameter(torch.zeros(inner, state)), nn.Parameter(torch.zeros(inner))

    def forward(self, x: Any) -> Any:
        value, gate = self.into(self.norm(x)).chunk(2, -1)
        value = functional.silu(self.conv(value.mT)[..., : x.shape[1]].mT)
        step, key, query = self.chosen(value).split(self.sizes, -1)
        kept = self.step(step) * value * (self.decay.sum(-1) + (key * query).sum(-1, keepdim=True))
        return x + self.out((kept + self.direct * value) * functional.silu(gate))


class Second(nn.Module):
    """``Zamba2MambaMixer`` behind its norm, likewise; ``before`` is what a block adds to what goes in."""

    def __init__(self, inner: int = 128, heads: int = 8, state: int = 24) -> None:
        super().__init__()
        mixed = inner + 2 * state
        self.sizes, self.norm, self.gated = [inner, mixed, heads], nn.RMSNorm(WIDTH), nn.RMSNorm(inner)
        self.into, self.out = nn.Linear(WIDTH, inner + mixed + heads, bias=False), nn.Linear(inner, WIDTH, bias=False)
        self.conv = nn.Conv1d(mixed, mixed, 4, groups=mixed, padding=3)
        self.heads = nn.ParameterList([nn.Parameter(torch.zeros(heads)) for _ in range(3)])

    def forward(self, x: Any, before: Any = 0.0) -> Any:
        gate, mixed, step = self.into(self.norm(x + before)).split(self.sizes, -1)
        mixed = functional.silu(self.conv(mixed.mT)[..., : x.shape[1]].mT)[..., : self.sizes[0]]
        scale = (step * self.heads[0] + self.heads[1] + self.heads[2]).sum(-1, keepdim=True)
        return x + self.out(self.gated(mixed * scale * functional.silu(gate)))


class Block(nn.Module):
    """``Zamba2AttentionDecoderLayer``: it reads the stream beside the embedding, and has no residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second = nn.RMSNorm(2 * WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(2 * WIDTH, 6 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 192, bias=False), nn.Linear(96, WIDTH, bias=False)

    def forward(self, x: Any, first: Any, adapter: Any) -> Any:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(
            self.norm(torch.cat([x, first], -1))).chunk(3, -1))  # fmt: skip
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.second(self.out(mixed.transpose(1, 2).flatten(2)))
        gate, up = (self.up(x) + adapter(x)).chunk(2, -1)
        return self.down(functional.gelu(gate) * up)


class Zamba(nn.Module):
    """``Zamba2ForCausalLM``, whose head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.block = nn.Embedding(VOCAB, WIDTH), nn.RMSNorm(WIDTH), Block()
        self.layers = nn.ModuleList([Second() for _ in ZAMBA["layers_block_type"]])
        self.adapters = nn.ModuleDict()
        self.behind = nn.ModuleDict()
        for index in self.hybrid:
            pair = (nn.Linear(WIDTH, 6, bias=False), nn.Linear(6, 192, bias=False))
            self.adapters[index], self.behind[index] = nn.Sequential(*pair), nn.Linear(WIDTH, WIDTH, bias=False)

    @property
    def hybrid(self) -> list[str]:
        return [str(index) for index, kind in enumerate(ZAMBA["layers_block_type"]) if kind == "hybrid"]

    def forward(self, tokens: Any) -> Any:
        first = x = self.embedding(tokens)
        for index, layer in enumerate(self.layers):
            own = str(index)
            hybrid = own in self.hybrid
            before = self.behind[own](self.block(x, first, self.adapters[own])) if hybrid else 0.0
            x = layer(x, before)
        return self.norm(x) @ self.embedding.weight.T


class Mamba(nn.Module):
    """``MambaForCausalLM``, whose head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCAB, WIDTH), nn.RMSNorm(WIDTH)
        self.layers = nn.Sequential(*(First() for _ in range(3)))

    def forward(self, tokens: Any) -> Any:
        return self.norm(self.layers(self.embedding(tokens))) @ self.embedding.weight.T


@pytest.mark.parametrize(("kind", "document"), [(Mamba, MAMBA), (Zamba, ZAMBA)])
def test_a_capture_and_the_reader_count_alike(kind: Any, document: Any) -> None:
    """Parameters to the last one; and 2 FLOP of each that multiplies a token, a shared one as often as it does."""
    captured = pm.capture(kind, torch.zeros(1, TOKENS, dtype=torch.int64))
    config = config_of(document, "config.json")
    assert captured.root.parameters == config.parameters
    matrices = sum(one.n * one.k for one in config.state_layer.matrices()) * config.layers + VOCAB * WIDTH
    attending = (*config.attention_matrices(), *config.mlp_linears(), *config.block_linears())
    matrices += config.joint_layers * sum(one.n * one.k for one in attending)
    products = sum(call.flop for call in captured.modelled if call.op.op == "gemm")
    assert products == 2 * TOKENS * matrices
    others = config.multiplied_parameters - matrices  # norms, decays, convolutions and biases
    assert 0 < others < 0.1 * config.multiplied_parameters
