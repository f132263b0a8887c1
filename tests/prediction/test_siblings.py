"""Machines of one generation come in the order of their specifications: less of everything is never faster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import load_all
from perfmodel.operators.base import Operator
from perfmodel.prediction.latency.machine import generation

#: random operators of each kind
COUNT = 3000
#: most that the machine of lesser figures may be faster by, with the same constants
TOLERANCE = 1.02
#: the same where one of the two was measured and has constants of its own: what the fits of H100, H200, L40S, RTX 4090
#: and the A100s differ by. In 8 bits, H100 quantises rows half as fast as what Hopper's two machines have in common.
OWN_FIT, OWN_FIT_FP8 = 1.25, 1.6
#: and the start of a kernel, by what the laboratories that measured them differ [s] (RTX 4090 and L40S)
START = 1e-6
#: kinds that read a row twice: a chip of fewer SMs has more L2 for each row that is under way
READS_TWICE = ("layer_norm", "softmax")


def figures(machine: pm.Hardware) -> dict[str, float]:
    """Return what a machine is sold by, and the rate of one SM."""
    cache = machine.caches[-1].capacity_bytes if machine.caches else None
    found = {
        "SMs": float(machine.sm_count or 0),
        "bandwidth": machine.main_memory.bandwidth_bytes_per_s or 0.0,
        "tdp": machine.tdp_w or 0.0,
        "l2": float(cache or 0.0),
    }
    for peak in machine.peaks:
        found[f"{peak.engine} {peak.dtype}"] = peak.flop_per_s
        found[f"{peak.engine} {peak.dtype} of an SM"] = peak.flop_per_s / (machine.sm_count or 1)
        found[f"{peak.engine} {peak.dtype} clock"] = peak.clock_hz or 0.0
    return found


def has_less(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether no figure of one machine is above the other's."""
    return one != other and all(name in other and value <= 1.0001 * other[name] for name, value in one.items())


def pairs() -> Iterator[tuple[pm.Hardware, pm.Hardware]]:
    """Yield the pairs of a generation in which the first has less or as much of everything."""
    machines = [machine for machine in load_all() if machine.kind == "gpu"]
    for less, more in itertools.permutations(machines, 2):
        if generation(less) == generation(more) and has_less(figures(less), figures(more)):
            yield less, more


def random_operators() -> Iterator[Operator]:
    """Yield `COUNT` operators of each kind and dtype, as often small as large."""
    random = np.random.default_rng(2)

    def draw(power: int) -> NDArray[np.float64]:
        return np.floor(2.0 ** random.uniform(0.0, power, COUNT))

    for dtype in ("fp32", "bf16", "fp8"):
        yield pm.Gemm(m=draw(14), n=draw(14), k=draw(14), dtype=dtype)
    for dtype in ("fp32", "bf16"):
        yield pm.Gemm(m=draw(11), n=draw(11), k=draw(11), batch=1.0 + draw(8), dtype=dtype)
        yield pm.Elementwise(numel=draw(30), dtype=dtype)
        for kind in (pm.LayerNorm, pm.RmsNorm, pm.Softmax, pm.Reduction):
            yield kind(rows=draw(15), cols=draw(15), dtype=dtype)


def _l2_of_an_sm(machine: pm.Hardware) -> float:
    return figures(machine)["l2"] / (machine.sm_count or 1)


@pytest.mark.parametrize("op", random_operators(), ids=lambda op: f"{op.op}-{op.dtype}-{len(op.params())}")
def test_a_machine_with_less_of_everything_is_not_faster(op: Operator) -> None:
    compared = 0
    for less, more in pairs():
        if op.op in READS_TWICE and _l2_of_an_sm(less) > _l2_of_an_sm(more):
            continue
        try:
            slow, fast = (pm.predict(op, machine) for machine in (less, more))
        except UsageError:  # no peak for the dtype
            continue
        compared += 1
        limit, start = TOLERANCE, 0.0
        if slow.prediction_basis != fast.prediction_basis or slow.family in {**less.latency, **more.latency}:
            limit, start = OWN_FIT_FP8 if op.dtype == "fp8" else OWN_FIT, START
        # Where the time is the bound, it is the measured start of an empty kernel (H200).
        free = np.asarray(fast.predicted_time_s) > np.asarray(fast.bound_time_s)
        ratio = np.where(free, (np.asarray(fast.predicted_time_s) - start) / np.asarray(slow.predicted_time_s), 0.0)
        if ratio.max() > limit:
            worst: Any = {k: int(v[ratio.argmax()]) for k, v in op.params().items() if isinstance(v, np.ndarray)}
            pytest.fail(f"{less.name} is {ratio.max():.3f} times as fast as {more.name} at {worst}")
    assert compared > 10


def test_the_pairs_hold_those_that_are_known() -> None:
    names = {(less.name, more.name) for less, more in pairs()}
    assert {
        ("h100-pcie-80gb", "h100-sxm5-80gb"),
        ("h800-sxm5-80gb", "h100-sxm5-80gb"),
        ("a100-pcie-80gb", "a100-sxm4-80gb"),
        ("v100-pcie-16gb", "v100-sxm2-16gb"),
        ("mi300x", "mi325x"),
    } <= names
