"""Sustained arithmetic: matrix products by dtype, and chains of multiply-adds on a GPU's vector engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import find_kernels
from perfmodel.measure.calibration.plan import Effort, Rate, Status, attempt, rate
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm

_SMALLEST_PRODUCT = 256


def product_rates(
    device: Device, dtypes: Sequence[str], effort: Effort, status: Status
) -> tuple[dict[str, float], list[str]]:
    """Return the best rate of square matrix products by dtype [FLOP/s], and what was left out and why.

    By the library's call on random data: zeros would let a GPU clock higher than any real data does
    (arXiv 2501.12084).
    """
    rates: dict[str, float] = {}
    left_out: list[str] = []
    for dtype in dict.fromkeys(dtypes):
        reason, make = _library_product(dtype, device)
        if reason:
            left_out.append(f"products in {dtype}: {reason}")
            continue
        status(f"measuring matrix products in {dtype}")
        with device.precision(dtype):
            made = attempt(f"products in {dtype}", partial(_best_rate, make, device, effort), left_out)
        if made:
            rates[dtype] = made.sustained
    return rates, left_out


def vector_rates(
    device: Device, dtypes: Sequence[str], effort: Effort, status: Status
) -> tuple[dict[str, float], list[str]]:
    """Return the rate of chains of multiply-adds in registers by dtype [FLOP/s], and what was left out and why.

    It is what the vector engine does at best: nothing is read or written.
    """
    from perfmodel.kernels.triton._base import multiprocessors, unavailable

    reason = unavailable(device, ("fp32",), "fp32")
    if reason:
        return {}, [f"rates of the vector engine: {reason}"]
    from perfmodel.kernels.triton import _bandwidth

    programs = _bandwidth.programs_that_fill(multiprocessors())
    found: dict[str, float] = {}
    left_out: list[str] = []
    for dtype in (dtype for dtype in _bandwidth.CHAINS if dtype in dtypes):
        status(f"measuring multiply-adds in {dtype}")
        with device.precision(dtype):
            probe = _bandwidth.chain_probe(dtype, programs)
            made = attempt(
                f"multiply-adds in {dtype}", partial(rate, probe.call, probe.amount, device, effort), left_out
            )
        if made:
            found[dtype] = made.sustained
    return found, left_out


def library_call(op: Operator, device: Device) -> Callable[[], Any]:
    """Return the library's call of an operator: the first of its kernels."""
    from perfmodel.kernels.inputs import make_inputs

    return find_kernels(op.op)[0].prepare(op, make_inputs(op, device.kind, seed=0))


def _library_product(dtype: str, device: Device) -> tuple[str, Callable[[int], Callable[[], Any]]]:
    """Return why a product in a dtype cannot run, or an empty string, and what makes one of a size."""
    from perfmodel.kernels.torch._bandwidth import SPECIAL_PRODUCTS, special_product, special_unsupported

    reason = find_kernels("gemm")[0].supports(Gemm(m=1, n=1, k=1, dtype=dtype), device)
    if not reason:
        return "", lambda size: library_call(Gemm(m=size, n=size, k=size, dtype=dtype), device)
    if dtype in SPECIAL_PRODUCTS:
        return special_unsupported(dtype, device.kind), lambda size: special_product(dtype, size, device.kind).call
    return reason, lambda size: lambda: None


def _best_rate(make: Callable[[int], Callable[[], Any]], device: Device, effort: Effort) -> Rate:
    """Return the best rate of square products [FLOP/s], doubled in size while they stay affordable."""
    size = _SMALLEST_PRODUCT
    found = []
    while size <= effort.largest_product[device.kind]:
        flop = float(Gemm(m=size, n=size, k=size).flop())
        found.append(rate(make(size), flop, device, effort))
        if 8 * flop / found[-1].sustained > effort.product_s:
            break
        size *= 2
    return max(found, key=lambda one: one.sustained)
