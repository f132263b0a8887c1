"""Facts of a chip and its kernels are data: formulas use what a specification states, and defaults for the rest."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Kernels
from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog import load_all, read_hardware
from perfmodel.hardware_catalog.figures import machine_figures
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency.machine import Machine

#: a consumer Blackwell, which the catalog does not have
NEW = """
name = "new"
vendor = "NVIDIA"
architecture = "Blackwell"
compute_capability = "12.0"
[chip]
sm_count = 170
vector_clock = "2407 MHz"
tensor_clock = "2407 MHz"
max_threads_per_sm = 1536
matrix_instruction = "mma.sync"
source = "a datasheet"
[memory.hbm]
technology = "GDDR7"
capacity = "32 GiB"
bandwidth = "1792 GB/s"
source = "a datasheet"
[memory.l2]
capacity = "96 MiB"
source = "a datasheet"
[peak.tensor]
bf16 = "209.5 TFLOP/s"
fp8 = "419 TFLOP/s"
source = "a datasheet"
[peak.vector]
fp32 = "104.8 TFLOP/s"
source = "a datasheet"
"""


@pytest.fixture
def spec(tmp_path: Path):
    """Return a machine read from a file: the new one with further lines."""

    def read(more: str = "", text: str = NEW):
        path = tmp_path / "new.toml"
        path.write_text(text + more, encoding="utf-8")
        return read_hardware(path)

    return read


def symbols(machine) -> Machine:
    return Machine.of(machine, resolve_peak(pm.Gemm(m=8, n=8, k=8, dtype="bf16"), machine))


def test_a_new_machine_is_a_file(spec) -> None:
    machine = spec()
    assert generation(machine) == "blackwell-12.0", "not the B200, whose defaults are those of blackwell-10.0"
    of = symbols(machine)
    assert (of.threads_per_sm, of.matrix_instruction, of.l2_copies, of.packed) == (1536.0, "mma.sync", 1.0, 1.0)
    # as other graphics cards of the vendor, not as the data-centre chip of its architecture
    p = pm.predict(pm.Attention(heads=8, seq_q=512, head_dim=128, dtype="bf16"), machine, library="trtllm")
    assert (p.calibration, p.predicted_time_s > p.bound_time_s) == ("never seen", True)


def test_a_chip_with_less_resident_threads_takes_longer(spec) -> None:
    rows = pm.Softmax(rows=10**5, cols=3000)
    few, many = (
        pm.predict(rows, spec(text=NEW.replace("max_threads_per_sm = 1536", f"max_threads_per_sm = {threads}")))
        for threads in (1024, 2048)
    )
    # Half as many blocks wait at once, and each waits for half as many warps of its scheduler.
    assert 1.0 < few.alone_s["math"] / many.alone_s["math"] < 2.0


def test_what_a_specification_omits_has_its_default(spec) -> None:
    text = NEW.replace("max_threads_per_sm = 1536\n", "").replace('matrix_instruction = "mma.sync"\n', "")
    of = symbols(spec(text=text))
    assert (of.threads_per_sm, of.exponentials_per_clock, of.matrix_instruction) == (2048.0, 16.0, "mma.sync")
    assert of.kernels == Kernels()


def test_a_specification_may_state_its_generation(spec) -> None:
    assert generation(spec(text='generation = "Blackwell 10.0"\n' + NEW)) == "blackwell-10.0"


@pytest.mark.parametrize(
    ("link", "reduces"),
    [
        ('[link.nvlink]\nper_direction = "450 GB/s"\n', True),  # a bound that ignored the switch could be beaten
        ('[link.nvlink]\nper_direction = "300 GB/s"\n', False),
        ('[link.nvlink]\nper_direction = "450 GB/s"\ndomain = 4\n', False),  # a bridge
        ('[link.nvlink]\nper_direction = "450 GB/s"\nper_peer = "64 GB/s"\n', False),  # links of each two of eight
        ('[link.nvlink]\nper_direction = "450 GB/s"\nreduces_in_switch = false\n', False),
        ('[link.nvlink]\nper_direction = "300 GB/s"\nreduces_in_switch = true\n', True),
        ('[link.pcie]\nper_direction = "500 GB/s"\n', False),
    ],
)
def test_nvlink_of_450_gb_per_s_ends_in_a_switch_that_reduces_unless_stated(spec, link: str, reduces: bool) -> None:
    assert spec(link).links[0].reduces_in_switch is reduces


def test_a_link_states_how_many_devices_it_joins(spec) -> None:
    link = '[link.nvlink]\nper_direction = "900 GB/s"\n'
    assert spec(link).links[0].domain is None
    assert spec(link + "domain = 72\n").links[0].domain == 72


def test_a_machine_that_states_no_registers_has_those_of_most(spec) -> None:
    assert spec(text=NEW.replace("max_threads_per_sm = 1536\n", "")).registers_per_thread(0.25) == 128


def test_a_link_may_join_some_devices_only_and_have_links_of_its_own_to_each(spec) -> None:
    (link,) = spec('[link.xgmi]\nper_direction = "150 GB/s"\ndomain = 4\nper_peer = "50 GB/s"\n').links
    assert (link.domain, link.per_peer_bytes_per_s) == (4, 50e9)
    (all_of_them,) = spec('[link.xgmi]\nper_direction = "448 GB/s"\nper_peer = "64 GB/s"\n').links
    assert all_of_them.domain == 8  # 7 peers
    (whole,) = spec('[link.xgmi]\nper_direction = "150 GB/s"\n').links
    assert (whole.domain, whole.per_peer_bytes_per_s) == (None, None)


def test_the_figures_of_a_machine_tell_a_pairs_bandwidth_from_all_of_it() -> None:
    figures = machine_figures(pm.hardware("mi300x"))
    rates = {figure.key: figure.value for figure in figures.figures if figure.table == "link.xgmi"}
    assert rates == {"per_direction": 448e9, "per_peer": 64e9}
    assert machine_figures(pm.hardware("a40")).facts["link.nvlink domain"] == "2"


def test_a_link_joins_two_devices_at_least(spec) -> None:
    with pytest.raises(InputFileError, match=r"1 is fewer than 2 devices.*"):
        spec('[link.nvlink]\nper_direction = "150 GB/s"\ndomain = 1\n')


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[kernels]\nfp8_tiles = { lib = [[64, 64], [128, 128]] }\n", "kernels.fp8_tiles.lib"),
        ("[kernels]\nfp8_tiles = { lib = [[64, 64, 256]] }\n", "kernels.fp8_tiles.lib"),
        ("[kernels]\ngemm_tiles = [[64]]\n", "kernels.gemm_tiles"),
        ("[kernels]\ngem_tiles = [[64, 64]]\n", "gem_tiles"),
        ('[memory.l1]\ncapacity = "1 MiB"\ncopies = 0\n', "copies = 0 is below 1"),
        ('[peak.matrix]\nbf16 = "1 TFLOP/s"\n', "matrix"),
    ],
)
def test_a_wrong_fact_is_named(spec, more: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        spec(more)
    with pytest.raises(InputFileError, match="matrix_instruction"):
        spec(text=NEW.replace('"mma.sync"', '"mma"'))


@pytest.mark.parametrize("machine", load_all(), ids=lambda machine: machine.name)
def test_every_fact_is_written_and_read_back(machine, tmp_path: Path) -> None:
    write_spec(machine, tmp_path / f"{machine.name}.toml")
    again = read_hardware(tmp_path / f"{machine.name}.toml")
    for field in dataclasses.fields(machine):
        if field.name not in ("path", "latency"):
            assert getattr(dataclasses.replace(again, path=""), field.name) == getattr(machine, field.name), field.name


@pytest.mark.parametrize("machine", load_all(), ids=lambda machine: machine.name)
def test_every_shipped_gpu_states_its_facts(machine) -> None:
    assert machine.process
    assert machine.chip["max_threads_per_sm"] >= 1024
    assert machine.matrix_instruction or not any(peak.engine == "tensor" for peak in machine.peaks)
    assert machine.kernels == Kernels() or machine.sources["kernels"]


def test_kernels_without_a_source_are_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text(NEW + "[kernels]\nsoftmax_threads = 1024\n", encoding="utf-8")
    assert ("kernels", "missing-source") in {(finding.key, finding.code) for finding in lint_file(path)}


def test_the_facts_of_a_machine_are_shown(perfmodel) -> None:
    shown = " ".join(perfmodel("hardware", "show", "l40s").out.split())
    assert "chip process: TSMC 4N." in shown
    assert "kernels.fp8_tiles sglang: 16 x 64 x 16, 32 x 64 x 64" in shown
    assert "kernels widens_fp8_keys: yes." in shown
    rows = {(row["table"], row["key"]): row["value"] for row in _rows(perfmodel, "mi300x")}
    assert (rows["peak.vector", "fp32 packed"], rows["kernels", "softmax_threads"]) == (2.0, 1024.0)
    assert {(row["table"], row["key"]): row["value"] for row in _rows(perfmodel, "h100")}["memory.l2", "copies"] == 2.0


def _rows(perfmodel, name: str):
    return perfmodel("hardware", "show", name, "--format", "json").json["rows"]
