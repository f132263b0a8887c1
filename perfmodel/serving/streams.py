"""Residual streams that layers predict and correct, and second residuals, in a serving engine (Gemma 3n)."""

from __future__ import annotations

from typing import Protocol

from perfmodel.serving.cost import Array, Cost
from perfmodel.serving.shard import Shard

#: kernels that predict and correct a layer's residual streams: to predict a norm, two products, the streams' sums and
#: their addition; to correct a norm, two products and what they scale (vLLM's ``Gemma3nAltUp``)
ALTUP_KERNELS = 9.0
#: kernels of a layer's second residual: two products, and the addition with a norm (vLLM's ``Gemma3nLaurelBlock``)
LAUREL_KERNELS = 3.0


class Runs(Protocol):
    """What runs kernels of a part of a model, as `perfmodel.serving.kernels.Kernels` does."""

    @property
    def shard(self) -> Shard:
        """One GPU's part."""

    def product(self, cost: Cost, term: str, m: Array, n: int, k: int, layers: float) -> None:
        """Add one matrix product of each layer."""

    def wide_product(self, cost: Cost, term: str, m: Array, n: int, k: int, times: float = 1.0) -> None:
        """Add matrix products in 16 bits."""

    def stream(self, cost: Cost, term: str, numel: Array, inputs: int, kind: str, layers: float) -> None:
        """Add one kernel that streams its tensors."""

    def residuals(self, cost: Cost, tokens: Array, norms: float) -> None:
        """Add additions with norms."""


def predicted_streams(run: Runs, cost: Cost, tokens: Array) -> None:
    """Add what predicts and corrects m residual streams, all of which each GPU computes.

    In each layer two products with a norm lead to weights; m streams are read and written to predict them, and to
    correct them m and what the layer gives are read and m are written. Once a step m - 1 matrices make the others of
    the first stream, m - 1 lead back from them, and all are scaled and at last summed.
    """
    shard, hidden, m = run.shard, run.shard.hidden, run.shard.residual_streams
    for _ in ("to predict", "to correct"):
        run.stream(cost, "kernels", tokens * hidden, 1, "copy", shard.layers)
        run.wide_product(cost, "kernels", tokens, m, hidden, shard.layers)
    run.wide_product(cost, "kernels", tokens, m * m, m, shard.layers)
    run.wide_product(cost, "kernels", tokens, m, m, shard.layers)
    run.stream(cost, "kernels", tokens * hidden * m, 1, "copy", shard.layers)
    run.stream(cost, "kernels", tokens * hidden * (m + 0.5), 1, "copy", shard.layers)
    run.product(cost, "weights", tokens, hidden, hidden, 2.0 * (m - 1))
    run.stream(cost, "kernels", tokens * hidden * m, 1, "copy", 4.0)


def laurel(run: Runs, cost: Cost, tokens: Array) -> None:
    """Add the second residual of layers, which each GPU computes all of: to a rank and back, and an addition."""
    shard = run.shard
    run.product(cost, "weights", tokens, shard.laurel_rank, shard.hidden, shard.layers)
    run.product(cost, "weights", tokens, shard.hidden, shard.laurel_rank, shard.layers)
    run.residuals(cost, tokens, shard.layers)
