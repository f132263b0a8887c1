"""`perfmodel calibrate` on the CPU of this machine, with small buffers and products."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from perfmodel.cli._device import machine_to_measure
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import read_hardware
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.kernels.device import cuda
from perfmodel.measure.calibration import cpu_caches, plan
from perfmodel.measure.calibration.plan import CalibrationPlan

pytestmark = pytest.mark.usefixtures("small_cache")

TINY = CalibrationPlan(
    1, 2, 0.01, cache_multiple=0.1, least_buffer_bytes={"cpu": 2.0**20}, largest_product={"cpu": 256}
)


@pytest.fixture
def small(monkeypatch):
    """Make a calibration take a fraction of a second; its figures are real, but not ceilings."""
    monkeypatch.setattr(plan, "THOROUGH", CalibrationPlan(**{**vars(TINY), "everything": True}))
    monkeypatch.setattr(plan, "QUICK", TINY)
    monkeypatch.setattr(cpu_caches, "_BYTES_PER_CALL", 2e5)
    monkeypatch.setattr(cpu_caches, "_BEYOND", 0.1)


def test_calibrated_spec_reads_back_and_serves_analyze_and_bench(small, perfmodel, tmp_path):
    path = tmp_path / "cpu.toml"
    ran = perfmodel("calibrate", "--device", "cpu", "-o", path, "--format", "json")
    assert ran.code == 0
    rows = {row["figure"]: row for row in ran.json["rows"]}
    patterns = {"dram copy", "dram triad", "dram read", "dram write"}
    assert patterns | {"fp32 vector product", "fp64 vector product"} <= rows.keys()
    machine = read_hardware(path)
    assert machine.kind == "cpu"
    assert machine.main_memory.sustained_bytes_per_s == rows["dram copy"]["sustained"]
    assert machine.main_memory.bandwidth_bytes_per_s == max(
        row["sustained"] for figure, row in rows.items() if figure.startswith("dram")
    )
    assert machine.find_peak("fp32", "vector").sustained_flop_per_s == rows["fp32 vector product"]["sustained"]
    assert machine.launch.overhead_s == rows["call overhead"]["sustained"]
    assert "perfmodel calibrate" in machine.sustained_source
    for level in machine.caches:
        if f"{level.name} read" in rows:
            assert level.sustained_bytes_per_s == rows[f"{level.name} read"]["sustained"]
    assert "PCIe" in " ".join(ran.json["notes"]), "what was left out is said"
    assert not [finding for finding in lint_file(path) if finding.severity == "error"]
    assert perfmodel("analyze", "gemm", "m=64", "n=64", "k=64", "--on", path).code == 0
    benched = perfmodel("bench", "gemm", "m=64", "n=64", "k=64", "--on", path, "--device", "cpu", "--time-limit", 0.05)
    assert benched.code == 0


def test_bench_without_a_machine_calibrates_and_says_so(small, perfmodel):
    ran = perfmodel("bench", "gemm", "m=32", "n=32", "k=32", "dtype=bf16", "--device", "cpu", "--time-limit", 0.05,
                    "--kernel", "torch.*", "--format", "json")  # fmt: skip
    assert ran.code == 0
    assert "calibrating this CPU" in ran.err
    (row,) = ran.json["rows"]
    assert row["hardware"].startswith("cpu-")
    assert ran.json["context"]["spec"]["sustained"]["vector"].keys() >= {"fp32", "bf16"}


@pytest.mark.parametrize("kernel", ["torch.matmull", "no_such_module:f"])
def test_a_kernel_that_does_not_exist_is_refused_before_bench_calibrates(small, perfmodel, kernel):
    ran = perfmodel("bench", "gemm", "m=32", "n=32", "k=32", "--device", "cpu", "--kernel", kernel)
    assert ran.code == 2
    assert kernel.partition(":")[0] in ran.err
    assert "calibrating" not in ran.err


def test_table_shows_arithmetic_beside_sustained_and_the_working_sets(small, perfmodel):
    ran = perfmodel("calibrate", "--device", "cpu")
    assert ran.code == 0
    assert "sustained" in ran.out
    assert "FLOP/s" in ran.out
    assert "working set of a thread" in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-o", "spec.json"), 2, ".toml"),
        (("-o", "no/such/folder.toml"), 2, "folder does not exist"),
        (("--device", "gpu"), 2, "Allowed: cpu, cuda"),
        (("--on", "a", "--on", "b"), 2, "Name one machine"),
        (("--on", "missing.toml"), 3, "no such file"),
    ],
)
def test_bad_requests_get_one_message_before_anything_is_measured(perfmodel, arguments, code, words):
    ran = perfmodel("calibrate", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert "calibrating" not in ran.err


def test_missing_gpu_exits_4(perfmodel, monkeypatch):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    assert perfmodel("calibrate", "--device", "cuda").code == 4


@pytest.mark.parametrize("more", [(), ("--device", "cpu"), ("--links", "--num-gpus", "2", "--device", "cpu")])
def test_figures_of_the_cpu_are_not_written_under_the_name_of_a_gpu(perfmodel, monkeypatch, tmp_path, more):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    path = tmp_path / "h100.toml"
    ran = perfmodel("calibrate", "--on", "h100", "-o", path, *more)
    assert ran.code == 4
    assert "--on: NVIDIA H100 80GB HBM3" in ran.err
    assert "calibrating" not in ran.err
    assert not path.exists()


def test_figures_of_a_gpu_are_not_written_under_the_name_of_a_cpu(tmp_path):
    """Only the kind of the device is asked: the machine of the test need not have a GPU."""
    gpu = SimpleNamespace(kind="cuda", name="NVIDIA H100 80GB HBM3")
    cpu = tmp_path / "cpu.toml"
    cpu.write_text(
        'name = "a-cpu"\nvendor = "x"\narchitecture = "y"\nkind = "cpu"\n[memory.dram]\nbandwidth = "10 GB/s"\n'
        '[peak.vector]\nfp32 = "1 TFLOP/s"\n'
    )
    with pytest.raises(UsageError, match="is a CPU, and the device is a GPU"):
        machine_to_measure(gpu, [str(cpu)])
    assert machine_to_measure(gpu, ["h200"]).name == "h200-sxm-141gb"
    assert machine_to_measure(gpu, None).name == "h100-sxm5-80gb"


def test_rows_in_milliseconds_are_refused_and_no_file_is_written(perfmodel, tmp_path):
    """A table of products whose times are a thousand times too large describes no machine."""
    sizes = [(m, k) for m in (512, 1024, 2048) for k in (1024, 2048, 4096, 8192)]
    rows = [f"h100,gemm,bf16,{m},4096,{k},{1.3e-8 * m * k:.6g}\n" for m, k in sizes]  # at 630 TFLOP/s, in ms
    (tmp_path / "ms.csv").write_text("hardware,op,dtype,m,n,k,time_s\n" + "".join(rows))
    ran = perfmodel("calibrate", "--from", tmp_path / "ms.csv", "--on", "h100", "-o", tmp_path / "mine.toml")
    assert ran.code == 3
    assert "are the times in milliseconds?" in ran.err
    assert not (tmp_path / "mine.toml").exists()
