"""Calls that only move memory, launch or multiply; calibration measures them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: elements per row of a sum: leaves enough rows for all cores or SMs, and a short output
_COLUMNS = 2**16
#: lowest compute capabilities with fp8 tensor cores, and with int8 products of cuBLASLt (CUDA C++ Programming Guide 13,
#: section Compute Capabilities)
_FP8_FROM, _INT8_FROM = (8, 9), (7, 5)
#: torch has separate calls for products of these dtypes
SPECIAL_PRODUCTS = ("fp8", "int8")


@dataclass(frozen=True)
class Probe:
    """A call to be timed and its amount of work: bytes moved in all directions, or FLOP."""

    call: Callable[[], Any]
    amount: float


def memory_probes(kind: str, numel: int) -> dict[str, Callable[[], Probe]]:
    """Return, by access pattern, functions that create the probes, on float32 buffers of ``numel`` elements.

    Bytes per element: read 4; write 4; copy 4 + 4; triad a = b + s c, 3 x 4. The name and the count are those of
    J. D. McCalpin, "STREAM", 1995: the lines that a CPU's stores fetch first do not count.

    Parameters
    ----------
    kind : "cpu" or "cuda".
    numel : a multiple of 65536.
    """

    @functools.cache
    def buffer(name: str) -> torch.Tensor:
        # Random, since a GPU compresses constant data; written, since pages that never were all map to one page.
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
    """Return the launch of a kernel with one thread that ends at once; torch adds no other work."""
    return functools.partial(torch.cuda._sleep, 1)


def transfer_probes(sizes: list[int], *, direction: str, pinned: bool) -> list[Probe]:
    """Return copies of several sizes between host and GPU, all of them slices of one pair of buffers.

    Parameters
    ----------
    sizes : size of each copy [B].
    direction : "h2d" or "d2h".
    pinned : whether the host's buffer is page-locked; copies are then asynchronous.
    """
    host = torch.empty(max(sizes), dtype=torch.uint8, pin_memory=pinned)
    host.fill_(85)  # pages that were never written may not be in memory
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
        return "" if dtype == "int8" else "torch has no fast fp8 product on a CPU"
    least = _FP8_FROM if dtype == "fp8" else _INT8_FROM
    if torch.cuda.get_device_capability() < least:
        return f"{dtype} products need compute capability {least[0]}.{least[1]}"
    return ""


def special_product(dtype: str, size: int, kind: str) -> Probe:
    """Return a square product in fp8 (e4m3, output bf16) or int8 (output int32), on a GPU by cuBLASLt.

    The second factor is stored by columns, as both require; the data is random.
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
