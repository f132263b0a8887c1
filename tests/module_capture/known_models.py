"""Models that everybody knows, as their papers and config files describe them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Attention with grouped keys; one product makes queries, keys and values."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, *, bias: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.causal = heads, kv_heads, hidden // heads, causal
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, hidden = x.shape
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in self.qkv(x).split(sizes, -1))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.kv_heads
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))


class Mlp(nn.Module):
    """Two products with GELU between, with biases."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class Gated(nn.Module):
    """A gated MLP."""

    def __init__(self, hidden: int, inter: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(*shape, bias=False) for shape in ((hidden, inter), (hidden, inter), (inter, hidden))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """A mixture of gated MLPs, two for each token; each gets its share of the tokens, whatever the router says."""

    def __init__(self, hidden: int, inter: int, experts: int = 8, top: int = 2) -> None:
        super().__init__()
        self.top, self.router = top, nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Gated(hidden, inter) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        weights, chosen = self.router(flat).softmax(-1).topk(self.top, -1)
        order = chosen.flatten().argsort()
        parts = flat[order // self.top].chunk(len(self.experts))
        made = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return torch.zeros_like(flat).index_add(0, order // self.top, made * weights.flatten()[order, None]).view_as(x)


class Layer(nn.Module):
    """Attention and an MLP, each after a norm and added to what came in."""

    def __init__(self, norms: tuple[nn.Module, nn.Module], attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        (self.first, self.second), self.attention, self.mlp = norms, attention, mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Gpt2(nn.Module):
    """GPT-2 (Radford et al. 2019), the smallest one."""

    def __init__(self, hidden: int = 768, layers: int = 12, vocab: int = 50257, context: int = 1024) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, hidden), nn.Embedding(context, hidden)
        self.layers = nn.Sequential(
            *(
                Layer(
                    (nn.LayerNorm(hidden), nn.LayerNorm(hidden)),
                    Attention(hidden, 12, 12, bias=True, causal=True),
                    Mlp(hidden),
                )
                for _ in range(layers)
            )
        )
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.layers(x)))


class Vit(nn.Module):
    """ViT-B/16 (Dosovitskiy et al. 2021) for 1000 classes."""

    def __init__(self, hidden: int = 768, layers: int = 12, classes: int = 1000, patches: int = 196) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 16, stride=16)
        self.cls = nn.Parameter(torch.zeros(1, 1, hidden))
        self.places = nn.Parameter(torch.zeros(1, patches + 1, hidden))
        self.layers = nn.Sequential(
            *(
                Layer(
                    (nn.LayerNorm(hidden), nn.LayerNorm(hidden)),
                    Attention(hidden, 12, 12, bias=True, causal=False),
                    Mlp(hidden),
                )
                for _ in range(layers)
            )
        )
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Llama(nn.Module):
    """Llama (Touvron et al. 2023) or, with experts, Mixtral (Jiang et al. 2024); without the rotation of positions."""

    def __init__(self, hidden: int, inter: int, layers: int, heads: int, vocab: int, *, experts: int = 0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.Sequential(
            *(
                Layer(
                    (nn.RMSNorm(hidden), nn.RMSNorm(hidden)),
                    Attention(hidden, heads, 8, bias=False, causal=True),
                    Experts(hidden, inter, experts) if experts else Gated(hidden, inter),
                )
                for _ in range(layers)
            )
        )
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.tokens(tokens))))


def llama_70b() -> nn.Module:
    """Llama 3.1 70B."""
    return Llama(8192, 28672, 80, 64, 128_256).to(torch.bfloat16)


def mixtral_8x7b() -> nn.Module:
    """Mixtral 8x7B."""
    return Llama(4096, 14336, 32, 32, 32_000, experts=8).to(torch.bfloat16)


class Bottleneck(nn.Module):
    """A block of ResNet-50 (He et al. 2015), the stride in its 3 x 3 convolution."""

    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = 4 * middle
        shapes = ((inside, middle, 1, 1), (middle, middle, 3, stride), (middle, outside, 1, 1))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, size, stride=step, padding=size // 2, bias=False) for a, b, size, step in shapes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in shapes)
        self.side = (
            nn.Sequential(nn.Conv2d(inside, outside, 1, stride=stride, bias=False), nn.BatchNorm2d(outside))
            if stride > 1 or inside != outside
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = x
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            made = norm(convolution(made))
            made = functional.relu(made if number < 2 else made + self.side(x))
        return made


def resnet50() -> nn.Module:
    """ResNet-50 for 1000 classes."""
    blocks: list[nn.Module] = []
    inside = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            blocks.append(Bottleneck(inside, 64 << stage, 2 if stage and not number else 1))
            inside = 256 << stage
    stem = (nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
