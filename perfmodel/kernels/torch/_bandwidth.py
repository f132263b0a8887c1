"""Calls that do nothing but move memory, launch, or multiply: what a calibration measures."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: elements of one row of a sum: enough rows for every core and every SM, few enough for a short output
_COLUMNS = 2**16
#: compute capability from which tensor cores multiply fp8, and from which cuBLASLt multiplies int8 (CUDA C++
#: Programming Guide 13, section Compute Capabilities)
_FP8_FROM, _INT8_FROM = (8, 9), (7, 5)
#: torch's products of these dtypes are calls of their own, beside torch.matmul
SPECIAL_PRODUCTS = ("fp8", "int8")


@dataclass(frozen=True)
class Probe:
    """A call to be timed, and how much it does: bytes moved, in all directions, or FLOP."""

    call: Callable[[], Any]
    amount: float


def memory_probes(kind: str, numel: int) -> dict[str, Callable[[], Probe]]:
    """Return what makes the probe of each access pattern, on float32 buffers of ``numel`` elements.

    Bytes of one element: read 4; write 4; copy 4 + 4; triad a = b + s c, 3 x 4 (J. D. McCalpin, "STREAM", 1995, where
    the name is from; what a CPU's stores fetch first is not counted, as there).

    Parameters
    ----------
    kind : "cpu" or "cuda".
    numel : a multiple of 65536.
    """

    @functools.cache
    def buffer(name: str) -> torch.Tensor:
        # Random, since a GPU compresses what is constant, and written, since pages never written all map to one.
        return torch.randn(numel, device=kind)

    rows = functools.cache(lambda: buffer("b").view(-1, _COLUMNS))
    return {
        "read": lambda: Probe(functools.partial(torch.sum, rows(), -1), 4.0 * numel),
        "write": lambda: Probe(functools.partial(buffer("a").fill_, 1.5), 4.0 * numel),
        "copy": lambda: Probe(functools.partial(buffer("a").copy_, buffer("b")), 8.0 * numel),
        "triad": lambda: Probe(
            functools.partial(torch.add, buffer("b"), buffer("c"), alpha=3.0, out=buffer("a")), 12.0 * numel
        ),
    }


def empty_launch() -> Callable[[], Any]:
    """Return the launch of a kernel of one thread that ends at once; torch does nothing else for it."""
    return functools.partial(torch.cuda._sleep, 1)


def transfer_probes(sizes: list[int], *, direction: str, pinned: bool) -> list[Probe]:
    """Return copies of some sizes [B] between host and GPU, in slices of one pair of buffers.

    Parameters
    ----------
    sizes : bytes of each copy.
    direction : "h2d" or "d2h".
    pinned : whether the host's buffer is page-locked; the copy is then asynchronous.
    """
    host = torch.empty(max(sizes), dtype=torch.uint8, pin_memory=pinned)
    host.fill_(85)  # pages that were never written need not be in memory
    device = torch.empty(max(sizes), dtype=torch.uint8, device="cuda")
    pairs = [(device[:size], host[:size]) for size in sizes]
    if direction == "d2h":
        pairs = [(to, source) for source, to in pairs]
    return [
        Probe(functools.partial(to.copy_, source, non_blocking=pinned), float(size))
        for size, (to, source) in zip(sizes, pairs, strict=True)
    ]


def special_unsupported(dtype: str, kind: str) -> str:
    """Return why torch cannot multiply matrices of fp8 or int8 on a device, or an empty string."""
    name = "_scaled_mm" if dtype == "fp8" else "_int_mm"
    if not hasattr(torch, name):
        return f"this torch has no torch.{name}"
    if kind == "cpu":
        return "" if dtype == "int8" else "torch has no fast product in fp8 on a CPU"
    least = _FP8_FROM if dtype == "fp8" else _INT8_FROM
    if torch.cuda.get_device_capability() < least:
        return f"products in {dtype} need compute capability {least[0]}.{least[1]}"
    return ""


def special_product(dtype: str, size: int, kind: str) -> Probe:
    """Return a square product in fp8 (e4m3, to bf16) or int8 (to int32), by cuBLASLt on a GPU.

    The second factor is stored by columns, as both want it; the data is random.
    """
    flop = 2.0 * size**3
    if dtype == "int8":
        left, right = (torch.randint(-127, 128, (size, size), dtype=torch.int8, device=kind) for _ in range(2))
        return Probe(functools.partial(torch._int_mm, left, right.t()), flop)
    a, b = (torch.randn(size, size, device=kind).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=kind)
    product = functools.partial(
        torch._scaled_mm, a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
    )
    return Probe(product, flop)
