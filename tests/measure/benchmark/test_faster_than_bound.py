"""Likely causes of a measurement faster than its bound."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from perfmodel.core.hardware import Launch  # noqa: E402
from perfmodel.core.vocabulary import CacheState  # noqa: E402
from perfmodel.measure.benchmark.faster_than_bound import faster_than_bound  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.reduction import Reduction  # noqa: E402
from perfmodel.prediction.predict import predict  # noqa: E402


@pytest.fixture
def machine(simple_gpu):
    """The round machine without a launch floor: 10 TFLOP/s fp32, 1 TB/s, 4 TB/s in an L2 of 10 MB."""
    return dataclasses.replace(simple_gpu, launch=Launch(overhead_s=2e-6))


def _note(op, machine, factor, cache=CacheState.COLD, telemetry=None):
    prediction = predict(op, machine)
    return faster_than_bound(prediction, float(prediction.bound_time_s) / factor, machine, cache, telemetry or {})


def test_causes_follow_the_facts(machine):
    small = Elementwise(numel=10**6, kind="copy")
    medium, large = (Elementwise(numel=numel, kind="copy") for numel in (10**7, 10**8))
    product = Gemm(m=4096, n=4096, k=4096, dtype="fp16")
    assert "fit the l2 of 9.537 MiB and were there (--cache warm)" in _note(small, machine, 2, CacheState.WARM)
    assert "its output is still there when the clock stops" in _note(small, machine, 2)
    assert "9.537 MiB of its 76.29 MiB may still be in the l2" in _note(medium, machine, 1.1)
    reading = Reduction(rows=10, cols=10**7)
    assert "may still be" not in _note(reading, machine, 1.1), "40 B written cannot explain a tenth of 400 MB"
    assert "bandwidth of 1 TB/s in the spec is too low" in _note(large, machine, 1.1)
    assert "noise" in _note(large, machine, 1.01)
    assert "noise" not in _note(large, machine, 1.1)
    assert "fp16 peak of the tensor engine" in _note(product, machine, 1.2)
    clocked = dataclasses.replace(machine, peaks=(dataclasses.replace(machine.peaks[0], clock_hz=1.4e9),))
    assert "it ran at 1.9 GHz" in _note(product, clocked, 1.2, telemetry={"sm_clock_hz": {"median": 1.9e9}})
    own_measure = dataclasses.replace(machine, kind="cpu")
    assert "is itself a measurement" in _note(large, own_measure, 1.1)


def test_a_launch_floor_that_is_beaten_is_the_cause_itself(simple_gpu):
    assert "launch floor in the spec of simple is too high" in _note(Elementwise(numel=10), simple_gpu, 1.5)
