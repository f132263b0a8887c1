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


def _step(op: Optimizer, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Step on the inputs themselves; the count of steps starts anew in each call, so that all calls are alike."""
    weights, algorithm = inputs["weights"], {"fused": op.algorithm == "fused", "foreach": op.algorithm == "foreach"}
    with torch.inference_mode(False):
        parts = [torch.nn.Parameter(part) for part in weights.tensor_split(int(op.num_tensors))]
        for part, gradient in zip(parts, inputs["gradient"].tensor_split(int(op.num_tensors)), strict=True):
            part.grad = gradient
        optimizer: torch.optim.Optimizer
        names: tuple[str, ...]
        if op.kind == "adamw":
            optimizer = torch.optim.AdamW(parts, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, **algorithm)
            names = ("exp_avg", "exp_avg_sq")
        else:
            momentum = MOMENTUM if op.momentum else 0.0
            optimizer = torch.optim.SGD(parts, lr=LR, momentum=momentum, **algorithm)
            names = ("momentum",) if op.momentum else ()
        states = {name: inputs[name].tensor_split(int(op.num_tensors)) for name in names}
        counts = []
        for place, part in enumerate(parts):
            state = {_NAMES.get(name, name): states[name][place] for name in names}
            if op.kind == "adamw":
                # a fused step counts on the device
                counts.append(torch.zeros((), device=part.device if op.algorithm == "fused" else "cpu"))
                state["step"] = counts[-1]
            optimizer.state[part] = state

    def call() -> torch.Tensor:
        with torch.inference_mode(False):
            for count in counts:
                count.zero_()
            optimizer.step()
        return weights

    return call


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
