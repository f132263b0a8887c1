"""Machines of one family are ordered as their data sheets order them, and dtypes keep their generation's ratios."""

from __future__ import annotations

import itertools

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware
from perfmodel.hardware_catalog import hardware, load_all

#: (the faster, the slower): the same chip with more SMs, a higher clock, more power, or without limits for export
SIBLINGS = [
    ("v100-sxm2-16gb", "v100-pcie-16gb"),
    ("v100-sxm2-32gb", "v100-pcie-32gb"),
    ("a100-sxm4-40gb", "a100-pcie-40gb"),
    ("a100-sxm4-80gb", "a100-pcie-80gb"),
    ("a100-pcie-40gb", "a30"),
    ("h100-sxm5-80gb", "h100-pcie-80gb"),
    ("h100-sxm5-80gb", "h800-sxm5-80gb"),
    ("h100-pcie-80gb", "h800-pcie-80gb"),
    ("h100-sxm5-80gb", "h100-500w-96gb"),
    ("h100-pcie-80gb", "h20-96gb"),
    ("h200-sxm-141gb", "h100-sxm5-80gb"),
    ("gh200-96gb", "h100-sxm5-80gb"),
    ("gh200-96gb", "gh200-680w-96gb"),
    ("gb200-nvl72", "b200-sxm-180gb"),
    ("gb200-nvl4", "b200-sxm-180gb"),
    ("gb300-nvl72", "b300-sxm-288gb"),
    ("rtx-3090-ti", "rtx-3090"),
    ("rtx-a6000", "a40"),
    ("a40", "a10"),
    ("l40s", "l20"),
    ("l40s", "l4"),
    ("rtx-4090", "rtx-4070-laptop-8gb"),
    ("rtx-pro-6000-96gb", "rtx-5090"),
    ("mi325x", "mi300x"),
    ("a100-sxm4-80gb", "a800-sxm4-80gb"),
    ("rtx-a6000", "rtx-a5000"),
    ("rtx-3090", "rtx-3080"),
    ("rtx-3080", "rtx-3060"),
    ("rtx-4090", "rtx-4080"),
    ("rtx-4080", "rtx-4070"),
    ("rtx-4070", "rtx-4060-ti-16gb"),
    ("rtx-5090", "rtx-5080"),
    ("rtx-5080", "rtx-5070"),
    ("titan-rtx", "rtx-2080-ti"),
    ("p100-sxm2-16gb", "p100-pcie-16gb"),
    ("mi355x", "mi350x"),
    ("mi300x", "mi300a"),
    ("mi300x", "mi308x"),
    ("l40s", "l40"),
    ("rtx-6000-ada", "rtx-5000-ada"),
    ("rtx-5000-ada", "rtx-4000-ada"),
    ("rtx-a5000", "rtx-a4000"),
    ("v100s-pcie-32gb", "v100-pcie-32gb"),
    ("rtx-3080-ti", "rtx-3080"),
    ("rtx-3080", "rtx-3070-ti"),
    ("rtx-3070-ti", "rtx-3070"),
    ("rtx-3070", "rtx-3060-ti"),
    ("rtx-4080-super", "rtx-4080"),
    ("rtx-4070-ti-super", "rtx-4070-ti"),
    ("rtx-4070-ti", "rtx-4070-super"),
    ("rtx-4070-super", "rtx-4070"),
    ("rtx-4060-ti-16gb", "rtx-4060"),
    ("rtx-5080", "rtx-5070-ti"),
    ("rtx-5070", "rtx-5060-ti-16gb"),
    ("rtx-2080-ti", "rtx-2080-super"),
    ("rtx-2080-super", "rtx-2080"),
    ("titan-xp", "gtx-1080-ti"),
    ("gtx-1080-ti", "gtx-1080"),
    ("gtx-1080", "gtx-1070"),
    ("rx-7900-xtx", "radeon-pro-w7900"),
    ("rx-7900-xtx", "rx-7900-xt"),
    ("rx-9070-xt", "rx-9070"),
    ("rtx-pro-6000-96gb", "rtx-pro-6000-server"),
    ("rtx-pro-6000-96gb", "rtx-pro-6000-max-q"),
    ("rtx-pro-6000-max-q", "rtx-pro-5000-48gb"),
    ("rtx-4090", "rtx-4090-d"),
    ("rtx-5060-ti-16gb", "rtx-5060"),
    ("gh200-144gb", "gh200-96gb"),
    ("h20-3e-141gb", "h20-96gb"),
    ("a40", "a10g"),
]
#: pairs of which the slower one has more memory bandwidth and faster links
OTHER_MEMORY = {("h100-pcie-80gb", "h20-96gb")}
#: tensor rates of 8, 16 and 32 bits that are fixed by the width of the operands
RATIOS = [("fp16", "tf32", 2.0), ("bf16", "fp16", 1.0), ("fp8", "fp16", 2.0)]


def rates(machine: Hardware) -> dict[tuple[str, str], float]:
    return {(peak.engine, peak.dtype): peak.flop_per_s for peak in machine.peaks}


@pytest.mark.parametrize(("fast", "slow"), SIBLINGS)
def test_siblings_are_ordered_by_their_data_sheets(fast: str, slow: str) -> None:
    one, other = hardware(fast), hardware(slow)
    assert (one.vendor, one.matrix_instruction) == (other.vendor, other.matrix_instruction)
    for key in rates(one).keys() & rates(other).keys():
        assert rates(one)[key] >= rates(other)[key] * (1 - 1e-9), key
    if (fast, slow) not in OTHER_MEMORY:
        bandwidths = [machine.main_memory.bandwidth_bytes_per_s or 0.0 for machine in (one, other)]
        assert bandwidths[0] >= bandwidths[1]
    # a link of the same name is no slower
    links = [{link.name: link.bandwidth_bytes_per_s for link in machine.links} for machine in (one, other)]
    if (fast, slow) not in OTHER_MEMORY:
        assert all(links[0][name] >= links[1][name] for name in links[0].keys() & links[1].keys())


@pytest.mark.parametrize(("fast", "slow"), [pair for pair in SIBLINGS if pair not in OTHER_MEMORY])
def test_a_bound_is_no_longer_on_the_faster_sibling(fast: str, slow: str) -> None:
    for op in (pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), pm.Gemm(m=1, n=8192, k=8192, dtype="fp16")):
        assert pm.predict(op, fast).bound_time_s <= pm.predict(op, slow).bound_time_s * 1.0001


@pytest.mark.parametrize("machine", load_all(), ids=lambda machine: machine.name)
def test_tensor_rates_go_with_the_width_of_the_operands(machine: Hardware) -> None:
    for wide, narrow, ratio in RATIOS:
        one, other = machine.find_peak(wide, "tensor"), machine.find_peak(narrow, "tensor")
        if one and other and machine.name != "mi100":  # CDNA multiplies bf16 at half the rate of fp16
            assert one.flop_per_s == pytest.approx(ratio * other.flop_per_s, rel=0.01), (wide, narrow)
    for peak in machine.peaks:
        if peak.sparse_2to4_flop_per_s and peak.dtype != "fp4":
            assert peak.sparse_2to4_flop_per_s == pytest.approx(2 * peak.flop_per_s, rel=0.005)


@pytest.mark.parametrize("generation", ["Ampere", "Ada", "Hopper"])
def test_geforce_accumulates_in_fp32_at_half_the_rate_of_its_relatives(generation: str) -> None:
    per_clock: dict[tuple[str, bool], set[float]] = {}
    for machine in load_all():
        peak = machine.find_peak("bf16", "tensor")
        whole = machine.chip.get("tensor_share", 1.0) == 1.0
        if machine.vendor == "NVIDIA" and machine.architecture == generation and peak and whole:
            key = (machine.compute_capability, "GeForce" in machine.title)
            per_clock.setdefault(key, set()).add(peak.flop_per_clock_per_sm or 0.0)
    assert per_clock
    assert all(len(found) == 1 for found in per_clock.values())
    for capability in {capability for capability, geforce in per_clock if geforce}:
        (geforce,), (other,) = per_clock[capability, True], per_clock[capability, False]
        assert other == 2 * geforce


def test_the_gpus_of_an_nvl4_have_links_of_their_own_and_no_switch() -> None:
    nvlink = next(link for link in hardware("gb200-nvl4").links if link.name == "nvlink")
    assert (nvlink.domain, nvlink.reduces_in_switch) == (4, False)
    assert nvlink.bandwidth_bytes_per_s == 3 * nvlink.per_peer_bytes_per_s == 900e9


def test_the_gpus_of_a_rack_share_its_nvlink_domain() -> None:
    for name in ("gb200-nvl72", "gb300-nvl72"):
        nvlink = next(link for link in hardware(name).links if link.name == "nvlink")
        assert (nvlink.domain, nvlink.reduces_in_switch, nvlink.bandwidth_bytes_per_s) == (72, True, 900e9)
    others = [link.domain for machine in load_all() for link in machine.links if "nvl72" not in machine.name]
    assert set(others) == {None, 2, 4, 8}  # a whole node, a bridge, a hive, a mesh of 7 links each


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA A10", "NVIDIA A30", "NVIDIA L20", "NVIDIA GeForce RTX 3090", "NVIDIA RTX A6000", "NVIDIA H20"),
        *("NVIDIA GeForce RTX 5090", "NVIDIA H800", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300"),
        *("NVIDIA B300 SXM6 AC", "NVIDIA A10G", "NVIDIA H20-3e", "NVIDIA GH200 144G HBM3e"),
        *("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 5000 Blackwell"),
        *("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA GeForce RTX 4090 D"),
    ],
)
def test_a_driver_s_name_leads_to_one_machine(name: str) -> None:
    assert name in hardware(name).device_names


def test_chips_of_one_compute_capability_differ_in_nothing_that_it_fixes() -> None:
    facts = ("warp_size", "max_warps_per_sm", "max_threads_per_sm", "max_blocks_per_sm", "warp_schedulers_per_sm")
    machines = sorted(load_all(), key=lambda machine: machine.compute_capability)
    for capability, group in itertools.groupby(machines, key=lambda machine: machine.compute_capability):
        found = {tuple(machine.chip.get(fact) for fact in facts) for machine in group}
        assert len(found) == 1, capability


def test_shared_memory_is_twice_as_wide_from_ampere_on_as_on_turing() -> None:
    # NVIDIA Ampere GA102 GPU Architecture whitepaper v2: 128 bytes per clock and SM, 64 on Turing
    found: dict[str, set[float]] = {}
    for machine in load_all():
        rate = next((level.bandwidth_bytes_per_s for level in machine.memory if level.name == "shared"), None)
        if rate and machine.sm_count:
            per_clock = round(rate / machine.sm_count / machine.clocks_hz["vector"])
            found.setdefault(machine.compute_capability, set()).add(per_clock)
    assert (found["7.5"], found["8.6"], found["8.0"]) == ({64}, {128}, {128})


def test_the_editions_of_one_chip_differ_in_clock_and_power_alone() -> None:
    one, other = hardware("mi355x"), hardware("mi350x")
    per_clock = [{(p.engine, p.dtype): p.flop_per_clock_per_sm for p in m.peaks} for m in (one, other)]
    assert per_clock[0] == per_clock[1]
    for name in ("l2", "shared"):
        rates = [next(x.bandwidth_bytes_per_s for x in m.memory if x.name == name) for m in (one, other)]
        assert rates[0] / rates[1] == pytest.approx(2400 / 2200, rel=0.001)
    # AMD CDNA 4 white paper: transcendental rates are twice those of CDNA 3, and the links have 76.8 GB/s each
    assert {m.chip["exponentials_per_clock_per_sm"] for m in (one, other)} == {32}
    rates = [[(x.name, x.bandwidth_bytes_per_s, x.per_peer_bytes_per_s) for x in m.links] for m in (one, other)]
    assert rates[0] == rates[1]
    assert one.fabric is not None
    assert other.fabric is not None
    assert one.fabric.nic_bytes_per_s == other.fabric.nic_bytes_per_s


def test_a_copy_to_a_b300_takes_what_its_hosts_move() -> None:
    # 57.7 GB/s page-locked and 38 other measured on a host that moves what PCIe 5 does, behind a link of generation 6;
    # the superchip's link to its CPU is another one
    for pinned, rate in ((True, 57.7e9), (False, 38e9)):
        copy = pm.predict(pm.Memcpy(bytes=1e9, direction="h2d", pinned=pinned), "b300")
        assert 1e9 / copy.predicted_time_s == pytest.approx(rate, rel=0.01)
    assert pm.predict(pm.Memcpy(bytes=1e9, direction="h2d"), "gb300").predicted_time_s < 1e9 / 150e9


def test_tensor_engines_of_a_generation_all_state_what_two_of_four_give_and_vectors_their_16_bits() -> None:
    exported = {"l20", "h20-96gb", "h20-3e-141gb"}  # no document states the sparse rates of what is made for export
    for machine in load_all():
        if machine.compute_capability not in ("8.0", "8.6", "8.9", "9.0", "12.0") or machine.name in exported:
            continue
        sparse = {p.dtype for p in machine.peaks if p.engine == "tensor" and p.sparse_2to4_flop_per_s}
        assert sparse >= {"fp16", "bf16", "tf32", "int8"}, machine.name
        assert None not in [machine.find_peak(dtype, "vector") for dtype in ("fp16", "bf16")], machine.name
