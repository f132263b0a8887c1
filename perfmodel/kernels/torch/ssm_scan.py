"""The selective scan of Mamba, token by token."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.kernels.torch._passes import streamed, twice
from perfmodel.operators import Operator
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.ssm_scan import SsmScan


def _loop(op: SsmScan, inputs: Mapping[str, torch.Tensor]) -> Call:
    x, dt, b, c, a, d = (inputs[name] for name in ("x", "dt", "b", "c", "a", "d"))

    def run() -> torch.Tensor:
        work = torch.float64 if x.dtype is torch.float64 else torch.float32
        state = inputs["state"].to(work) if op.carried else x.new_zeros((x.shape[0], *a.shape), dtype=work)
        out = torch.empty_like(x)
        for token in range(x.shape[1]):
            step, value = dt[:, token].to(work), x[:, token].to(work)
            state = state * torch.exp(step[..., None] * a) + (step * value)[..., None] * b[:, token, None].to(work)
            result = (state * c[:, token, None].to(work)).sum(-1) + d * value
            gate = torch.nn.functional.silu(inputs["z"][:, token].to(work)) if op.gated else 1.0
            out[:, token] = (result * gate).to(x.dtype)
        return out

    return run


def _steps(op: SsmScan) -> tuple[Operator, ...]:
    """The kernels of each token: five passes over the state with a broadcast operand or two tensors, exp, and the sum.

    Conversions, the products of step and value and the results are a channel's number each.
    """
    channels = op.batch * op.channels
    state = channels * op.state
    token = (
        *streamed(state, "fp32", "mul", "mul", "mul", strided=True),
        *streamed(state, "fp32", "exp"),
        *streamed(state, "fp32", "mul", "add", tensors=2),
        Reduction(rows=channels, cols=op.state, dtype="fp32"),
        *streamed(channels, "fp32", *("copy",) * 6, strided=True),
    )
    return tuple(part.changed(count=part.count * int(op.seq)) for part in token)


_FORWARD = Kernel("loop", "ssm_scan", "torch", _loop, supports_dtype, composition=_steps)
KERNELS = (_FORWARD, gradient_kernel(_FORWARD, twice(_steps)))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        seq=256 channels=512
        seq=64 channels=256 backward=true
    """,
    cuda_more="""
        seq=256 channels=4096 dtype=bf16
        batch=8 seq=512 channels=4096 dtype=bf16
        seq=256 channels=4096 dtype=bf16 backward=true
    """,
)
