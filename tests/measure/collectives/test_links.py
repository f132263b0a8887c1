"""The link between ranks as latency and bandwidth: exact lines, lines with noise, and a machine that keeps both."""

from __future__ import annotations

import dataclasses
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.hardware import ExchangeLine
from perfmodel.core.report import report
from perfmodel.core.vocabulary import Timing
from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.measure.collectives.links import (
    AlphaBeta,
    LinkCalibration,
    calibrate_link,
    fit_alpha_beta,
    probe,
    shorter_step,
    with_lines,
    with_link,
)
from perfmodel.measure.collectives.ranks import with_bandwidths
from perfmodel.measure.timing.timer import TimedCall
from perfmodel.operators import load_operator
from perfmodel.records.schema import Record
from perfmodel.render import table as table_format

SIZES = (1024, 2**16, 2**20, 2**24)


def line(name: str, num_gpus: int, alpha: float, beta: float) -> tuple[list, list[float]]:
    ops = [load_operator(name)(bytes=size, num_gpus=num_gpus) for size in SIZES]
    return ops, [alpha * op.steps() + op.peer_bytes() / beta for op in ops]


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv"]),
    st.integers(2, 64),
    st.floats(1e-7, 1e-3),
    st.floats(1e7, 1e12),
)
def test_a_line_is_found_again(name: str, num_gpus: int, alpha: float, beta: float) -> None:
    fit = fit_alpha_beta(*line(name, num_gpus, alpha, beta))
    assert fit.error < 1e-6
    predicted = line(name, num_gpus, fit.alpha_s, fit.beta_bytes_per_s)[1]
    assert predicted == pytest.approx(line(name, num_gpus, alpha, beta)[1], rel=1e-5)


def test_neither_part_is_ever_negative() -> None:
    ops, _ = line("send_recv", 2, 1e-5, 1e9)
    for times in ([1e-5] * 4, [1e-6, 1e-4, 1e-2, 1.0], [1.0, 1e-2, 1e-4, 1e-6]):
        fit = fit_alpha_beta(ops, times)
        assert fit.alpha_s >= 0
        assert fit.beta_bytes_per_s > 0
        assert fit.fastest_bytes_per_s >= max(op.peer_bytes() / t for op, t in zip(ops, times, strict=True)) * 0.999


@pytest.mark.parametrize(
    ("name", "num_gpus", "steps", "bus"),
    # nccl-tests: busbw / algbw = 2 (n - 1) / n, (n - 1) / n, 1
    [("all_reduce", 4, 6, 1.5), ("all_gather", 4, 3, 0.75), ("reduce_scatter", 8, 7, 0.875),
     ("alltoall", 2, 1, 0.5), ("broadcast", 8, 3, 1.0), ("send_recv", 8, 1, 1.0)],
)  # fmt: skip
def test_steps_and_bandwidths_are_those_of_nccl_tests(name: str, num_gpus: int, steps: int, bus: float) -> None:
    op = load_operator(name)(bytes=1_000_000, num_gpus=num_gpus)
    assert op.steps() == steps
    row = with_bandwidths({"measured_time_s": 0.001}, op)
    assert (row["algorithm_bytes_per_s"], row["bus_bytes_per_s"]) == (1e9, pytest.approx(bus * 1e9))
    assert with_bandwidths({"measured_time_s": None}, op) == {"measured_time_s": None}


@pytest.mark.parametrize("busy", ["all_reduce", "send_recv"])
def test_the_probed_link_has_the_shorter_step_of_its_two_exchanges(monkeypatch, busy: str) -> None:
    """Other work makes a step of one of them ten times as long; that says nothing about the link."""

    class OneRank:
        size = 2

        def run(self, work):
            return work()

    def timed(op, group, device, rule):
        step_s = 1e-3 if op.op == busy else 1e-4
        return TimedCall((step_s * float(op.steps()) + float(op.peer_bytes()) / 1e9,), "", Timing.KERNEL, 1)

    exchanges = pytest.importorskip("perfmodel.kernels.distributed.exchanges")
    monkeypatch.setattr(exchanges, "exchange", lambda op, group: SimpleNamespace(call=op))
    monkeypatch.setattr("perfmodel.measure.collectives.links.time_exchange", timed)
    fit = probe(OneRank(), None)
    assert (fit.alpha_s, fit.beta_bytes_per_s) == (pytest.approx(1e-4), pytest.approx(1e9))


def test_a_line_without_a_step_counts_only_among_its_like() -> None:
    none, short, long = (AlphaBeta(step, 1e9, 2e9, 0.1) for step in (0.0, 1e-4, 1e-3))
    fast = AlphaBeta(2e-3, 3e9, 4e9, 0.1)
    best = shorter_step([long, none, short, fast])
    assert (best.alpha_s, best.beta_bytes_per_s) == (1e-4, 1e9)
    assert best.fastest_bytes_per_s == 4e9, "no message of any line beats it"
    assert shorter_step([none, none]) == none


def test_a_machine_with_the_link_predicts_the_line() -> None:
    cpu = pm.hardware("h100")  # its own links go first
    assert with_link(cpu, "nvlink", AlphaBeta(1e-6, 3e11, 3e11, 0.0), "here").sustained_links["nvlink"] == 3e11


def record(sizes: tuple[int, ...]) -> Record:
    rows = [
        {"op": "send_recv", "hardware": "x", "dtype": "fp32", "params": {"bytes": size, "num_gpus": 2},
         "status": "ok", "measured_time_s": 1e-4 + size / 1e9}
        for size in sizes
    ]  # fmt: skip
    facts = {"ranks": {"backend": "gloo", "size": 2}, "date": "2026-01-02T03:04:05"}
    return Record("bench", rows, facts)


def test_a_calibrated_link_predicts_its_own_measurements(cpu_machine) -> None:
    calibration = calibrate_link(record(SIZES), cpu_machine)
    assert calibration.link == "processes"
    assert calibration.together.alpha_s == pytest.approx(1e-4)
    op = pm.SendRecv(bytes=np.array(SIZES), num_gpus=2, dtype="fp32")
    prediction = pm.predict(op, calibration.machine)
    assert prediction.predicted_time_s == pytest.approx([1e-4 + size / 1e9 for size in SIZES], rel=0.001)
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    # what was not measured alone has the figures of the link, beside the start of a kernel
    other = pm.predict(pm.Broadcast(bytes=np.array(SIZES), num_gpus=2, dtype="fp32"), calibration.machine)
    launch = other.predicted_terms_s["launch"]
    assert other.predicted_time_s - launch == pytest.approx([1e-4 + size / 1e9 for size in SIZES], rel=0.01)


SIX = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "send_recv")
#: latency of a step [s] and bandwidth of a rank [B/s], as unlike as those of gloo
LINES = dict(zip(SIX, ((1.5e-4, 1.5e9), (2.5e-4, 7e8), (3.7e-4, 4e8), (2e-4, 1.4e9), (1.5e-4, 3e9), (1.7e-4, 1.6e9)),
                 strict=True))  # fmt: skip
MANY = tuple(2**power for power in range(10, 27, 2))


def six(noise: float = 0.0, seed: int = 0) -> Record:
    """Return a record of all collectives between two ranks, each on its line but for normal noise of ln(time)."""
    random, rows = np.random.default_rng(seed), []
    for name, (alpha, beta) in LINES.items():
        for size in MANY:
            op = load_operator(name)(bytes=size, num_gpus=2)
            time_s = (alpha * op.steps() + op.peer_bytes() / beta) * np.exp(noise * random.standard_normal())
            rows.append({"op": name, "hardware": "x", "dtype": "fp32", "params": {"bytes": size, "num_gpus": 2},
                         "status": "ok", "measured_time_s": float(time_s)})  # fmt: skip
    return Record("bench", rows, {"ranks": {"backend": "gloo", "size": 2}, "date": "2026-01-02T03:04:05"})


def measured(found: Record, name: str) -> np.ndarray:
    return np.array([row.measured_time_s for row in found.rows if row.op == name])


@pytest.mark.parametrize("name", SIX)
def test_each_collective_is_predicted_by_its_own_line(cpu_machine, name: str) -> None:
    found = six(noise=0.03)
    calibration = calibrate_link(found, cpu_machine)
    op = load_operator(name)(bytes=np.array(MANY), num_gpus=2, dtype="fp32")
    prediction = pm.predict(op, calibration.machine, library="gloo")
    error = np.abs(prediction.predicted_time_s / measured(found, name) - 1)
    together = np.abs(calibration.together.times_s([load_operator(name)(bytes=size, num_gpus=2) for size in MANY])
                      / measured(found, name) - 1)  # fmt: skip
    assert error.mean() < 0.04
    assert error.mean() < 0.3 * together.mean(), "one line for all is far off"
    assert prediction.calibration == "calibrated"
    one = pm.predict(load_operator(name)(bytes=MANY[3], num_gpus=2, dtype="fp32"), calibration.machine, library="gloo")
    assert one.predicted_time_s == prediction.predicted_time_s[3]
    assert one.predicted_time_low_s == prediction.predicted_time_low_s[3]
    assert one.predicted_time_high_s == prediction.predicted_time_high_s[3]


def test_the_interval_of_a_line_holds_four_of_five_later_rows(cpu_machine) -> None:
    inside = []
    for seed in range(10):
        machine = calibrate_link(six(0.1, seed), cpu_machine).machine
        later = six(0.1, seed + 100)
        for name in SIX:
            op = load_operator(name)(bytes=np.array(MANY), num_gpus=2, dtype="fp32")
            prediction = pm.predict(op, machine)
            time_s = measured(later, name)
            inside.append((prediction.predicted_time_low_s <= time_s) & (time_s <= prediction.predicted_time_high_s))
    assert 0.75 < np.mean(inside) < 0.95


def test_a_line_is_of_the_ranks_that_were_measured(cpu_machine) -> None:
    machine = calibrate_link(six(), cpu_machine).machine
    op = pm.AllReduce(bytes=2**20, num_gpus=np.array([2, 4, 8]), dtype="fp32")
    several = pm.predict(op, machine, library="gloo")
    assert several.family.tolist() == ["all_reduce_line", "roofline", "roofline"]
    for place, ranks in enumerate((2, 4, 8)):
        one = pm.predict(pm.AllReduce(bytes=2**20, num_gpus=ranks, dtype="fp32"), machine, library="gloo")
        assert one.predicted_time_s == several.predicted_time_s[place]
        assert one.predicted_time_low_s == several.predicted_time_low_s[place]


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("noise", [0.03, 0.5])
def test_other_numbers_of_ranks_are_no_surer_than_those_that_were_measured(
    cpu_machine, name: str, noise: float
) -> None:
    machine = calibrate_link(six(noise), cpu_machine).machine
    op = load_operator(name)(bytes=2.0**20, num_gpus=np.array([2, 3, 4, 16]), nodes=1, dtype="fp32")
    found = pm.predict(op, machine, library="gloo")
    for end in (found.predicted_time_low_s, found.predicted_time_high_s):
        half = np.abs(np.log(end / found.predicted_time_s))
        assert np.all(half[1:] >= half[0])


def test_on_a_gpu_a_measured_line_takes_the_place_of_the_family_for_its_ranks_and_library() -> None:
    h100 = pm.hardware("h100")
    machine = with_lines(h100, "nvlink", {"all_reduce": AlphaBeta(2e-5, 2e11, 2e11, 0.05, 0.05)}, 2)
    op = pm.AllReduce(bytes=np.array([1e6, 1e9]), num_gpus=2, dtype="bf16")
    assert pm.predict(op, machine).predicted_time_s == pytest.approx([4e-5 + 5e-6, 4e-5 + 5e-3])
    unlike = ((op, "sglang"), (pm.AllReduce(bytes=1e6, num_gpus=8, dtype="bf16"), "nccl"),
              (pm.AllGather(bytes=1e6, num_gpus=2, dtype="bf16"), "nccl"))  # fmt: skip
    for other, library in unlike:
        there, here = (pm.predict(other, on, library=library) for on in (h100, machine))
        assert np.all(here.predicted_time_s == there.predicted_time_s)


def test_lines_without_an_error_or_a_latency_are_not_kept(cpu_machine) -> None:
    assert not calibrate_link(record(SIZES[:2]), cpu_machine).machine.links[0].lines, "two figures fit two sizes"
    fits = {"all_reduce": AlphaBeta(0.0, 1e9, 1e9, 0.1, 0.1), "broadcast": AlphaBeta(1e-4, 1e9, 1e9, 0.0, 0.0)}
    (link,) = with_lines(cpu_machine, "processes", fits, 2).links
    assert dict(link.lines) == {"broadcast": ExchangeLine(1e-4, 1e9, 0.02, 2)}


def test_lines_survive_the_specification_and_another_process(cpu_machine, tmp_path) -> None:
    from perfmodel.hardware_catalog.write import write_spec

    path, machine = tmp_path / "cpu.toml", calibrate_link(six(0.03), cpu_machine).machine
    write_spec(machine, path)
    assert pm.hardware(str(path)).links[0].lines == machine.links[0].lines
    assert pickle.loads(pickle.dumps(machine)).links == machine.links
    assert list(machine.links[0].lines) == list(SIX)


def test_no_later_message_beats_the_bound_of_a_link_that_was_measured(cpu_machine) -> None:
    slow = with_link(pm.hardware("h100"), "nvlink", AlphaBeta(1e-6, 1e9, 1e9, 0.0), "here")
    assert slow.links[0].bandwidth_bytes_per_s == pm.hardware("h100").links[0].bandwidth_bytes_per_s
    bare = dataclasses.replace(cpu_machine, links=())
    link = with_link(bare, "processes", AlphaBeta(1e-4, 1e9, 2e9, 0.38), "here").links[0]
    # one core of 100 GFLOP/s stores 200 GB/s, for two ranks
    assert link.bandwidth_bytes_per_s == 100e9
    assert "38 % off" in link.note
    measured_faster = AlphaBeta(1e-4, 1e9, 2e11, 0.38)
    assert with_link(bare, "processes", measured_faster, "here").links[0].bandwidth_bytes_per_s == 2e11


def test_the_error_of_the_fit_stands_in_the_specification(cpu_machine, tmp_path) -> None:
    from perfmodel.hardware_catalog.write import write_spec

    path = tmp_path / "cpu.toml"
    write_spec(calibrate_link(record(SIZES), cpu_machine).machine, path)
    (link,) = pm.hardware(str(path)).links
    assert link.note.startswith("the line is 0 % off its messages")


def test_the_heading_of_the_table_takes_a_line_in_80_columns(cpu_machine) -> None:
    longest = AlphaBeta(190.4e-6, 979.3e6, 1.963e9, 0.693, 2.402)
    parts = dict.fromkeys(("reduce_scatter", "all_reduce"), longest)
    made = report(LinkCalibration(cpu_machine, "process", longest, parts, "gloo", 2, "for the test"))
    _, heading, whole, *_ = table_format.render(made, width=80).splitlines()
    assert heading.split("  ")[0] == "collective"
    assert heading.endswith("left out")
    assert whole.startswith("all ")


def test_lines_that_say_little_about_their_messages_are_warned_of(cpu_machine) -> None:
    steady, rough = AlphaBeta(1e-4, 1e9, 1.1e9, 0.1, 0.2), AlphaBeta(3.4e-3, 5e9, 5e9, 0.6, 2.0)

    def notes(**parts: AlphaBeta) -> str:
        return " ".join(report(LinkCalibration(cpu_machine, "process", steady, parts, "gloo", 2, "test")).notes)

    warned = notes(all_reduce=steady, send_recv=rough)
    assert "Warning: up to 60 % off their messages are the lines of send_recv, as on a busy machine." in warned
    assert "Warning" not in notes(all_reduce=steady)


def test_one_size_has_no_line(cpu_machine) -> None:
    with pytest.raises(InputFileError, match="two sizes"):
        calibrate_link(record(SIZES[:1]), cpu_machine)


@pytest.fixture
def cpu_machine() -> pm.Hardware:
    from perfmodel.core.hardware import Hardware, Link, MemoryLevel, Peak

    return Hardware(
        name="cpu", vendor="none", architecture="none", kind="cpu",
        peaks=(Peak("fp32", "vector", 1e11),), memory=(MemoryLevel("dram", 1e10, 2**35),),
        links=(Link("processes", 5e8),),
    )  # fmt: skip


def test_the_spec_of_a_calibrated_link_is_not_called_implausible(tmp_path, cpu_machine) -> None:
    """Gloo takes some GB/s of what the cores could store, 1 % and less of that; of NVLink the same share is a slip."""
    calibration = calibrate_link(six(), cpu_machine)
    path = tmp_path / f"{calibration.machine.name}.toml"
    write_spec(calibration.machine, path)
    rate = calibration.machine.sustained_links["processes"]
    peak = next(link.bandwidth_bytes_per_s for link in calibration.machine.links if link.name == "processes")
    assert rate < 0.1 * peak
    assert not [finding for finding in lint_file(path) if finding.code == "sustained-implausible"]
    nvlink = dataclasses.replace(pm.hardware("h100"), sustained_links={"nvlink": 1e9}, sustained_source="here")
    write_spec(nvlink, path)
    assert [finding.key for finding in lint_file(path) if finding.code == "sustained-implausible"] == [
        "sustained.link.nvlink"
    ]
