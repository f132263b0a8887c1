"""What the monitor says about series: leaks that are there, none that are not, and every other fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perfmodel.measure.monitor.findings import find
from perfmodel.measure.monitor.series import Series
from perfmodel.measure.monitor.sources import Sample
from perfmodel.measure.monitor.trend import leak_rate, mann_kendall_z, theil_sen

MEMORY = 8e9
RUNS = 150


def autoregressive(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = rng.normal(0, 1, n)
    values = np.zeros(n)
    for index in range(1, n):
        values[index] = phi * values[index - 1] + np.sqrt(1 - phi**2) * noise[index]
    return values


HARMLESS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "noise": lambda rng, n: MEMORY + rng.normal(0, 1e7, n),
    "noise with memory": lambda rng, n: MEMORY + 1e7 * autoregressive(rng, n, 0.9),
    "warm-up": lambda rng, n: MEMORY * (1 - np.exp(-np.arange(n) / (0.08 * n))) + rng.normal(0, 1e6, n),
    "cycle": lambda rng, n: MEMORY + 5e6 * ((np.arange(n) + rng.integers(0, n)) % rng.integers(4, n // 4)),
    "constant": lambda rng, n: np.full(n, MEMORY),
    "one step": lambda rng, n: MEMORY + 1e8 * (np.arange(n) > rng.integers(0, n)),
}
#: 0.1 % of the memory a minute
LEAKS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "quiet": lambda rng, minutes: MEMORY * (1 + 1e-3 * minutes) + rng.normal(0, 2e5, minutes.size),
    "in a cycle": lambda rng, minutes: MEMORY * (1 + 1e-3 * minutes) + 1e5 * (np.arange(minutes.size) % 7),
}


def test_rates_of_false_alarms_and_of_leaks_found(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    lengths = (38, 60, 300)
    alarms = {
        name: np.mean([leak_rate(np.arange(n) * 1.0, make(rng, n)) > 0 for n in lengths for _ in range(RUNS)])
        for name, make in HARMLESS.items()
    }
    # 38 samples: 30 after the warm-up, one a second
    seconds = np.arange(38.0)
    found = {
        name: np.mean([leak_rate(seconds, make(rng, seconds / 60)) > 0 for _ in range(RUNS)])
        for name, make in LEAKS.items()
    }
    with capsys.disabled():
        alarmed = ", ".join(f"{name} {rate:.1%}" for name, rate in alarms.items())
        caught = ", ".join(f"{name} {rate:.1%}" for name, rate in found.items())
        print(f"\nmonitor: false alarms: {alarmed}; leaks found: {caught}")  # noqa: T201 -- the rates are the result
    assert max(alarms.values()) <= 0.02
    assert min(found.values()) >= 0.98


#: looks at a live series: every 10 samples from the 40th on
LOOKS = range(40, 301, 10)


def alarms_live(values: np.ndarray) -> int:
    """Return after how many samples two looks in a row have found a leak, 0 for never."""
    times = np.arange(values.size) * 1.0
    found = [leak_rate(times[:length], values[:length]) > 0 for length in LOOKS]
    return next((LOOKS[at + 1] for at in range(len(LOOKS) - 1) if found[at] and found[at + 1]), 0)


def test_rates_of_a_session_that_looks_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    harmless = {**HARMLESS, "cycle": lambda rng, n: MEMORY + 5e6 * (np.arange(n) % rng.integers(4, 10))}
    alarms = {name: np.mean([alarms_live(make(rng, 300)) > 0 for _ in range(50)]) for name, make in harmless.items()}
    minutes = np.arange(300) / 60
    found = {name: np.median([alarms_live(make(rng, minutes)) for _ in range(10)]) for name, make in LEAKS.items()}
    with capsys.disabled():
        alarmed = ", ".join(f"{name} {rate:.1%}" for name, rate in alarms.items())
        caught = ", ".join(f"{name} {samples:.0f}" for name, samples in found.items())
        print(f"\nmonitor, {len(LOOKS)} looks: false alarms: {alarmed}; samples until a leak: {caught}")  # noqa: T201 -- as above
    assert max(alarms.values()) <= 0.02
    assert 0 < min(found.values()) <= max(found.values()) <= 60


def test_the_rate_of_a_leak_is_its_slope() -> None:
    times = np.arange(300.0)
    assert leak_rate(times, MEMORY + 1e6 * times) == pytest.approx(1e6, rel=1e-3)
    assert leak_rate(times, MEMORY - 1e6 * times) == 0.0, "memory that shrinks does not leak"
    assert leak_rate(times[:20], MEMORY + 1e6 * times[:20]) == 0.0, "too few samples"
    stopped = MEMORY + 1e6 * np.minimum(times, 150)
    assert leak_rate(times, stopped) == 0.0, "what has stopped growing is no leak"


def test_trends_by_hand() -> None:
    # n = 5, all pairs rise: S = 10, var = 5 4 15 / 18 = 16.67, z = 9 / 4.08
    assert mann_kendall_z(np.arange(5.0)) == pytest.approx(9 / np.sqrt(300 / 18))
    assert mann_kendall_z(-np.arange(5.0)) == pytest.approx(-9 / np.sqrt(300 / 18))
    assert theil_sen(np.arange(5.0), np.array([0.0, 1.0, 2.0, 3.0, 1000.0])) == 1.0


def series(**courses: np.ndarray) -> Series:
    """Return series of one sample a second; a name is metric and owner, joined by two underscores."""
    made = Series()
    length = max(course.size for course in courses.values())
    for second in range(length):
        samples = [
            Sample(name.partition("__")[0], name.partition("__")[2].replace("_", " "), float(course[second]))
            for name, course in courses.items()
        ]
        made.add(float(second), samples)
    return made


def kinds(made: Series) -> list[tuple[str, str]]:
    return [(one.kind, one.of) for one in find(made)]


def test_each_fault_is_found_and_a_healthy_run_has_none() -> None:
    n = 90
    one, none = np.ones(n), np.zeros(n)
    healthy = {
        "gpu_utilization_ratio__gpu_0": 0.97 * one, "gpu_utilization_ratio__gpu_1": 0.95 * one,
        "gpu_throttled_hardware_slowdown__gpu_0": none, "host_busiest_core_ratio__host": 0.7 * one,
        "host_swap_bytes_per_second__host": none, "process_cpus__process_1": 2 * one,
        "process_memory_resident_bytes__process_1": 1e9 * one,
    }  # fmt: skip
    assert kinds(series(**healthy)) == []
    busy = {"host_busiest_core_ratio__host": one, "gpu_utilization_ratio__gpu_0": 0.5 * one}
    assert ("host-bound", "gpu 0") in kinds(series(**{**healthy, **busy}))
    slow = {"gpu_throttled_hardware_slowdown__gpu_0": one}
    assert kinds(series(**{**healthy, **slow})) == [("throttled", "gpu 0")]
    low = {"gpu_utilization_ratio__gpu_0": 0.1 * one, "gpu_utilization_ratio__gpu_1": 0.1 * one}
    assert kinds(series(**{**healthy, **low})) == [("low use", "gpu 0"), ("low use", "gpu 1")]
    uneven = {"gpu_utilization_ratio__gpu_1": 0.4 * one}
    assert kinds(series(**{**healthy, **uneven})) == [("imbalance", "gpu 1")]
    swaps = {"host_swap_bytes_per_second__host": 5e6 * one}
    assert kinds(series(**{**healthy, **swaps})) == [("swapping", "host")]
    leaks = {"process_memory_resident_bytes__process_1": 1e9 + 1e6 * np.arange(n)}
    assert kinds(series(**{**healthy, **leaks})) == [("memory leak", "process 1")]
    # 1 MB/s fills 2.5 TB in 29 days, and 3 TB in 35, which no job waits for
    for total, found in ((2.5e12, [("memory leak", "process 1")]), (3e12, [])):
        large = {"host_memory_total_bytes__host": np.full(n, total)}
        assert kinds(series(**{**healthy, **leaks, **large})) == found
    stopped = {"process_cpus__process_1": np.where(np.arange(n) < 40, 2.0, 0.0)}
    assert kinds(series(**stopped)) == [("stalled", "process 1")]


def test_a_reason_that_comes_and_goes_is_no_throttling() -> None:
    now_and_then = (np.arange(90) % 3 == 0).astype(float)
    assert kinds(series(gpu_throttled_software_power_cap__gpu_0=now_and_then)) == []
