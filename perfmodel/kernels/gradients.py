"""Gradients as kernels: autograd runs the backward pass of another kernel, with its forward pass computed before.

The inputs of a gradient are those of the forward pass and the gradient of its output, ``dy``. Its results are the
gradients that the operator's backward count writes, in the order of the inputs that they belong to.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from perfmodel.core.work import Tensor
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Kernel
from perfmodel.operators import Operator

#: the gradient of the output, among the inputs
OUTPUT_GRADIENT = "dy"


def is_gradient(op: Operator) -> bool:
    """Return whether an operator is a backward pass."""
    return bool(getattr(op, "backward", False))


def forward_of(op: Operator) -> Operator:
    """Return the operator whose gradient another one is."""
    return op.changed(backward=False, **({"gradient": "both"} if "gradient" in op.dimensions() else {}))


def gradient_inputs(op: Operator) -> tuple[Tensor, ...]:
    """Return the inputs of a gradient: those of the forward pass, and the gradient of its output."""
    buffers = forward_of(op).buffers()
    output = next(tensor for tensor in buffers if tensor.writes and not tensor.reads)
    inputs = [tensor for tensor in buffers if tensor.reads and not tensor.writes]
    return (*inputs, Tensor.input(OUTPUT_GRADIENT, output.shape, output.dtype))


def differentiated(op: Operator) -> tuple[str, ...]:
    """Return the inputs of the forward pass whose gradients the backward pass writes."""
    written = {tensor.name for tensor in op.tensors() if tensor.writes}
    inputs = [t.name for t in gradient_inputs(op)[:-1] if not t.dtype.startswith("int")]
    named = tuple(name for name in inputs if f"d{name}" in written)
    return named or tuple(inputs[:1])


@functools.cache
def _start_autograd() -> None:
    """Run a first backward pass on a GPU: torch's thread for it warns once that cuBLAS has no context there yet."""
    with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad():
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
        x = torch.ones(16, 16, device="cuda", requires_grad=True)
        torch.autograd.grad((x @ x).sum(), x)


class GradientCall:
    """The backward pass of a kernel: calling it runs nothing else.

    The forward pass runs when it is made, and again in `renew` after its inputs have changed.

    Parameters
    ----------
    kernel : the kernel of the forward pass.
    op : the backward pass.
    inputs : those of `gradient_inputs`.
    """

    def __init__(self, kernel: Kernel, op: Operator, inputs: Mapping[str, torch.Tensor]) -> None:
        self._kernel, self._op, self._inputs = kernel, op, inputs
        if any(x.is_cuda for x in inputs.values()):
            _start_autograd()
        self.renew()

    def renew(self) -> None:
        """Run the forward pass, whose intermediate results the backward pass reads."""
        forward = forward_of(self._op)
        with torch.inference_mode(False), torch.enable_grad():
            # autograd keeps no inference tensors: a user's are copied as they are now
            kept = {name: x.clone() if x.is_inference() else x for name, x in self._inputs.items()}
            inputs, self._leaves = leaves(self._op, kept)
            self._output = self._kernel.prepare(forward, inputs)()
        self._dy = kept[OUTPUT_GRADIENT]

    def __call__(self) -> tuple[torch.Tensor, ...]:
        """Return the gradients."""
        if self._dy.is_cuda and torch.cuda.is_current_stream_capturing():
            # autograd runs each kernel on the stream of its forward pass, which the graph would not hold
            raise RuntimeError("autograd runs on the stream of the forward pass")
        return torch.autograd.grad(self._output, self._leaves, self._dy, retain_graph=True)


def leaves(op: Operator, inputs: Mapping[str, torch.Tensor]) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
    """Return the inputs of the forward pass, and those among them that are differentiated, for autograd.

    Elementwise operands are parts of one tensor. They become tensors of their own, so that their gradients are not
    joined.
    """
    chosen = {name: x for name, x in inputs.items() if name != OUTPUT_GRADIENT}
    if op.op == "elementwise":
        written = next(tensor for tensor in op.tensors() if tensor.name == "dx")
        operands = [x.detach() for x in chosen["x"]]
        count = int(written.shape[0])
        # the condition comes first; what is added last has dy itself as its gradient
        wanted = operands[-count:] if getattr(op, "kind", "") == "where" else operands[:count]
        return {"x": operands}, tuple(x.requires_grad_() for x in wanted)
    for name in differentiated(op):
        chosen[name] = chosen[name].detach().requires_grad_()
    return chosen, tuple(chosen[name] for name in differentiated(op))


def gradient_kernel(
    kernel: Kernel,
    composition: Callable[[Any], Sequence[Operator]] | None = None,
    supports: Callable[[Any, Device], str] | None = None,
) -> Kernel:
    """Return the kernel that computes the gradient of another one by autograd.

    Parameters
    ----------
    kernel : the kernel of the forward pass.
    composition : the operators that the backward pass runs one after another, if it is not one kernel.
    supports : why it cannot run a backward pass on a device; by default what the kernel says of the forward pass.
    """

    def reason(op: Any, device: Device) -> str:
        return (supports(op, device) if supports else "") or kernel.supports(forward_of(op), device)

    return dataclasses.replace(
        kernel,
        name=f"{kernel.name}.backward",
        prepare=lambda op, inputs: GradientCall(kernel, op, inputs),
        supports=reason,
        applies=lambda op: is_gradient(op) and kernel.applies(forward_of(op)),
        # what the forward pass leaves, and a gradient of each of its intermediate results
        workspace_bytes=lambda op: 2.0 * kernel.workspace_bytes(forward_of(op)) + _bytes(forward_of(op)),
        own_operator=None,
        composition=composition,
        gradient=True,
    )


def _bytes(op: Operator) -> float:
    return sum(float(tensor.size_bytes) for tensor in op.buffers())
