"""Each limit of the linter, from both sides: a figure just inside has no finding, one just outside has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog import hardware
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.lint._compare import deviation, near, unit_slip
from perfmodel.hardware_catalog.match import match_device

H100 = "h100-sxm5-80gb"
#: lines that make a file one of a product that the catalog does not have
UNKNOWN = {"name": '"my-gpu"', "aliases": "[]", "device_names": "[]"}


def findings(folder: Path, base: str, changes: dict[str, str], *, known: bool = False) -> set[tuple[str, str, str]]:
    """Return (key, severity, code) for a shipped file with some keys changed; "" removes a key."""
    lines, table = [], ""
    wanted = changes if known else {**UNKNOWN, **changes}
    for line in (shipped_folder() / f"{base}.toml").read_text(encoding="utf-8").splitlines():
        head = re.fullmatch(r"\[(.*)\]", line)
        table = f"{head[1]}." if head else table
        key = table + line.partition(" =")[0]
        if wanted.get(key) == "":
            continue
        if key in wanted and "rate =" in line:
            line = re.sub(r'rate = "[^"]*"', f"rate = {wanted[key]}", line)
        elif key in wanted:
            line = f"{line.partition(' =')[0]} = {wanted[key]}"
        lines.append(line)
    path = folder / f"{base if known else 'my-gpu'}.toml"
    path.write_text("\n".join(lines))
    return {(finding.key, finding.severity, finding.code) for finding in lint_file(path)}


HBM, CLOCK = "memory.hbm.bandwidth", {"memory.hbm.memory_clock": ""}
BF16, L2 = "peak.tensor.bf16", "memory.l2.capacity"

# what it is, machine, key, value inside, value outside, the finding there, further changes, known product or not
LIMITS = [
    ("arithmetic", H100, BF16, '"993 TFLOP/s"', '"996 TFLOP/s"', ("error", "peak-arithmetic"), {}, False),
    ("rounding", H100, BF16, '"990.1 TFLOP/s"', '"991 TFLOP/s"', ("warning", "rounded-up-peak"), {}, True),
    ("doubt", H100, BF16, '"989 TFLOP/s"', '"945 TFLOP/s"', ("warning", "peak-differs"), {}, True),
    ("no doubt", H100, BF16, '"989 TFLOP/s"', '"935 TFLOP/s"', ("error", "peak-differs"), {}, True),
    ("slow clock", H100, "chip.vector_clock", '"310 MHz"', '"290 MHz"', ("error", "unit-1000x"), {}, False),
    ("fast clock", H100, "chip.vector_clock", '"5.9 GHz"', '"6.1 GHz"', ("error", "unit-1000x"), {}, False),
    ("low bandwidth", H100, HBM, '"5.1 GB/s"', '"4.9 GB/s"', ("error", "implausible-figure"), CLOCK, False),
    ("high bandwidth", H100, HBM, '"49 TB/s"', '"51 TB/s"', ("error", "implausible-figure"), CLOCK, False),
    ("small memory", H100, "memory.hbm.capacity", '"1.1 GiB"', '"0.9 GiB"', ("error", "unit-1000x"), {}, False),
    ("large memory", H100, "memory.hbm.capacity", '"7 TiB"', '"9 TiB"', ("error", "unit-1000x"), {}, False),
    ("other memory", H100, "memory.hbm.capacity", '"87 GiB"', '"89 GiB"', ("error", "capacity-differs"), {}, True),
    ("L2", H100, "memory.l2.capacity", '"52.9 MiB"', '"53.1 MiB"', ("error", "l2-differs"), {}, True),
    ("controllers", "rtx-4090", L2, '"96 MiB"', '"97 MiB"', ("error", "l2-above-controllers"), {}, False),
    ("link", H100, "link.pcie.per_direction", '"64.2 GB/s"', '"64.4 GB/s"', ("error", "link-differs"), {}, True),
    ("network in bytes", H100, "cluster.nic", '"50 GB/s"', '"400 GB/s"', ("error", "bits-for-bytes"), {}, False),
    ("many ports", H100, "cluster.nic", '"1600 Gb/s"', '"200 GB/s"', ("error", "bits-for-bytes"), {}, False),
    ("fast network", H100, "cluster.nic", '"390 GB/s"', '"4000 GB/s"', ("error", "implausible-figure"), {}, False),
    ("slow network", H100, "cluster.nic", '"1.3 GB/s"', '"400 MB/s"', ("warning", "implausible-figure"), {}, False),
    ("short launch", "t4", "launch.floor", '"0.31 us"', '"0.29 us"', ("error", "launch-implausible"), {}, False),
    ("long launch", "t4", "launch.floor", '"99 us"', '"101 us"', ("error", "launch-implausible"), {}, False),
    ("sustained", "l40s", "sustained.tensor.bf16", '"36.8 TFLOP/s"', '"36.5 TFLOP/s"',
     ("warning", "sustained-implausible"), {}, False),
    ("sustained memory", "t4", "sustained.memory.hbm", '"226 GB/s"', '"222 GB/s"', ("warning", "sustained-implausible"),
     {}, False),
    ("source", "t4", "memory.l2.source", '"DS-1"', '"DS1"', ("error", "missing-source"), {}, False),
]  # fmt: skip


@pytest.mark.parametrize(("base", "key", "inside", "outside", "wrong", "more", "known"), [row[1:] for row in LIMITS],
                         ids=[row[0] for row in LIMITS])  # fmt: skip
def test_each_limit_from_both_sides(
    tmp_path: Path,
    base: str,
    key: str,
    inside: str,
    outside: str,
    wrong: tuple[str, str],
    more: dict[str, str],
    known: bool,
) -> None:
    place = key.removesuffix(".source")
    assert (place, *wrong) not in findings(tmp_path, base, {**more, key: inside}, known=known)
    assert (place, *wrong) in findings(tmp_path, base, {**more, key: outside}, known=known)


def test_ridge_points_have_a_lowest_and_a_highest_value(tmp_path: Path) -> None:
    # T4: 254.4 GFLOP/s in fp64; H100: 1978.9 TFLOP/s in fp8
    for base, key, inside, outside in (
        ("t4", "peak.vector.fp64", "2.5 TB/s", "2.6 TB/s"),  # 0.102 and 0.098 FLOP/B
        (H100, "peak.tensor.fp8", "400 GB/s", "390 GB/s"),  # 4947 and 5074 FLOP/B
    ):
        wrong = (key, "error", "implausible-ridge-point")
        assert wrong not in findings(tmp_path, base, {**CLOCK, HBM: f'"{inside}"'})
        assert wrong in findings(tmp_path, base, {**CLOCK, HBM: f'"{outside}"'})


def test_figures_are_near_within_half_a_per_cent() -> None:
    assert near(1.0049, 1.0)
    assert not near(1.0051, 1.0)


@pytest.mark.parametrize("power", [1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9])
def test_a_slip_of_units_may_be_binary(power: float) -> None:
    assert unit_slip(1.079 * power)
    assert not unit_slip(1.081 * power)
    assert unit_slip(0.921 * power)
    assert not unit_slip(0.919 * power)


def test_a_deviation_is_a_percentage_near_1_and_a_factor_beyond() -> None:
    assert [deviation(ratio, 1.0) for ratio in (0.59, 0.61, 1.66, 1.68)] == ["x 0.59", "-39.0 %", "+66.0 %", "x 1.68"]


def test_a_driver_may_keep_a_tenth_of_the_memory() -> None:
    capacity = hardware("a40").main_memory.capacity_bytes
    assert capacity is not None
    for share, differs in ((0.91, False), (0.89, True), (1.09, False), (1.11, True)):
        match = match_device("NVIDIA A40", share * capacity)
        assert match is not None
        assert match.memory_differs is differs
