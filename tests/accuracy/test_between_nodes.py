"""The network between nodes, fitted to exchanges over it: what was put in comes out, and nothing else moves."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.between_nodes import fit_network
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.own_rows import calibrate_calls
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import InputFileError
from perfmodel.measure.collectives.links import calibrate_link
from perfmodel.operators import load_operator
from perfmodel.records.schema import Record

SIZES = 2.0 ** np.arange(10, 33, 2)
H100 = pm.hardware("h100-sxm5-80gb")
KINDS = ("all_reduce", "all_gather", "alltoall")


def of_network(alpha_s: float, efficiency: float) -> Hardware:
    assert H100.fabric is not None
    return dataclasses.replace(
        H100, fabric=dataclasses.replace(H100.fabric, alpha_s=alpha_s, nic_efficiency=efficiency)
    )


def measured(machine: Hardware, kind: str, sizes: Any = SIZES, noise: float = 0.0, **spread: Any) -> MeasuredCalls:
    op = load_operator(kind)(bytes=sizes, dtype="fp32", **{"num_gpus": 16, **spread})
    time_s = np.asarray(pm.predict(op, machine, library="nccl", cache="warm").predicted_time_s)
    time_s = time_s * np.exp(noise * np.random.default_rng(0).standard_normal(time_s.size))
    return MeasuredCalls(
        H100.name, op, time_s, Timing.KERNEL, CacheState.WARM, "nccl", np.full(time_s.size, ""), "here",
        np.arange(time_s.size),
    )  # fmt: skip


@pytest.mark.waiting
@pytest.mark.parametrize(("alpha_s", "efficiency"), [(14e-6, 0.85), (30e-6, 0.6), (5e-6, 0.95)])
def test_a_network_is_found_again(alpha_s: float, efficiency: float) -> None:
    rows = [measured(of_network(alpha_s, efficiency), kind, noise=0.02) for kind in KINDS]
    fit = fit_network(rows, H100, "here")
    assert fit is not None
    assert fit.fabric.alpha_s == pytest.approx(alpha_s, rel=0.15)
    assert fit.fabric.nic_efficiency == pytest.approx(efficiency, rel=0.05)
    assert fit.off < 0.05
    assert fit.fabric.deviation is not None
    assert 0.05 <= fit.fabric.deviation < 0.1
    machine = fit.on(H100)
    known = pm.predict(pm.AllReduce(bytes=2**20, num_gpus=16), machine, library="nccl-2.27")
    assert known.calibration == "calibrated"
    assert "fitted on here, 36 rows" in known.prediction_basis


@pytest.mark.waiting
def test_what_the_rows_do_not_tell_stays() -> None:
    large = fit_network([measured(of_network(50e-6, 0.6), kind, 2.0 ** np.arange(31, 35)) for kind in KINDS], H100, "")
    small = fit_network([measured(of_network(50e-6, 0.6), kind, 2.0 ** np.arange(3, 7)) for kind in KINDS], H100, "")
    assert large is not None
    assert small is not None
    assert large.fabric.alpha_s == pytest.approx(14e-6, rel=0.5)
    assert large.fabric.nic_efficiency == pytest.approx(0.6, rel=0.05)
    assert small.fabric.nic_efficiency == pytest.approx(0.85, rel=0.1)
    assert small.fabric.alpha_s == pytest.approx(50e-6, rel=0.1)


def test_few_rows_and_rows_in_a_node_tell_nothing() -> None:
    assert fit_network([measured(H100, "all_reduce", num_gpus=8)], H100, "here") is None
    assert fit_network([measured(H100, "all_reduce", SIZES[:9])], H100, "here") is None
    assert fit_network([measured(H100, kind, SIZES[:2]) for kind in (*KINDS, *KINDS)], H100, "here") is None


@pytest.mark.waiting
def test_rows_between_nodes_do_not_move_the_constants_of_a_node() -> None:
    inside = [measured(H100, kind, num_gpus=8, noise=0.02) for kind in KINDS]
    beyond = [measured(of_network(40e-6, 0.6), kind, noise=0.02) for kind in KINDS]
    alone, both = (calibrate_calls(rows, H100, "here", "today") for rows in (inside, inside + beyond))
    assert alone.network is None
    assert both.network is not None
    assert both.hardware.latency == alone.hardware.latency
    assert both.hardware.fabric.alpha_s == pytest.approx(40e-6, rel=0.2)
    few = calibrate_calls([*inside, measured(H100, "all_reduce", SIZES[:4])], H100, "here", "today")
    assert few.network is None
    assert few.unused["between nodes: fewer than 10, or of too few sizes"] == 4


def record(call: MeasuredCalls, nodes: int, scale: float = 1.0) -> Record:
    op: Any = call.op
    rows = [
        {"op": op.op, "hardware": H100.name, "dtype": "fp32", "status": "ok", "measured_time_s": float(time_s) * scale,
         "params": {"bytes": int(size), "num_gpus": 16, "nodes": nodes}, "implementation": "nccl", "kernel": op.op,
         "cache": "warm", "timing": "kernel"}
        for size, time_s in zip(op.bytes, call.time_s, strict=True)
    ]  # fmt: skip
    facts = {"ranks": {"backend": "nccl", "size": 16, "ranks_by_host": {"a": 8, "b": 8}}, "date": "2026-01-02T03:04:05"}
    return Record("bench", rows, facts, place="record.json")


def test_a_record_over_several_hosts_calibrates_the_network(tmp_path) -> None:
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog.write import write_spec

    calibration = calibrate_link(record(measured(of_network(30e-6, 0.7), "all_gather"), 2), H100)
    assert calibration.link == "nic"
    assert calibration.together.alpha_s == pytest.approx(30e-6, rel=0.1)
    assert calibration.together.beta_bytes_per_s == pytest.approx(0.7 * 50e9, rel=0.05)
    assert "nccl, 16 ranks, 2026-01-02 on 2 hosts" in report(calibration).notes[1]
    assert calibration.machine.links == H100.links
    path = tmp_path / "mine.toml"
    write_spec(calibration.machine, path)
    again = pm.hardware(str(path))
    assert again.fabric == dataclasses.replace(calibration.machine.fabric, source=again.fabric.source)
    assert "2 hosts" in again.fabric.source
    assert "400 Gb/s" in again.fabric.source


def test_a_record_that_is_faster_than_the_network_is_refused() -> None:
    with pytest.raises(InputFileError, match=r"faster than the network of h100-sxm5-80gb allows.*nic=800Gb/s"):
        calibrate_link(record(measured(H100, "all_reduce"), 2, scale=0.1), H100)
    with pytest.raises(InputFileError, match="fewer than 10 exchanges"):
        calibrate_link(record(measured(H100, "all_reduce", SIZES[:5]), 2), H100)
