"""One step of an optimizer, as torch runs it: fused, foreach and loop."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.kernels.reference.optimizer import BETAS, DECAY, EPS, LR, MOMENTUM
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.operators.optimizer import Optimizer


def _supports(op: Optimizer, device: Device) -> str:
    if op.kind == "adam8bit" or op.master:
        return f"torch has no step of {'adam8bit' if op.kind == 'adam8bit' else 'master weights'}"
    if op.state_dtype != op.dtype:
        return "torch keeps the moments in the dtype of the weights"
    if (op.kind, op.algorithm, device.kind) == ("sgd", "fused", "cpu") and op.dtype in ("bf16", "fp16"):
        return "torch 2.13's fused SGD takes a wrong momentum in 16 bits on a CPU"
    return unsupported_dtype(device.kind, op.dtype)


class _Step:
    """A step on the inputs themselves: calling it runs nothing else.

    The counts of steps are those of one tensor. They begin at 0 whenever the inputs are new, and rise with each call:
    to set them back would be kernels of its own, one a tensor and as long as the step itself where tensors are many.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, weights: torch.Tensor, counts: torch.Tensor | None) -> None:
        self._optimizer, self._weights, self._counts = optimizer, weights, counts

    def renew(self) -> None:
        """Begin with the first step again, which the reference is one of."""
        if self._counts is not None:
            with torch.inference_mode(False):
                self._counts.zero_()

    def __call__(self) -> torch.Tensor:
        """Return the weights after another step."""
        with torch.inference_mode(False):
            self._optimizer.step()
        return self._weights


def _step(op: Optimizer, inputs: Mapping[str, torch.Tensor]) -> Call:
    weights, algorithm = inputs["weights"], {"fused": op.algorithm == "fused", "foreach": op.algorithm == "foreach"}
    with torch.inference_mode(False):
        parts = [torch.nn.Parameter(part) for part in weights.tensor_split(int(op.num_tensors))]
        for part, gradient in zip(parts, inputs["gradient"].tensor_split(int(op.num_tensors)), strict=True):
            part.grad = gradient
        optimizer: torch.optim.Optimizer
        names: tuple[str, ...]
        counts = None
        if op.kind == "adamw":
            optimizer = torch.optim.AdamW(parts, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, **algorithm)
            names = ("exp_avg", "exp_avg_sq")
            # a fused step counts on the device
            counts = torch.zeros(len(parts), device=weights.device if op.algorithm == "fused" else "cpu")
        else:
            momentum = MOMENTUM if op.momentum else 0.0
            optimizer = torch.optim.SGD(parts, lr=LR, momentum=momentum, **algorithm)
            names = ("momentum",) if op.momentum else ()
        states = {name: inputs[name].tensor_split(int(op.num_tensors)) for name in names}
        for place, part in enumerate(parts):
            state = {_NAMES.get(name, name): states[name][place] for name in names}
            if counts is not None:
                state["step"] = counts[place]
            optimizer.state[part] = state
    return _Step(optimizer, weights, counts)


#: names of the model -> of torch
_NAMES = {"momentum": "momentum_buffer"}

KERNELS = (Kernel("torch.optim", "optimizer", "torch", _step, _supports, in_place=True),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        parameters=4194304
        parameters=4194304 algorithm=foreach num_tensors=16
        parameters=4194304 algorithm=loop num_tensors=16
        parameters=4194304 kind=sgd
    """,
    cuda_more="""
        parameters=134217728
        parameters=134217728 algorithm=foreach num_tensors=64
        parameters=134217728 algorithm=loop num_tensors=64
    """,
)
