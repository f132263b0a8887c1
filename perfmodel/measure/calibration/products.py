"""Sustained arithmetic: matrix products by dtype, and chains of multiply-adds on a GPU's vector engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import find_kernels
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Rate, Status, attempt, measured_rate
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm

_SMALLEST_PRODUCT = 256


def product_rates(
    device: Device, dtypes: Sequence[str], plan: CalibrationPlan, status: Status
) -> tuple[dict[str, Rate], list[str]]:
    """Return the best rate of square matrix products by dtype [FLOP/s], and what was left out and why.

    The library's call runs on random data: zeros would let a GPU clock higher than real data does (arXiv 2501.12084).
    """
    rates: dict[str, Rate] = {}
    left_out: list[str] = []
    for dtype in dict.fromkeys(dtypes):
        reason, make = _library_product(dtype, device)
        if reason:
            left_out.append(f"products in {dtype}: {reason}")
            continue
        status(f"measuring matrix products in {dtype}")
        with device.precision(dtype):
            rate = attempt(f"products in {dtype}", partial(_best_rate, make, device, plan), left_out)
        if rate:
            rates[dtype] = rate
    return rates, left_out


def vector_rates(
    device: Device, dtypes: Sequence[str], plan: CalibrationPlan, status: Status
) -> tuple[dict[str, float], list[str]]:
    """Return the rate of chains of multiply-adds in registers by dtype [FLOP/s], and what was left out and why.

    It is the best that the vector engine does: nothing is read or written.
    """
    from perfmodel.kernels.triton._base import multiprocessors, unavailable

    reason = unavailable(device, ("fp32",), "fp32")
    if reason:
        return {}, [f"rates of the vector engine: {reason}"]
    from perfmodel.kernels.triton import _bandwidth

    programs = _bandwidth.programs_that_fill(multiprocessors())
    rates: dict[str, float] = {}
    left_out: list[str] = []
    for dtype in (dtype for dtype in _bandwidth.CHAINS if dtype in dtypes):
        status(f"measuring multiply-adds in {dtype}")
        with device.precision(dtype):
            probe = _bandwidth.chain_probe(dtype, programs)
            measure = partial(measured_rate, probe.call, probe.amount, device, plan)
            rate = attempt(f"multiply-adds in {dtype}", measure, left_out)
        if rate:
            rates[dtype] = rate.sustained
    return rates, left_out


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


def _best_rate(make: Callable[[int], Callable[[], Any]], device: Device, plan: CalibrationPlan) -> Rate:
    """Return the best rate of square products [FLOP/s]; their size is doubled while they take little enough time."""
    size = _SMALLEST_PRODUCT
    rates = []
    while size <= plan.largest_product[device.kind]:
        flop = float(Gemm(m=size, n=size, k=size).flop())
        rates.append(measured_rate(make(size), flop, device, plan))
        if 8 * flop / rates[-1].sustained > plan.product_s:
            break
        size *= 2
    return max(rates, key=lambda rate: rate.sustained)
