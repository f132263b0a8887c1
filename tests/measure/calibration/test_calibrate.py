"""Calibration on a scripted clock, and how its figures enter a machine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.core.report import report
from perfmodel.hardware_catalog import read_hardware
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.measure.calibration import calibrate, launch, products
from perfmodel.measure.calibration.calibrate import Figures, better
from perfmodel.measure.calibration.cpu_caches import CacheSize, WorkingSet, cache_levels, working_sets
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Rate
from perfmodel.measure.calibration.sustained import CalibratedMachine, sustained_links, with_figures
from perfmodel.measure.calibration.transfer import SIZES, Transfer, measured_transfer
from perfmodel.measure.calibration.waiting import share_waited, thread_times
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict

FIGURES = Figures(
    {"copy": 0.7e12, "triad": 0.75e12, "read": 0.72e12}, 0.76e12, {"fp16": 60e12, "fp32": 5e12}, 3e-6, "test", "how"
)
TINY = CalibrationPlan(1, 2, 1.0, least_buffer_bytes={"cpu": 2.0**20, "cuda": 2.0**20}, largest_product={"cpu": 256})


def silent(message: str) -> None:
    """Say nothing."""


def transfer(latency_s: float, bandwidth: float, *, direction: str = "h2d", pinned: bool = True) -> Transfer:
    """Return ideal copies: t = L + s / B."""
    return Transfer(direction, pinned, tuple(map(float, SIZES)), tuple(latency_s + size / bandwidth for size in SIZES))


def test_rates_follow_from_the_scripted_time(scripted):
    found = calibrate.calibrate(scripted([1e-3]), ["fp32", "fp8", "fp32"], TINY, silent)
    # one float32 buffer is 4 MB (4 x the cache of 1 MB), rounded up to rows of 2^16 elements: 16 of them
    buffer_bytes = 16 * 2**16 * 4
    assert found.bandwidth_bytes_per_s == {
        "read": pytest.approx(buffer_bytes / 1e-3, rel=1e-3),
        "write": pytest.approx(buffer_bytes / 1e-3, rel=1e-3),
        "copy": pytest.approx(2 * buffer_bytes / 1e-3, rel=1e-3),
        "triad": pytest.approx(3 * buffer_bytes / 1e-3, rel=1e-3),
    }
    assert found.fastest_bytes_per_s == found.bandwidth_bytes_per_s["triad"], "every sample takes the same time here"
    assert found.flop_per_s == {"fp32": pytest.approx(2 * 256**3 / 1e-3, rel=1e-3)}
    assert found.call_overhead_s == 1e-3
    assert [reason for reason in found.left_out if "fp8" in reason], "what cannot run is said"
    assert not found.levels_bytes_per_s, "a quick calibration leaves the caches alone"


def test_products_stop_growing_before_one_takes_too_long(scripted):
    sizes = []
    plan = CalibrationPlan(1, 1, 0.007)
    products._best_rate(lambda size: sizes.append(size) or (lambda: None), scripted([1e-3]), plan)
    assert sizes == [256], "8 ms for the next size is over the limit of 7 ms"


def test_several_passes_keep_the_best_of_each_figure(scripted):
    # passes differ in speed: the intervals of the second are half as long
    one = calibrate.calibrate(scripted([2e-3]), ["fp32"], TINY, silent)
    two = calibrate.calibrate(scripted([1e-3]), ["fp32"], TINY, silent)
    both = better(one, two)
    assert both.bandwidth_bytes_per_s == two.bandwidth_bytes_per_s
    assert both.flop_per_s == two.flop_per_s
    assert both.call_overhead_s == two.call_overhead_s == 1e-3
    assert both.source == one.source
    slow, fast = (dataclasses.replace(FIGURES, transfers=(transfer(1e-5, b),)) for b in (1e10, 2e10))
    assert better(slow, fast).transfers == better(fast, slow).transfers == fast.transfers


def test_passes_that_differ_are_told(scripted, monkeypatch):
    """A rate of which one pass shows the double is no ceiling, whichever is right."""
    devices = iter([scripted([2e-3]), scripted([1e-3])])
    one_pass = calibrate._one_pass
    monkeypatch.setattr(calibrate, "_one_pass", lambda _, *rest: one_pass(next(devices), *rest))
    found = calibrate.calibrate(scripted(), ["fp32"], dataclasses.replace(TINY, passes=2), silent)
    assert found.apart == pytest.approx(dict.fromkeys(found.rates, 2.0), rel=1e-2)
    (doubt, remedy) = dataclasses.replace(found, waited={}).doubts
    assert doubt.startswith("5 of 5 rates differ between the passes by a factor of more than 1.25, up to 2.00 (memory")
    assert remedy == "Measure again when nothing else runs"
    assert not dataclasses.replace(found, waited={}, apart=dict.fromkeys(found.rates, 1.1)).doubts


def test_threads_that_waited_for_a_cpu_are_told_in_the_table_and_in_the_file(simple_gpu):
    figures = dataclasses.replace(FIGURES, waited={"fp32 product": 0.75, "memory copy": 0.02, "memory read": 0.3})
    text = (
        "In 2 of 3 measurements the threads waited for CPUs that other work had, up to 75 % of the time "
        "(fp32 product): their rates are too low. Measure again when nothing else runs"
    )
    machine = with_figures(simple_gpu, figures, memory_is_measured=False)
    assert text in machine.notes["sustained"]
    assert f"Warning: {text}." in report(CalibratedMachine(machine, figures, simple_gpu)).notes
    assert not [note for note in report(CalibratedMachine(machine, FIGURES)).notes if "Warning" in note]


def test_the_better_pass_says_how_long_its_threads_waited():
    busy, idle = (dataclasses.replace(FIGURES, waited={"fp32 product": share}) for share in (0.75, 0.01))
    assert better(busy, idle).waited == better(idle, busy).waited == {"fp32 product": 0.01}


def test_the_system_says_how_long_threads_waited(tmp_path):
    for thread, text in (("7", "3000 1000 5\n"), ("8", "0 0 0\n"), ("9", "")):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    times = thread_times(tmp_path)
    assert times == {"7": (3000, 1000), "8": (0, 0)}
    assert thread_times(tmp_path / "none") == {}
    # a thread that has begun meanwhile does not count
    assert share_waited({"7": (1000, 0), "6": (0, 0)}, times) == pytest.approx(1000 / 3000)
    assert share_waited({}, {}) == 0.0


# --- caches of a CPU


def test_each_level_is_read_from_the_sets_that_only_it_holds():
    caches = [CacheSize("l1", 32e3, 2), CacheSize("l2", 1e6, 2), CacheSize("l3", 32e6, 1)]
    # two threads: 32 kB and 1 MB each, and half of the 32 MB; a set counts from twice the level before
    sets = [WorkingSet(16e3, 200e9), WorkingSet(30e3, 999e9), WorkingSet(50e3, 999e9), WorkingSet(0.5e6, 90e9),
            WorkingSet(4e6, 30e9), WorkingSet(8e6, 31e9), WorkingSet(15e6, 999e9), WorkingSet(1e8, 10e9)]  # fmt: skip
    assert cache_levels(sets, caches, threads=2) == {"l1": 200e9, "l2": 90e9, "l3": 31e9}
    # a last level that is no larger for a thread than its L2 holds nothing that the L2 does not
    assert cache_levels(sets, [*caches[:2], CacheSize("l3", 2e6, 1)], threads=2) == {"l1": 200e9, "l2": 90e9}


def test_a_shared_cache_is_divided_among_the_threads_and_an_own_one_is_not():
    assert CacheSize("l3", 32e6, 1).per_thread(4) == 8e6
    assert CacheSize("l2", 1e6, 4).per_thread(4) == 1e6
    assert CacheSize("l2", 1e6, 4).per_thread(2) == 1e6


def test_working_sets_read_what_they_say(scripted):
    device = scripted([1e-2])
    sets = working_sets(device, [CacheSize("l1", 2.0**12, 1)], TINY)
    # up to four times the 4 KiB: 8, 12 and 16 KiB, each read until 200 MB are through, in 10 ms by the script
    assert [s.bytes_per_thread for s in sets] == [8192, 12288, 16384]
    assert [s.bytes_per_s for s in sets] == pytest.approx([2e8 / 1e-2] * 3, rel=1e-3)


def test_a_working_set_is_read_in_full():
    from perfmodel.measure.calibration.cpu_caches import _vectors

    left, right, products_ = _vectors(row=512, rows=3, turns=2, seed=0)
    np.matmul(left, right, out=products_)
    expected = np.einsum("rij,rjk->r", left[0], right[0])
    assert left.strides[0] == 0, "the turns see the same memory"
    np.testing.assert_allclose(products_[:, :, 0, 0], [expected, expected], rtol=1e-4, atol=1e-3)


# --- copies over PCIe


@given(latency_s=st.floats(3e-6, 3e-5), bandwidth=st.floats(5e9, 6e10))
def test_latency_and_half_bandwidth_of_ideal_copies(latency_s, bandwidth):
    ideal = transfer(latency_s, bandwidth)
    # the largest of the copies, 256 MiB, reaches all but L B / s of the bandwidth
    assert ideal.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=0.01)
    assert ideal.latency_s == pytest.approx(latency_s, rel=0.02)
    # half of the bandwidth at L B; of the best that was seen, up to 1 % less, a little below
    assert ideal.half_bandwidth_bytes == pytest.approx(latency_s * bandwidth, rel=0.02)


class FakeLink:
    """A fake device of kind cuda: a copy takes 10 us and its bytes at 20 GB/s, and every second one twice as long."""

    kind = "cuda"

    def __init__(self):
        self.last_s = 0.0
        self.copies = 0

    def copy(self, size: float) -> None:
        self.copies += 1
        self.last_s = (1e-5 + size / 20e9) * (1 + (self.copies % 2))

    def synchronize(self) -> None: ...

    def stopwatch(self):
        return self

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_s(self) -> float:
        return self.last_s


def test_copies_are_timed_by_size_and_the_median_is_taken(monkeypatch):
    from perfmodel.kernels.torch import _bandwidth

    device = FakeLink()
    monkeypatch.setattr(
        _bandwidth,
        "transfer_probes",
        lambda sizes, **_: [_bandwidth.Probe(lambda size=size: device.copy(size), size) for size in sizes],
    )
    # one warm-up, then five samples of which the even three are fast
    found = measured_transfer(device, CalibrationPlan(1, 5, 1.0), direction="d2h", pinned=True, sizes=(4096, 2**28))
    assert found.times_s == pytest.approx([1e-5 + 4096 / 20e9, 1e-5 + 2**28 / 20e9])
    assert found.name == "d2h pinned"


def test_the_model_gets_the_slower_direction_and_each_by_itself(simple_gpu):
    copies = (transfer(1e-5, 9e9), transfer(1e-5, 8.5e9, direction="d2h"),
              transfer(2e-5, 3e9, pinned=False), transfer(2e-5, 4e9, direction="d2h", pinned=False))  # fmt: skip
    links = sustained_links(copies)
    assert links["pcie"] == links["pcie_d2h"] == pytest.approx(8.5e9, rel=1e-2)
    assert links["pcie_pageable"] == links["pcie_pageable_h2d"] == pytest.approx(3e9, rel=1e-2)
    machine = with_figures(simple_gpu, dataclasses.replace(FIGURES, transfers=copies), memory_is_measured=False)
    pageable = predict(Memcpy(bytes=3e9, direction="h2d", pinned=False), machine)
    assert pageable.predicted_time_s == pytest.approx(1.0, rel=0.02)
    assert "half of the bandwidth at" in machine.notes["sustained"]
    assert "pcie 85.0 %" in machine.notes["sustained"]


# --- launches


def test_an_empty_kernel_is_one_of_a_queue_and_one_of_a_graph(scripted, monkeypatch):
    monkeypatch.setattr(launch, "_empty_launches", lambda device, queue: [lambda: None])
    device = scripted([2e-3, 1e-3], has_graphs=True)
    found = launch.empty_kernel_s(device, CalibrationPlan(1, 2, 1.0))
    # the shorter interval, 1 ms: over 2000 launches, and over 4 replays of a graph of 500
    assert found == {"stream": pytest.approx(1e-3 / 2000), "graph": pytest.approx(1e-3 / 2000)}
    assert device.log.count("capture") == 1


# --- figures in a machine


def test_figures_become_sustained_ceilings_beside_the_datasheet(simple_gpu):
    machine = with_figures(simple_gpu, FIGURES, memory_is_measured=False)
    assert machine.main_memory.bandwidth_bytes_per_s == 1e12
    assert machine.main_memory.sustained_bytes_per_s == 0.7e12
    assert machine.find_peak("fp16", "tensor").flop_per_s == 100e12
    assert machine.find_peak("fp16", "tensor").sustained_flop_per_s == 60e12
    assert (machine.launch.floor_s, machine.launch.overhead_s) == (1e-6, 3e-6)
    op = Elementwise(numel=10**8, kind="copy")
    assert predict(op, machine).bound_time_s == predict(op, simple_gpu).bound_time_s, (
        "measuring does not move the bound"
    )
    # a copy of 800 MB at the measured 0.7 TB/s
    assert predict(op, machine).predicted_time_s == pytest.approx(8e8 / 0.7e12, rel=0.1)
    assert "hbm 70.0 %" in machine.notes["sustained"]
    assert "fp16 tensor 60.0 %" in machine.notes["sustained"]


def test_everything_that_was_measured_is_in_the_file_and_comes_back(simple_gpu, tmp_path):
    gpu = dataclasses.replace(
        simple_gpu,
        peaks=(*simple_gpu.peaks, Peak("fp16", "vector", 20e12)),
        memory=(*simple_gpu.memory, MemoryLevel("shared", 1e6, 30e12)),
    )
    figures = dataclasses.replace(
        FIGURES,
        levels_bytes_per_s={"l2": 3.3e12, "shared": 28e12, "l1": 27e12},
        vector_flop_per_s={"fp16": 19e12},
        empty_kernel_s={"stream": 3e-6, "graph": 0.9e-6},
        transfers=(transfer(1e-5, 9e9),),
    )
    write_spec(with_figures(gpu, figures, memory_is_measured=False), tmp_path / "gpu.toml")
    machine = read_hardware(tmp_path / "gpu.toml")
    assert [level.sustained_bytes_per_s for level in machine.memory] == [0.7e12, 3.3e12, 28e12]
    assert machine.find_peak("fp16", "vector").sustained_flop_per_s == 19e12
    assert (machine.launch.floor_s, machine.launch.overhead_s) == (0.9e-6, 3e-6), "the shortest that anyone has seen"
    assert machine.sustained_links["pcie"] == pytest.approx(9e9, rel=1e-2)
    found = report(CalibratedMachine(machine, figures, gpu))
    fractions = {row["figure"]: row["fraction"] for row in found.rows}
    assert fractions["l2 read"] == pytest.approx(3.3 / 4)
    assert fractions["fp16 vector multiply-adds"] == pytest.approx(19 / 20)
    assert fractions["pcie h2d pinned"] == pytest.approx(0.9, rel=0.01)
    assert len(found.more["transfers"].rows) == len(SIZES)


def test_a_figure_above_the_datasheet_is_flagged(simple_gpu):
    figures = dataclasses.replace(FIGURES, bandwidth_bytes_per_s={"copy": 0.7e12, "read": 1.1e12})
    found = report(CalibratedMachine(simple_gpu, figures, simple_gpu))
    assert [note for note in found.notes if note.startswith("hbm read: 110 % of the datasheet")]


def test_a_graph_floor_above_the_known_one_moves_no_bound(simple_gpu):
    figures = dataclasses.replace(FIGURES, empty_kernel_s={"stream": 3e-6, "graph": 1.5e-6})
    assert with_figures(simple_gpu, figures, memory_is_measured=False).launch.floor_s == 1e-6


def test_memory_without_a_datasheet_is_bounded_by_its_fastest_sample(simple_gpu):
    machine = with_figures(simple_gpu, FIGURES, memory_is_measured=True)
    assert machine.main_memory.bandwidth_bytes_per_s == 0.76e12
    assert machine.main_memory.sustained_bytes_per_s == 0.7e12
    assert "fastest measured sample" in machine.main_memory.note


def test_slow_half_precision_of_a_cpu_does_not_bound(simple_gpu):
    """bf16 products at 1/10 of float32's peak are a sustained rate; converted to float32, others can be faster."""
    cpu = dataclasses.replace(
        simple_gpu,
        kind="cpu",
        peaks=(
            Peak("fp32", "vector", 10e12, flop_per_clock_per_sm=64),
            Peak("bf16", "vector", 1e12),
            Peak("int8", "vector", 2e12),
        ),
    )
    figures = dataclasses.replace(FIGURES, flop_per_s={"bf16": 1e12, "fp32": 8e12, "int8": 2e12})
    machine = with_figures(cpu, figures, memory_is_measured=True)
    bf16, int8 = (machine.find_peak(dtype, "vector") for dtype in ("bf16", "int8"))
    assert (bf16.flop_per_s, bf16.sustained_flop_per_s) == (10e12, 1e12)
    assert (int8.flop_per_s, int8.sustained_flop_per_s) == (40e12, 2e12), "four products of int8 fit a lane of fp32"


class FakeGpu:
    """A fake GPU, of which only the kind and the facts are asked."""

    kind, name, cache_bytes = "cuda", "Fake GPU", 50e6

    def facts(self):
        return {"torch": "none"}

    def free_memory_bytes(self):
        return 80e9

    def release_memory(self): ...


def test_a_gpu_is_measured_in_all_its_parts(simple_gpu: Hardware, monkeypatch):
    rates = {"read": Rate(0.9e12, 0.92e12), "copy": Rate(0.85e12, 0.86e12)}
    monkeypatch.setattr(calibrate, "main_memory", lambda *_: rates)
    monkeypatch.setattr(
        calibrate, "product_rates", lambda *_: ({"fp16": Rate(71.2345e12, 72e12)}, ["products in fp8: too old"])
    )
    monkeypatch.setattr(calibrate, "call_overhead_s", lambda *_: 9e-6)
    monkeypatch.setattr(calibrate, "gpu_levels", lambda *_: ({"l2": Rate(3e12, 3.1e12)}, ["shared: no Gluon"]))
    monkeypatch.setattr(calibrate, "vector_rates", lambda *_: ({"fp32": 9e12}, []))
    monkeypatch.setattr(calibrate, "empty_kernel_s", lambda *_: {"stream": 2.2e-6, "graph": 0.8e-6})
    monkeypatch.setattr(calibrate, "transfers", lambda *_: [transfer(1e-5, 9e9)])
    plan = CalibrationPlan(1, 1, 1.0, everything=True, passes=2)
    found = calibrate.calibrate(FakeGpu(), ["fp16", "fp8"], plan, silent)
    assert found.flop_per_s == {"fp16": 71.23e12}, "four digits"
    assert found.fastest_bytes_per_s == 0.92e12
    assert found.call_overhead_s == 2.2e-6, "the empty kernel of a stream"
    assert found.left_out == ("products in fp8: too old", "shared: no Gluon")
    machine = with_figures(simple_gpu, found, memory_is_measured=False)
    assert machine.level("l2").sustained_bytes_per_s == 3e12
    assert machine.launch.floor_s == 0.8e-6
