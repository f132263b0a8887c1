"""Draw operators at random, for a record that judges the model on shapes that nobody chose.

    python scripts/draw_shapes.py SEED -o OUT.json [--share 0.5]

`perfmodel bench OUT.json` measures them. Sizes are log-uniform between what users run in one call at least and at most,
rounded to multiples as models have them, or not rounded at all in one of four. The same seed draws the same operators;
their order is random too, so that a benchmark which is cut short has measured a part of every family.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: operator of a drawn call -> dimension -> value
Drawn = dict[str, Any]
#: no call computes or touches more: the check against float64 has to fit memory and seconds
MOST_FLOP, MOST_ELEMENTS = 4e12, 2**29
#: a drawn size is no multiple of anything so often
ODD = 0.25


class Dice:
    """Random sizes and choices from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def size(self, low: float, high: float, multiple: int = 1) -> int:
        """Return a log-uniform size, mostly a multiple of one."""
        drawn = math.exp(self._random.uniform(math.log(low), math.log(high)))
        step = 1 if self._random.random() < ODD else multiple
        return max(step, round(drawn / step) * step)

    def multiple(self, low: float, high: float, step: int) -> int:
        """Return a log-uniform multiple of a step."""
        return max(step, round(math.exp(self._random.uniform(math.log(low), math.log(high))) / step) * step)

    def one(self, *choices: Any) -> Any:
        """Return one of some values; one that is given twice comes twice as often."""
        return self._random.choice(choices)

    def shuffled(self, drawn: list[Drawn]) -> list[Drawn]:
        """Return operators in a random order."""
        return self._random.sample(drawn, len(drawn))


def product(dice: Dice) -> Drawn:
    """Return a product of one of all dtypes."""
    dtype = dice.one("bf16", "bf16", "bf16", "fp16", "fp16", "fp8", "fp8", "fp8", "tf32", "fp32", "fp64", "int8")
    if dtype in ("fp8", "int8"):
        step, rows = 16, dice.multiple(32, 8192, 8) if dtype == "int8" else dice.size(1, 8192, 8)
        return {"op": "gemm", "m": rows, "n": dice.multiple(64, 16384, step), "k": dice.multiple(64, 16384, step),
                "dtype": dtype}  # fmt: skip
    return {"op": "gemm", "m": dice.size(1, 8192, 8), "n": dice.size(64, 16384, 64), "k": dice.size(64, 16384, 64),
            "dtype": dtype}  # fmt: skip


def products(dice: Dice) -> Drawn:
    """Return a batch of products."""
    return {"op": "gemm", "batch": dice.size(2, 512), "m": dice.size(1, 2048, 8), "n": dice.size(16, 2048, 8),
            "k": dice.size(16, 2048, 8), "dtype": dice.one("bf16", "fp16", "tf32", "fp32", "fp64")}  # fmt: skip


def _heads(dice: Dice) -> Drawn:
    kv_heads = dice.one(1, 2, 4, 8, 8, 16, 32)
    heads, head_dim = kv_heads * dice.one(1, 1, 2, 4, 8), dice.one(64, 64, 80, 96, 128, 128, 128, 192, 256)
    return {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "dtype": dice.one("bf16", "bf16", "fp16")}


def prefill(dice: Dice) -> Drawn:
    """Return attention of a prompt, or of a chunk of one after what the cache holds."""
    queries = dice.size(16, 8192, 64)
    before = dice.one(0, 0, dice.size(16, 16384, 64))
    return {"op": "attention", "batch": dice.size(1, 32), **_heads(dice), "seq_q": queries, "seq_kv": queries + before,
            "causal": dice.one(True, True, False)}  # fmt: skip


def decode(dice: Dice) -> Drawn:
    """Return attention of one query, or of the few of speculative decoding."""
    queries = dice.one(1, 1, dice.size(2, 16))
    keys = dice.size(64, 32768, 16)
    return {"op": "attention", "batch": dice.size(1, 256), **_heads(dice), "seq_q": queries,
            "seq_kv": max(keys, queries), "causal": queries > 1}  # fmt: skip


def training_attention(dice: Dice) -> Drawn:
    """Return the gradient of attention."""
    heads = _heads(dice) | {"head_dim": dice.one(64, 96, 128)}
    return {"op": "attention", "batch": dice.size(1, 16), **heads, "seq_q": dice.size(64, 4096, 64),
            "causal": dice.one(True, False), "backward": True}  # fmt: skip


def convolution(dice: Dice) -> Drawn:
    """Return a convolution or its gradient."""
    taps, pixels = dice.one(1, 1, 3, 3, 3, 5, 7), dice.one(7, 14, 28, 56, 112, dice.size(7, 224))
    stride = dice.one(1, 1, 1, 2)
    found = {"op": "conv2d", "n": dice.size(1, 64), "c": dice.size(3, 1024, 8), "h": pixels, "w": pixels,
             "k": dice.size(8, 1024, 8), "r": taps, "s": taps, "stride": stride, "padding": taps // 2,
             "layout": dice.one("nhwc", "nchw"), "dtype": dice.one("bf16", "fp16", "tf32", "fp32"),
             "backward": dice.one(False, False, True)}  # fmt: skip
    if dice.one(True, False, False, False):
        groups = dice.one(2, 4, 8, 32)
        found |= {"groups": groups, "c": dice.multiple(groups, 1024, groups), "k": dice.multiple(groups, 1024, groups)}
    return found


def rows(dice: Dice) -> Drawn:
    """Return a norm, a softmax, a sum or a gated activation of rows, or its gradient."""
    op = dice.one("layer_norm", "layer_norm", "rms_norm", "rms_norm", "softmax", "softmax", "reduction", "reduction",
                  "swiglu", "geglu")  # fmt: skip
    return {"op": op, "rows": dice.size(1, 65536), "cols": dice.size(64, 32768, 64),
            "dtype": dice.one("bf16", "fp16", "fp32"), "backward": dice.one(False, False, True)}  # fmt: skip


def stream(dice: Dice) -> Drawn:
    """Return an elementwise kernel, a dropout or a transposition."""
    op, dtype = dice.one("elementwise", "elementwise", "dropout", "transpose"), dice.one("bf16", "fp16", "fp32")
    if op == "transpose":
        return {"op": op, "rows": dice.size(16, 16384, 16), "cols": dice.size(16, 16384, 16), "dtype": dtype}
    found = {"op": op, "numel": dice.size(1024, 2**28), "dtype": dtype}
    if op == "elementwise":
        found["kind"] = dice.one("add", "mul", "relu", "gelu", "exp", "tanh", "silu_mul", "chain4")
    return found


def looked_up(dice: Dice) -> Drawn:
    """Return a look-up, a scattered sum or a write of the cache."""
    op = dice.one("embedding", "gather", "index_select", "scatter_add", "kv_write")
    found = {"op": op, "dtype": dice.one("bf16", "fp32")}
    if op == "embedding":
        return found | {
            "tokens": dice.size(1, 65536),
            "vocab": dice.size(1000, 256_000),
            "dim": dice.size(64, 8192, 64),
        }
    if op == "gather":
        return found | {"numel": dice.size(1000, 2**26), "table": dice.size(1000, 2**27)}
    if op == "kv_write":
        return found | {"tokens": dice.size(1, 16384), "kv_heads": dice.one(1, 4, 8, 32), "head_dim": dice.one(64, 128)}
    return found | {"rows": dice.size(16, 2**18), "cols": dice.size(1, 512, 16), "table": dice.size(1000, 2**20)}


def selected(dice: Dice) -> Drawn:
    """Return a sort, a scan, a selection or a draw of tokens."""
    op = dice.one("sort", "topk", "scan", "sampling")
    cols = dice.size(128, 262_144)
    if op == "sampling":
        return {"op": op, "rows": dice.size(1, 256), "vocab": dice.size(32_000, 256_000, 64),
                "algorithm": dice.one("multinomial", "top_k", "top_p"), "dtype": "fp32"}  # fmt: skip
    found = {"op": op, "rows": dice.size(1, 4096), "cols": cols, "dtype": dice.one("fp32", "bf16")}
    return found | ({"k": min(cols, dice.size(1, 256))} if op == "topk" else {})


def images(dice: Dice) -> Drawn:
    """Return a norm over channels or a pooling."""
    op = dice.one("batch_norm", "group_norm", "pool2d")
    pixels, dtype, backward = dice.one(7, 14, 28, 56, 112), dice.one("bf16", "fp16", "fp32"), dice.one(False, True)
    common = {"op": op, "n": dice.size(1, 64), "c": dice.multiple(32, 1024, 32), "dtype": dtype, "backward": backward}
    if op == "pool2d":
        return common | {"h": pixels, "w": pixels, "k": dice.one(2, 3), "stride": 2, "kind": dice.one("max", "mean")}
    return common | {"hw": pixels * pixels} | ({"groups": 32} if op == "group_norm" else {})


def trained(dice: Dice) -> Drawn:
    """Return the loss of tokens, its gradient, or a step of the optimizer."""
    if dice.one(True, False):
        return {"op": "cross_entropy", "rows": dice.size(64, 16384), "vocab": dice.size(1000, 152_064, 64),
                "dtype": dice.one("bf16", "fp32"), "backward": dice.one(True, False)}  # fmt: skip
    return {"op": "optimizer", "parameters": dice.size(2**16, 2**28), "kind": dice.one("adamw", "adamw", "sgd"),
            "algorithm": dice.one("fused", "foreach"), "num_tensors": dice.one(1, 16, 128),
            "dtype": "fp32"}  # fmt: skip


def experts(dice: Dice) -> Drawn:
    """Return a mixture of experts."""
    number = dice.one(8, 16, 64, 128)
    return {"op": "moe", "tokens": dice.size(1, 8192), "hidden": dice.multiple(512, 6144, 128),
            "inter": dice.multiple(256, 4096, 128), "experts": number, "top_k": dice.one(1, 2, 4, 8),
            "router": False, "dtype": "bf16"}  # fmt: skip


#: what is drawn, and how often
FAMILIES: tuple[tuple[Callable[[Dice], Drawn], int], ...] = (
    (product, 84), (products, 26), (prefill, 40), (decode, 32), (training_attention, 14), (convolution, 44),
    (rows, 50), (stream, 24), (looked_up, 20), (selected, 16), (images, 16), (trained, 14), (experts, 8),
)  # fmt: skip


def is_small_enough(drawn: Drawn) -> bool:
    """Return whether a call stays below the limits of work and memory."""
    from perfmodel.operators import load_operator

    dimensions = {name: value for name, value in drawn.items() if name != "op"}
    op = load_operator(drawn["op"])(**dimensions)
    scores = drawn.get("batch", 1) * drawn.get("heads", 0) * drawn.get("seq_q", 0) * drawn.get("seq_kv", 0)
    elements = max(float(op.work().working_set_bytes) / 2.0, float(scores))
    slow = 16.0 if drawn.get("dtype") in ("fp32", "fp64") else 1.0
    return float(op.flop()) * slow < MOST_FLOP and elements < MOST_ELEMENTS


def draw(seed: int, share: float = 1.0) -> list[Drawn]:
    """Return the operators of a seed, a share of each family."""
    dice, found = Dice(seed), []
    for family, count in FAMILIES:
        wanted = max(1, round(count * share))
        kept: list[Drawn] = []
        while len(kept) < wanted:
            one = family(dice)
            if is_small_enough(one):
                kept.append(one)
        found += kept
    return dice.shuffled(found)


def main(arguments: list[str] | None = None) -> int:
    """Write the operators of a seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0)
    given = parser.parse_args(arguments)
    found = draw(given.seed, given.share)
    given.out.write_text(json.dumps({"operators": found}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} operators in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
