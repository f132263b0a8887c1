"""Draws of one token a row: torch.multinomial of a softmax, Gumbel-max as operators, of the k largest, by a share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.sampling import Sampling

#: the share of the probability among which top_p draws
SHARE = 0.9


def multinomial(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Draw from the softmax of each row."""
    return torch.multinomial(torch.softmax(logits, -1), 1)[:, 0]


def gumbel(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Take the largest of logits minus the logarithms of exponential numbers: the same distribution."""
    noise = torch.empty_like(logits).exponential_().log_()
    return torch.argmax(logits - noise, -1)


def top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Draw among the k largest logits of each row."""
    values, indices = torch.topk(logits, k, sorted=False)
    return indices.gather(1, torch.multinomial(torch.softmax(values, -1), 1))[:, 0]


def top_p(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Draw among the most probable tokens whose sum reaches the share: those before which less than it is summed."""
    values, indices = torch.sort(logits, -1, descending=True)
    probabilities = torch.softmax(values, -1)
    before = probabilities.cumsum(-1) - probabilities
    kept = probabilities.masked_fill(before >= SHARE, 0.0)
    return indices.gather(1, torch.multinomial(kept, 1))[:, 0]


DRAWS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "multinomial": multinomial,
    "gumbel": gumbel,
    "top_k": top_k,
    "top_p": top_p,
}


def _supports(op: Sampling, device: Device) -> str:
    if op.algorithm not in DRAWS:
        return f"torch has no kernel of {op.algorithm}: its draws are {', '.join(DRAWS)}"
    if op.dtype == "fp16":
        return "exponential numbers in fp16 round to 0; engines draw from logits in fp32"
    return unsupported_dtype(device.kind, op.dtype)


def _draw(op: Sampling, inputs: Mapping[str, torch.Tensor]) -> Call:
    logits, k, draw = inputs["logits"], int(op.k), DRAWS[op.algorithm]
    return lambda: draw(logits, k)


def _workspace_bytes(op: Sampling) -> float:
    """Return the memory of probabilities and random numbers, and of sorted rows with their indices [B]."""
    return float(op.rows * op.vocab) * 40.0


KERNELS = (Kernel("torch operators", "sampling", "torch", _draw, _supports, workspace_bytes=_workspace_bytes),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=8 vocab=32768
        rows=8 vocab=32768 algorithm=gumbel
        rows=8 vocab=32768 algorithm=top_k
        rows=8 vocab=32768 algorithm=top_p
    """,
    cuda_more="""
        rows=1/64 vocab=131072
        rows=64 vocab=131072 algorithm=gumbel
        rows=64 vocab=131072 algorithm=top_k
        rows=64 vocab=131072 algorithm=top_p
    """,
)
