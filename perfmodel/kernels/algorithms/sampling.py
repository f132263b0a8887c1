"""Sampling a token: multinomial of a softmax, Gumbel-max as operators, among the 50 largest, and by a share.

What they draw is checked by chi-square: 100,000 draws from one small row against its probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from perfmodel.kernels.algorithms.base import Call, Contest, Inputs, normal
from perfmodel.kernels.torch.sampling import DRAWS, SHARE
from perfmodel.operators.sampling import Sampling

#: draws of the check, tokens of its row, and how far chi-square may lie above its mean, in standard deviations
COUNTED, TOKENS, DEVIATIONS = 100_000, 64, 5.0
ROWS = 8


def _operator(size: float) -> Sampling:
    return Sampling(rows=ROWS, vocab=size, k=min(50.0, size))


def _inputs(op: Sampling, device: str, seed: int) -> Inputs:
    torch.manual_seed(seed)
    return {"logits": normal((int(op.rows), int(op.vocab)), device, seed)}


def _prepared(name: str) -> Callable[[Inputs, Sampling], Call]:
    def prepare(inputs: Inputs, op: Sampling) -> Call:
        logits, k, draw = inputs["logits"], int(op.k), DRAWS[name]
        return lambda: draw(logits, k)

    return prepare


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Return by how many standard deviations sum (n - N p)^2 / (N p) lies above its mean, the degrees of freedom."""
    expected = float(counts.sum()) * probabilities.double()
    seen = expected > 0
    if bool((counts[~seen] > 0).any()):
        return float("inf")
    freedom = float(seen.sum()) - 1.0
    statistic = float(((counts[seen] - expected[seen]) ** 2 / expected[seen]).sum())
    return float((statistic - freedom) / (2.0 * freedom) ** 0.5)


def _check(op: Sampling, inputs: Inputs, output: Any, algorithm: str) -> str:
    """Check the shape, and the distribution by many draws from a row of 64 logits."""
    if tuple(output.shape) != (int(op.rows),):
        return f"shape {tuple(output.shape)} instead of {(int(op.rows),)}"
    row = inputs["logits"][0, : min(TOKENS, int(op.vocab))].contiguous()
    kept = max(1, row.numel() // 2)
    drawn = DRAWS[algorithm](row.expand(COUNTED, -1), kept)
    probabilities = torch.softmax(row.double(), -1)
    if algorithm == "top_k":
        least = torch.topk(row, kept).values[-1]
        probabilities = torch.where(row >= least, probabilities, 0.0)
    if algorithm == "top_p":
        ordered, tokens = probabilities.sort(descending=True)
        probabilities = probabilities.index_fill(0, tokens[ordered.cumsum(0) - ordered >= SHARE], 0.0)
    probabilities = probabilities / probabilities.sum()
    counts = torch.bincount(drawn, minlength=row.numel()).double()
    off = chi_square(counts, probabilities)
    return "" if off < DEVIATIONS else f"chi-square {off:.1f} standard deviations above its mean"


CONTEST = Contest(
    "sampling",
    sizes=(1024.0, 16384.0, 131072.0),
    operator=_operator,
    inputs=_inputs,
    kernels={name: _prepared(name) for name in DRAWS},
    check=_check,
)
