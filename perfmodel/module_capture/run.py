"""Running a captured module where it is: the time of each module's forward pass, and of the backward pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from perfmodel.module_capture.capture import arguments_of, scalar_of

#: forward passes before the timed ones, and those that are timed
WARM_UP, RUNS = 2, 5


def run_module(
    module: torch.nn.Module, inputs: Any, *, backward: bool = False
) -> tuple[Mapping[str, float], float | None]:
    """Return the median time of each module's forward pass [s], and of the whole backward pass, or None.

    Hooks mark start and end of each module: on the host's clock for a module on the CPU, by events for one on a GPU.
    They are removed afterwards, gradients are set back to what they were, and so is the state of random numbers.

    Parameters
    ----------
    module, inputs, backward : as of `perfmodel.module_capture.capture.capture`; the tensors are real.
    """
    args, kwargs = arguments_of(inputs)
    on_gpu = any(parameter.is_cuda for parameter in module.parameters())
    marks = _Marks(module, on_gpu)
    backwards: list[tuple[Any, Any]] = []
    with _unchanged(module), marks.hooked():
        for number in range(WARM_UP + RUNS):
            if number == WARM_UP:
                marks.forget()
                backwards.clear()
            with torch.set_grad_enabled(backward):
                out = module(*args, **kwargs)
            if backward:
                begin = marks.now()
                scalar_of(out, None).backward()
                backwards.append((begin, marks.now()))
            marks.end_of_run()
    return marks.medians(), float(np.median([marks.between(*pair) for pair in backwards])) if backwards else None


class _Marks:
    """Start and end of each module's forward pass, of several runs."""

    def __init__(self, module: torch.nn.Module, on_gpu: bool) -> None:
        self._module, self._on_gpu = module, on_gpu
        self._open: dict[str, list[Any]] = {}
        self._run: dict[str, list[tuple[Any, Any]]] = {}
        self._times: dict[str, list[float]] = {}

    def now(self) -> Any:
        """Return a mark: a time of the host, or an event on the GPU's stream."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Return the time between two marks [s]."""
        if not self._on_gpu:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Mark every module inside the block."""
        handles = []
        for path, inner in self._module.named_modules():
            handles.append(inner.register_forward_pre_hook(self._begins(path)))
            handles.append(inner.register_forward_hook(self._ends(path)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _begins(self, path: str) -> Callable[..., None]:
        def hook(module: Any, args: Any) -> None:
            self._open.setdefault(path, []).append(self.now())

        return hook

    def _ends(self, path: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, out: Any) -> None:
            self._run.setdefault(path, []).append((self._open[path].pop(), self.now()))

        return hook

    def end_of_run(self) -> None:
        """Add up the calls of each module in this run."""
        for path, pairs in self._run.items():
            self._times.setdefault(path, []).append(sum(self.between(*pair) for pair in pairs))
        self._run.clear()

    def forget(self) -> None:
        """Drop the runs so far, which warmed up."""
        self._times.clear()

    def medians(self) -> dict[str, float]:
        """Return the median time of each module that ran [s]."""
        return {path: float(np.median(times)) for path, times in self._times.items()}


@contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Restore gradients, buffers and the state of random numbers after the block."""
    gradients = [parameter.grad for parameter in module.parameters()]
    buffers = [buffer.clone() for buffer in module.buffers()]
    devices = sorted({p.device.index for p in module.parameters() if p.is_cuda and p.device.index is not None})
    with torch.random.fork_rng(devices=devices):
        for parameter in module.parameters():
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, before in zip(module.buffers(), buffers, strict=True):
                    buffer.copy_(before)
