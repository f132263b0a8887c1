"""A machine: its peaks by name, and what is computed once for it."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Fabric, Hardware, Link, cached_per_machine
from perfmodel.core.report import report


def test_the_first_peak_of_a_dtype_and_engine_is_found(simple_gpu: Hardware) -> None:
    first = next(peak for peak in simple_gpu.peaks if peak.engine == "vector")
    twice = dataclasses.replace(
        simple_gpu, peaks=(*simple_gpu.peaks, dataclasses.replace(first, flop_per_s=2 * first.flop_per_s))
    )
    assert twice.find_peak(first.dtype, "vector") == first
    assert twice.find_peak("fp4", "tensor") is None


def test_a_mesh_reaches_each_peer_over_links_of_its_own() -> None:
    mesh = Link("nvlink", 300e9, domain=4, per_peer_bytes_per_s=100e9)
    assert [mesh.rate_among(devices) for devices in (1.0, 2.0, 3.0, 4.0)] == [100e9, 100e9, 200e9, 300e9]
    assert mesh.is_full_mesh
    # links to seven peers need more than a device has: a hybrid cube
    assert not Link("nvlink", 300e9, domain=8, per_peer_bytes_per_s=50e9).is_full_mesh
    switched = Link("nvlink", 300e9, domain=8)
    assert (switched.is_full_mesh, switched.rate_among(2.0)) == (False, 300e9)


def test_what_a_network_reaches_is_its_share_of_the_datasheet() -> None:
    fabric = Fabric(8, 50e9, nic_efficiency=0.8, oversubscription=4.0)
    assert (fabric.share, fabric.reached_bytes_per_s) == (pytest.approx(0.2), pytest.approx(10e9))


def test_what_is_made_for_a_machine_is_made_once_for_each_argument(simple_gpu: Hardware) -> None:
    calls = []

    @cached_per_machine
    def scaled(hardware: Hardware, factor: float, *, power: float = 1.0) -> float:
        calls.append((hardware, factor, power))
        return factor * (hardware.main_memory.bandwidth_bytes_per_s or 0.0) / power

    machine = dataclasses.replace(simple_gpu)
    assert scaled(machine, 2.0) == scaled(machine, 2.0)
    assert scaled(machine, 3.0, power=2.0) == scaled(machine, 3.0, power=2.0)
    assert len(calls) == 2
    # another machine has its own, also where it was made from this one
    half = dataclasses.replace(
        machine, memory=(dataclasses.replace(machine.memory[0], bandwidth_bytes_per_s=1e9), *machine.memory[1:])
    )
    assert scaled(half, 2.0) == 2e9
    assert len(calls) == 3


def test_what_is_kept_is_no_part_of_the_machine(simple_gpu: Hardware) -> None:
    used, fresh = dataclasses.replace(simple_gpu), dataclasses.replace(simple_gpu)
    cached_per_machine(lambda hardware: hardware.name)(used)
    assert used.caches == fresh.caches
    assert used == fresh


def test_the_report_of_a_machine_has_every_ceiling(simple_gpu: Hardware) -> None:
    rows = {row["ceiling"]: row for row in report(simple_gpu).rows}
    assert list(rows) == ["hbm", "l2", "fp16 tensor", "fp32 vector", "pcie"]
    assert (rows["hbm"]["datasheet"], rows["hbm"]["sustained"]) == ("1 TB/s", "800 GB/s")
    assert (rows["pcie"]["datasheet"], rows["pcie"]["sustained"]) == ("10 GB/s", "8 GB/s")
    assert rows["l2"]["sustained"] == ""


def test_the_caches_are_the_levels_that_the_whole_device_shares(simple_gpu: Hardware) -> None:
    """Device memory is none of them, nor is a level inside each SM or one of unknown capacity."""
    hbm, l2 = simple_gpu.memory
    names = {"l3": 1e8, "l1": 1e5, "shared": 1e5}
    levels = {name: dataclasses.replace(l2, name=name, capacity_bytes=size) for name, size in names.items()}
    unknown = dataclasses.replace(l2, name="llc", capacity_bytes=0.0)
    machine = dataclasses.replace(simple_gpu, memory=(hbm, unknown, levels["l3"], l2, levels["shared"], levels["l1"]))
    assert [level.name for level in machine.caches] == ["l3", "l2"]


def test_a_level_is_found_by_a_name_read_from_text(simple_gpu: Hardware) -> None:
    l2 = simple_gpu.level("".join(["l", "2"]))  # equal to the name of the level, but another object
    assert l2 is not None
    assert l2.bandwidth_bytes_per_s == 4e12
    assert simple_gpu.level("l1") is None


def test_a_report_is_headed_by_the_title_given_else_by_that_of_the_machine_else_by_its_name(
    simple_gpu: Hardware,
) -> None:
    untitled = dataclasses.replace(simple_gpu, title="")
    assert report(simple_gpu, title="Mine").title == "Mine"
    assert (report(simple_gpu).title, report(untitled).title) == ("Simple GPU", "simple")


def test_a_machine_has_the_figures_of_the_catalog_by_the_keys_of_json() -> None:
    a100 = pm.hardware("a100-sxm4-40gb")
    assert a100.memory_capacity_bytes == 40 * 2**30
    assert a100.memory_bandwidth_bytes_per_s == 1555e9
    assert a100.peak_flop_per_s["fp16"] == 312e12
    assert a100.peak_flop_per_s["fp32"] == 19.5e12
    assert a100.ridge_point_flop_per_byte["fp16"] == pytest.approx(312e12 / 1555e9)


def test_a_machine_without_a_bandwidth_has_no_ridge_points() -> None:
    a100 = pm.hardware("a100-sxm4-40gb")
    unknown = dataclasses.replace(a100, memory=(dataclasses.replace(a100.main_memory, bandwidth_bytes_per_s=None),))
    assert unknown.ridge_point_flop_per_byte == {}
    assert unknown.peak_flop_per_s == a100.peak_flop_per_s
