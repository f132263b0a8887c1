"""The shipped specifications, and finding one by name, alias, device name or file."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest

from perfmodel.core.roofline import ridge_point
from perfmodel.errors import InputFileError, UsageError
from perfmodel.files import read_document, shipped_folder
from perfmodel.hardware_catalog import find, hardware, hardware_names, load_all, read_hardware
from perfmodel.hardware_catalog.find import suggestion
from perfmodel.hardware_catalog.lint import lint_catalog, lint_file
from perfmodel.hardware_catalog.match import match_device
from perfmodel.hardware_catalog.names import name_key, words_of
from perfmodel.hardware_catalog.spec_folders import spec_files
from perfmodel.plugins import warn_once
from perfmodel.prediction.topology import most_in_a_node

#: every shipped machine; a new file is tested without being listed
NAMES = sorted(path.stem for path in shipped_folder().glob("*.toml"))


def test_the_shipped_files_are_in_the_catalog() -> None:
    assert NAMES
    assert set(NAMES) <= set(hardware_names())


@pytest.mark.parametrize("name", NAMES)
def test_each_shipped_file_is_clean(name: str) -> None:
    assert lint_file(shipped_folder() / f"{name}.toml") == []


@pytest.mark.parametrize("name", NAMES)
def test_each_table_has_a_source(name: str) -> None:
    machine = hardware(name)
    tables = {f"memory.{level.name}" for level in machine.memory} | {f"peak.{p.engine}" for p in machine.peaks}
    tables |= {f"link.{link.name}" for link in machine.links} | {"chip"}
    if machine.launch.floor_s or machine.launch.overhead_s:
        tables.add("launch")
    if any(peak.sustained_flop_per_s for peak in machine.peaks) or machine.main_memory.sustained_bytes_per_s:
        tables.add("sustained")
    assert {table for table in tables if len(machine.sources.get(table, "")) < 8} == set()


@pytest.mark.parametrize("name", NAMES)
def test_peaks_are_sms_times_flop_per_clock_times_clock(name: str) -> None:
    machine = hardware(name)
    checked = 0
    for peak in machine.peaks:
        if peak.flop_per_clock_per_sm and peak.clock_hz and machine.sm_count:
            expected = machine.sm_count * peak.flop_per_clock_per_sm * peak.clock_hz
            assert peak.flop_per_s == pytest.approx(expected, rel=0.005), peak
            checked += 1
    assert checked >= len(machine.peaks) / 2, "a source rarely leaves the arithmetic out"


@pytest.mark.parametrize("name", NAMES)
def test_sustained_figures_are_below_the_peak_and_above_a_tenth_of_it(name: str) -> None:
    machine = hardware(name)
    shares = [p.sustained_flop_per_s / p.flop_per_s for p in machine.peaks if p.sustained_flop_per_s]
    for level in machine.memory:
        if level.sustained_bytes_per_s and level.bandwidth_bytes_per_s:
            shares.append(level.sustained_bytes_per_s / level.bandwidth_bytes_per_s)
    assert all(0.1 < share < 1 for share in shares)


def test_no_name_leads_to_two_machines() -> None:
    claims: Counter[str] = Counter()
    for machine in load_all():
        claims.update({name_key(name) for name in (machine.name, *machine.aliases, *machine.device_names)})
    assert [name for name, count in claims.items() if count > 1] == []


@pytest.mark.parametrize(
    ("name", "fp32", "fp16"),
    [("a100-sxm4-40gb", 12.54, 200.6), ("a100-sxm4-80gb", 9.56, 153.0)],
)
def test_ridge_points_of_the_a100(name: str, fp32: float, fp16: float) -> None:
    # 19.5 TFLOP/s / 1555 GB/s = 12.54; 312 / 1.555 = 200.6; 19.5 / 2.039 = 9.56; 312 / 2.039 = 153.0
    machine = hardware(name)
    bandwidth = machine.main_memory.bandwidth_bytes_per_s
    assert bandwidth is not None
    assert ridge_point(machine.best_peak("fp32").flop_per_s, bandwidth) == pytest.approx(fp32, abs=0.005)
    assert ridge_point(machine.best_peak("fp16").flop_per_s, bandwidth) == pytest.approx(fp16, abs=0.05)


@pytest.mark.parametrize(
    ("name", "bus_bit", "memory_clock_hz"),
    [
        ("p100-pcie-16gb", 4096, 715e6),
        ("v100-sxm2-32gb", 4096, 877e6),
        ("a100-pcie-40gb", 5120, 1215e6),
        ("a100-pcie-80gb", 5120, 1512e6),
        ("a100-sxm4-80gb", 5120, 1593e6),
        ("h100-sxm5-80gb", 5120, 2619e6),
        ("h200-sxm-141gb", 6016, 3201e6),
        ("b200-sxm-180gb", 7680, 3996e6),
        ("l40s", 384, 9001e6),
        ("mi300x", 8192, 2600e6),
    ],
)
def test_bandwidth_is_bus_times_two_transfers_times_clock(name: str, bus_bit: int, memory_clock_hz: float) -> None:
    assert hardware(name).main_memory.bandwidth_bytes_per_s == pytest.approx(
        bus_bit / 8 * 2 * memory_clock_hz, rel=3e-4
    )


def test_the_l2_sizes_that_are_mixed_up() -> None:
    def l2_mib(name: str) -> float:
        level = hardware(name).level("l2")
        assert level is not None
        assert level.capacity_bytes is not None
        return level.capacity_bytes / 2**20

    assert l2_mib("v100") == 6
    assert l2_mib("a100") == 40
    assert l2_mib("h100") == l2_mib("h100-pcie") == 50
    assert l2_mib("h200") == l2_mib("h100-nvl") == 60


def test_the_peaks_of_hopper_hold_at_two_clocks() -> None:
    machine = hardware("h100")
    bf16, fp32, fp64 = (machine.find_peak(*key) for key in (("bf16", "tensor"), ("fp32", "vector"), ("fp64", "tensor")))
    assert bf16 is not None
    assert fp32 is not None
    assert fp64 is not None
    assert (bf16.clock_hz, fp32.clock_hz, fp64.clock_hz) == (1830e6, 1980e6, 1980e6)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a100", "a100-sxm4-80gb"),
        ("h100", "h100-sxm5-80gb"),
        ("v100", "v100-sxm2-32gb"),
        ("H200", "h200-sxm-141gb"),
        ("b200", "b200-sxm-180gb"),
        ("4090", "rtx-4090"),
        ("L40S", "l40s"),
        ("l4", "l4"),
        ("A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("a100_sxm4_40gb", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Arcturus GL-XL [Instinct MI100]", "mi100"),
        ("AMD Instinct MI355X VF", "mi355x"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", "arc-pro-b60"),
        ("h100-80g", "h100-sxm5-80gb"),
        ("DGX A100", "a100-sxm4-80gb"),
        ("HGX B200", "b200-sxm-180gb"),
        ("B200 NVL8", "b200-sxm-180gb"),
    ],
)
def test_names_that_people_and_drivers_write(text: str, name: str) -> None:
    assert hardware(text).name == name


@pytest.mark.parametrize("text", ["NVIDIA L40G", "NVIDIA B100", "RTX 5090 D", "NVIDIA A800 80GB PCIe"])
def test_a_relative_is_not_taken_for_the_product(text: str) -> None:
    with pytest.raises(UsageError):
        hardware(text)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'a100-sxm4-80gb'.* For another machine, change the spec file"):
        hardware("a100-smx4-80gb")


@pytest.mark.parametrize("name", ["NVIDIA A100-PG506-230", "a100_board"])
def test_the_name_of_a_board_suggests_the_machines_of_its_product(name: str) -> None:
    with pytest.raises(UsageError, match=r"It may be one of (.*); name the one") as caught:
        hardware(name)
    suggested = set(str(caught.value).split("one of ")[1].split(";")[0].split(", "))
    assert {"a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb"} <= suggested
    assert not any(other.startswith("h") for other in suggested)


@pytest.mark.parametrize(
    "name",
    [
        *("M40", "A10X", "VR200", "mi450", "Quadro RTX 5000", "dgx-1", "RTX 2000 Ada Generation", "H30 141GB"),
        *("AMD Instinct MI250X/MI250", "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]"),
    ],
)
def test_a_name_with_other_numbers_is_no_misspelling_and_no_file(name: str) -> None:
    with pytest.raises(UsageError, match="unknown hardware") as caught:
        hardware(name)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("word", ["hopper", "h10", "GeForce"])
def test_a_part_of_a_name_hears_what_lists_the_machines_that_hold_it(word: str) -> None:
    held = len(find.load_catalog([word]).machines)
    assert held > 1
    with pytest.raises(UsageError, match=f"`perfmodel hardware list {word.lower()}` shows {held} that hold this word"):
        hardware(word)


def test_a_path_is_read_though_it_has_no_suffix_of_a_document(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no such file"):
        hardware(f"{tmp_path}/machines/new")
    (tmp_path / "new").write_text("")
    with pytest.raises(InputFileError, match=r"has no suffix|empty"):
        hardware(f"{tmp_path}/new")


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        ("p4d.24xlarge", "a100-sxm4-40gb"),
        ("p4de.24xlarge", "a100-sxm4-80gb"),
        ("p5en.48xlarge", "h200-sxm-141gb"),
        ("g5.xlarge", "a10g"),
        ("g7e.48xlarge", "rtx-pro-6000-server"),
        ("p6-b300.48xlarge", "b300-sxm-288gb"),
        ("a2-highgpu-1g", "a100-sxm4-40gb"),
        ("a4x-highgpu-4g", "gb200-nvl72"),
        ("Standard_ND96amsr_A100_v4", "a100-sxm4-80gb"),
        ("Standard_ND96isr_MI300X_v5", "mi300x"),
        ("BM.GPU.H100.8", "h100-sxm5-80gb"),
        ("gpu_8x_h100_sxm5", "h100-sxm5-80gb"),
    ],
)
def test_an_instance_of_a_cloud_is_one_gpu_of_it(instance: str, name: str) -> None:
    assert hardware(instance).name == name


def test_instances_name_machines_of_the_catalog_and_no_other_machine() -> None:
    instances = read_document(shipped_folder() / "names" / "instances.toml")
    for cloud, table in instances.items():
        assert len(table.pop("source")) > 8, cloud
        assert set(table.values()) <= set(NAMES), cloud
        taken = {name_key(name) for machine in load_all() for name in (machine.name, *machine.aliases)}
        assert not taken & set(map(name_key, table)), cloud


def test_a_device_s_name_with_its_memory_is_matched_where_the_memory_agrees() -> None:
    found = match_device("NVIDIA B200 180GB", 180 * 2**30)
    assert found is not None
    assert found.hardware.name == "b200-sxm-180gb"
    assert match_device("NVIDIA B200 180GB", 90 * 2**30) is None


def test_the_name_of_a_listed_board_suggests_its_machine() -> None:
    with pytest.raises(UsageError, match=r"It may be a100-sxm4-40gb; name the one"):
        hardware("A100-PG509-200")
    assert match_device("NVIDIA A100-PG509-200", 42e9) is None, "power and clocks of a board may differ"


LACKS = "The catalog lacks this board, whose chip is another one than that of"
VIRTUAL, TURNS = "It is a virtual GPU (vGPU) of the board", "turns on its SMs with other virtual GPUs"
PARTITION, PART = "It is a partition (MIG) of", "with a part of its SMs, L2, memory and bandwidth"
MEMORY = "The catalog lacks this board, whose memory is another one than that of"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100 40GB PCIe", "a100-pcie-40gb"),
        ("288GB B300", "b300-sxm-288gb"),
        ("192GB GB200", "gb200-nvl72"),
        ("H100 80GB SXM", "h100-sxm5-80gb"),
        ("V100 32GB SXM2", "v100-sxm2-32gb"),
        ("RTX 6000 PRO", "rtx-pro-6000-96gb"),
        ("GeForce 4090 RTX", "rtx-4090"),
    ],
)
def test_the_order_of_the_words_does_not_matter(text: str, name: str) -> None:
    assert hardware(text).name == name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("NVIDIA GTX 1660", ""),
        ("NVIDIA GeForce RTX 3050", ""),  # another product than the RTX 3090
        ("NVIDIA GeForce RTX 3080 Laptop GPU", f"{LACKS} rtx-3080"),
        ("RTX 5090D", f"{LACKS} rtx-5090"),
        ("NVIDIA GeForce RTX 5090 D", f"{LACKS} rtx-5090"),
        ("rtx-4060-ti-8gb", f"{MEMORY} rtx-4060-ti-16gb"),  # not the 4060, and not the 3060 Ti with its 8 GB
        ("RTX 3080 12GB", f"{MEMORY} rtx-3080"),
        ("NVIDIA A100-SXM-64GB", f"{MEMORY} a100-pcie-40gb, a100-pcie-80gb, a100-sxm4-40gb, a100-sxm4-80gb"),
        ("MI250X 128GB", "It may be mi250x"),  # one of its two GCDs
        ("A100 40GB OAM", "It may be one of a100-pcie-40gb, a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", f"{PARTITION} a100-sxm4-80gb, {PART}"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", f"{PARTITION} h100-sxm5-80gb, {PART}"),
        ("GRID A100-10C", f"{VIRTUAL} A100, with 10 GB and {TURNS}"),
        ("NVIDIA A100-40C", f"{VIRTUAL} A100, with 40 GB and {TURNS}"),
        ("NVIDIA A100D-4-40C", f"{VIRTUAL} A100D, with 40 GB and 4 of its slices (MIG)"),
        ("NVIDIA L40S-48Q", f"{VIRTUAL} L40S, with 48 GB and {TURNS}"),
        ("MI300", "It may be one of mi300a, mi300x"),
        ("AMD Instinct MI250X / MI250", "It may be one of mi250, mi250x"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", "It may be one of rx-7900-xt, rx-7900-xtx"),
        ("RTX PRO 5000 Blackwell 72GB", f"{MEMORY} rtx-pro-5000-48gb"),
    ],
)
def test_only_machines_of_the_same_product_are_suggested(text: str, names: str) -> None:
    assert suggestion(text) == names


def test_the_name_that_another_product_reports_suggests_its_relatives() -> None:
    with pytest.raises(UsageError, match="the H100 SXM5 with 94 GB") as caught:
        hardware("NVIDIA H100")
    assert {"h100-sxm5-80gb", "h100-pcie-80gb"} <= {word.strip(",;") for word in str(caught.value).split()}


def test_a_device_is_matched_by_name_and_the_memory_is_compared() -> None:
    found = match_device("NVIDIA A100-SXM4-80GB", 85_198_045_184)
    assert found is not None
    assert (found.hardware.name, found.by, found.memory_differs) == ("a100-sxm4-80gb", "name", False)
    part = match_device("NVIDIA A100-SXM4-80GB", 20e9)
    assert part is not None
    assert part.memory_differs


def test_a_laptop_has_one_gpu() -> None:
    """So nobody is offered eight of them in a host; several laptops need a network."""
    laptops = [machine for machine in load_all() if "laptop" in words_of(machine.name)]
    assert laptops
    assert {most_in_a_node(machine) for machine in laptops} == {1}


def test_an_ambiguous_device_name_is_settled_by_its_memory() -> None:
    small, large = match_device("Tesla V100-SXM2", 16.9e9), match_device("Tesla V100-SXM2", 34.1e9)
    assert small is not None
    assert large is not None
    assert (small.hardware.name, large.hardware.name) == ("v100-sxm2-16gb", "v100-sxm2-32gb")
    assert small.by == "name and memory size"
    assert match_device("Tesla V100-SXM2") is None
    assert match_device("NVIDIA GTX 1660", 8e9) is None


MINIMAL = """\
name = "mine"
vendor = "me"
architecture = "new"
aliases = ["my-gpu"]
[memory.hbm]
bandwidth = "1 TB/s"
source = "measured"
[peak.vector]
fp32 = "10 TFLOP/s"
source = "measured"
"""


def test_a_file_of_ones_own_works_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    for name in (path, str(path)):
        machine = hardware(name)
        assert (machine.name, machine.main_memory.bandwidth_bytes_per_s) == ("mine", 1e12)
        assert machine.path == str(path)


def test_perfmodel_hardware_adds_a_folder_that_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    calibrated = MINIMAL.replace('"mine"', '"a40-here"').replace('"my-gpu"', '"NVIDIA A40"')
    (tmp_path / "a40-here.toml").write_text(calibrated)
    monkeypatch.setenv("PERFMODEL_HARDWARE", os.pathsep.join([str(tmp_path), ""]))
    assert {"mine", "a40-here", "a40"} < set(hardware_names())
    assert hardware("my gpu").name == "mine"
    # a user's calibrated file answers to the name of the device in place of the shipped one
    assert hardware("NVIDIA A40").name == "a40-here"
    assert hardware("a40").name == "a40"
    (tmp_path / "t4.toml").write_text(MINIMAL.replace('"mine"', '"t4"'))
    assert hardware("t4").vendor == "me"


def test_a_changed_file_changes_what_its_names_stand_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of the catalog is kept, as long as no file of it changes, comes or goes."""
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    assert hardware("my gpu").main_memory.bandwidth_bytes_per_s == 1e12
    path.write_text(MINIMAL.replace("my-gpu", "our-gpu").replace("1 TB/s", "2 TB/s"))
    os.utime(path, ns=(1, 1))
    assert hardware("our gpu").main_memory.bandwidth_bytes_per_s == hardware("mine").main_memory.bandwidth_bytes_per_s
    assert hardware("mine").main_memory.bandwidth_bytes_per_s == 2e12
    with pytest.raises(UsageError, match="unknown hardware 'my gpu'"):
        hardware("my gpu")
    path.unlink()
    with pytest.raises(UsageError, match="unknown hardware 'mine'"):
        hardware("mine")


def test_a_name_that_was_found_is_found_again_without_a_look_at_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of `predict` takes 50 us, and a look at every file of the catalog 400."""
    machine = hardware("NVIDIA H100 80GB HBM3")

    def no_look(folder: object) -> None:
        raise AssertionError(f"looked at {folder}")

    monkeypatch.setattr(os, "scandir", no_look)
    assert hardware("NVIDIA H100 80GB HBM3") is machine


def test_a_name_is_found_without_reading_the_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(find, "read_hardware", lambda path, lazy: read.append(Path(path).stem) or read_hardware(path))
    find._read.cache_clear()
    find._load_all.cache_clear()
    assert hardware("NVIDIA H100 80GB HBM3").name == hardware("h100").name == "h100-sxm5-80gb"
    assert read == ["h100-sxm5-80gb"]


def test_the_first_file_of_a_name_is_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the names of a file in front cannot be told from its first lines."""
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    (tmp_path / "a.toml").write_text(f"# {'-' * 5000}\n{MINIMAL}")
    (tmp_path / "b.toml").write_text(MINIMAL.replace('"mine"', '"other"'))
    assert hardware("my gpu").name == "mine"
    (tmp_path / "a.toml").unlink()
    assert hardware("my gpu").name == "other"


def test_a_file_that_is_no_spec_stops_only_who_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    warn_once.cache_clear()
    (tmp_path / "cut-off.toml").write_text("name = [1,")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    (tmp_path / "mine.toml").write_text(MINIMAL)
    assert hardware("my gpu").name == "mine"
    assert hardware("h100").name == "h100-sxm5-80gb"
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2, "one for each file, however often the catalog is asked"
    for warning, file in zip(warnings, ("cut-off.toml", "pyproject.toml"), strict=True):
        assert f"left out of the catalog: {tmp_path / file}: " in warning
    for name in ("cut-off", "pyproject"):
        with pytest.raises(InputFileError, match=f"{name}.toml: "):
            hardware(name)
    with pytest.raises(UsageError, match=f"unknown hardware 'nothing'. Allowed: the {len(load_all())} of"):
        hardware("nothing")


def test_what_is_no_file_stops_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a pipe that nobody writes into, and links that lead nowhere or to themselves."""
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "nowhere.toml").symlink_to(tmp_path / "missing")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    os.mkfifo(tmp_path / "a-pipe.toml")
    assert hardware("h100").name == "h100-sxm5-80gb"
    assert len(load_all()) == len(NAMES)
    found = [finding for finding in lint_catalog().findings if Path(finding.file).parent == tmp_path]
    assert [Path(finding.file).stem for finding in found] == ["a-pipe", "folder", "loop", "nowhere"]
    assert {finding.severity for finding in found} == {"error"}
    for name in ("folder", "nowhere", "loop", "a-pipe"):
        with pytest.raises(InputFileError, match=f"{name}.toml: "):
            hardware(name)


def test_the_board_of_a_file_with_another_name_suggests_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    (tmp_path / "file.toml").write_text(MINIMAL.replace("aliases =", 'boards = ["X-PG1-200"]\naliases ='))
    with pytest.raises(UsageError, match=r"It may be mine; name the one"):
        hardware("X-PG1-200")


def test_every_name_of_the_catalog_is_that_of_its_file() -> None:
    assert {name: Path(hardware(name).path) for name in hardware_names()} == spec_files()


def test_a_file_in_place_of_a_folder_is_told_how_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(path))
    with pytest.raises(InputFileError, match=r"this is a file; a folder of spec files is needed.*--on .*mine\.toml"):
        hardware_names()


def test_a_folder_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_HARDWARE", "/no/such/folder")
    with pytest.raises(InputFileError, match="/no/such/folder"):
        hardware("a100")


def line(name: str = "all_reduce", **figures: str) -> str:
    """Return the table of a link with the line of one collective, and what follows it in the file."""
    usual = {"latency": '"10 us"', "bandwidth": '"5 GB/s"', "deviation": "0.05", "ranks": "2"}
    keys = "\n".join(f"{key} = {value}" for key, value in (usual | figures).items())
    return f'[link.nvlink]\nper_direction = "50 GB/s"\n[link.nvlink.collective.{name}]\n{keys}\n[memory.hbm]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"1 TB/s"', '"1 Tb/s"', "in bits; bytes are needed"),
        ('"1 TB/s"', '"1 TFLOP/s"', "is not in B/s"),
        ('"1 TB/s"', '"-1 TB/s"', "is not positive"),
        ('"1 TB/s"', '"0 TB/s"', "is not positive"),
        ('"1 TB/s"', "nan", "has no unit"),
        ('"1 TB/s"', "1555", r"has no unit.*'1555(\.0)? GB/s'"),
        ('"1 TB/s"', '"1555"', "has no unit.*'1555 GB/s'"),
        ('"1 TB/s"', '"1e-320 B/s"', "too small to be true"),
        ('"1 TB/s"', '"fast"', "not a number with a unit"),
        ("bandwidth =", "bandwith =", r"unknown key 'bandwith'.*Did you mean 'bandwidth'"),
        ("[memory.hbm]", "[memory.hmb]", r"unknown memory level 'hmb'.*'hbm'"),
        ("[peak.vector]", "[peak.vectors]", "unknown engine 'vectors'.*'vector'"),
        ("fp32 =", "fp33 =", "unknown dtype 'fp33'"),
        ('"10 TFLOP/s"', "{ flop_per_clock_per_sm = 128 }", r"peak.vector.fp32: .*'rate' is missing"),
        ('"10 TFLOP/s"', "true", "peak.vector.fp32: True is not a rate"),
        ('vendor = "me"', "", "'vendor' is missing"),
        ('"mine"', '""', "name"),
        ("[memory.hbm]", "[chip]\nsm_count = -4\n[memory.hbm]", "chip.sm_count"),
        ("[memory.hbm]", "[chip]\ntensor_share = 1.5\n[memory.hbm]", "chip.tensor_share: expected .* <= 1"),
        (
            "[memory.hbm]",
            '[sustained.tensor]\nfp16 = "1 TFLOP/s"\n[memory.hbm]',
            "sustained.tensor: unknown tensor dtype",
        ),
        ("[memory.hbm]", "[sustained]\nrun_deviation = 1.5\n[memory.hbm]", "run_deviation is 1.5.*between 0 and 1"),
        ("[memory.hbm]", "[memory.hbm", "line 5"),
        ("[memory.hbm]", line("all_reduced"), "link.nvlink.collective.*unknown collective 'all_reduced'.*'all_reduce'"),
        ("[memory.hbm]", line(latency='"10 GB/s"'), "link.nvlink.collective.all_reduce.latency: .*is not in s"),
        ("[memory.hbm]", line(bandwidth='"0 GB/s"'), "link.nvlink.collective.all_reduce.bandwidth: .*is not positive"),
        ("[memory.hbm]", line(deviation="0"), r"link.nvlink.collective\[...\].deviation: expected .* > 0"),
        ("[memory.hbm]", line(ranks="1"), "link.nvlink.collective.all_reduce.ranks: 1 ranks do not exchange"),
        ("[memory.hbm]", line(steps="2"), "unknown key 'steps'"),
    ],
)
def test_a_wrong_file_names_its_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MINIMAL
    path = tmp_path / "wrong.toml"
    path.write_text(MINIMAL.replace(old, new))
    with pytest.raises(InputFileError) as caught:
        read_hardware(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(InputFileError, match=f"(?s){message}"):
        read_hardware(path)


def test_directories_empty_and_absent_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("\n")
    (tmp_path / "folder.toml").mkdir()
    for name, message in (("empty.toml", "empty"), ("folder.toml", "directory"), ("none.toml", "no such file")):
        with pytest.raises(InputFileError, match=message):
            hardware(tmp_path / name)
    with pytest.raises(InputFileError, match="directory"):
        hardware(f"{tmp_path}{os.sep}")


def test_a_list_of_machines_in_json_is_no_spec(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[]")
    with pytest.raises(InputFileError, match="list"):
        read_hardware(path)


def test_gib_and_per_sm_capacities(tmp_path: Path) -> None:
    shared = hardware("a100").level("shared")
    assert shared is not None
    # 108 SMs x 164 KiB
    assert shared.capacity_bytes == 108 * 164 * 1024
    assert math.isclose(hardware("h200").main_memory.capacity_bytes or 0, 141 * 2**30)
