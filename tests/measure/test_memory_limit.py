"""A quarter of the free memory: what it leaves, what an operator takes, and how sizes are chosen to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from perfmodel.kernels.registry import find_kernels  # noqa: E402
from perfmodel.measure.benchmark import presets  # noqa: E402
from perfmodel.measure.benchmark.jobs import points  # noqa: E402
from perfmodel.measure.benchmark.presets import within_memory  # noqa: E402
from perfmodel.measure.calibration.memory import buffer_elements  # noqa: E402
from perfmodel.measure.calibration.plan import QUICK, THOROUGH  # noqa: E402
from perfmodel.measure.memory_limit import QUICK_BYTES, MemoryLimit, needed_bytes  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.parse import parse_operators  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402


def test_the_limit_is_a_quarter_of_what_is_free_and_at_most_what_is_asked_for(scripted):
    assert MemoryLimit.of(scripted(free_bytes=40e9)).limit_bytes == 10e9
    assert MemoryLimit.of(scripted(free_bytes=40e9), QUICK_BYTES).limit_bytes == QUICK_BYTES
    assert MemoryLimit.of(scripted(free_bytes=4e9), QUICK_BYTES).limit_bytes == 1e9


def test_a_cpu_reserves_the_interpreter_and_the_flush_and_a_gpu_nothing(scripted):
    device = scripted(free_bytes=40e9)
    device.cache_bytes = 100e6
    assert MemoryLimit.of(device).usable_bytes == pytest.approx(10e9 - 0.35e9 - 0.2e9)
    assert MemoryLimit.of(device, flush=False).usable_bytes == pytest.approx(10e9 - 0.35e9)
    device.kind = "cuda"
    assert MemoryLimit.of(device).usable_bytes == 10e9
    assert MemoryLimit(1e9, 2e9).usable_bytes == 0.0, "never below nothing"


def test_what_an_addition_takes_by_hand():
    # tensors: 3 x 4 B x 2^20, twice; 2^20 outputs compared at 96 B; 128 MB of small things
    assert needed_bytes(Elementwise(numel=2**20)) == pytest.approx(2 * 12 * 2**20 + 96 * 2**20 + 128e6)
    # no more than 2^22 outputs are compared
    assert needed_bytes(Elementwise(numel=2**24)) == pytest.approx(2 * 12 * 2**24 + 96 * 2**22 + 128e6)


def test_the_largest_size_is_halved_until_it_fits():
    limit = MemoryLimit(needed_bytes(Softmax(rows=1024, cols=4096)), 0.0)
    assert limit.reduced(Softmax(rows=1024, cols=4096)).rows == 1024, "it fits as it is"
    found = limit.reduced(Softmax(rows=5000, cols=4096))
    # 5000 x 4096 -> 2500 x 4096 -> 2500 x 2048 (5.1e6, above 4.2e6) -> 1250 x 2048
    assert (found.rows, found.cols) == (1250, 2048), "always the larger of the two"
    assert limit.fits(found)
    kept = Softmax(rows=5000, cols=4096)
    assert MemoryLimit(1.0, 0.0).reduced(kept) is kept, "nothing is small enough"


def test_other_dimensions_stay_as_they_are():
    limit = MemoryLimit(0.4e9, 0.0)
    op = Attention(heads=16, kv_heads=4, seq_q=1, seq_kv=2**22, head_dim=64, causal=True)
    found = limit.reduced(op)
    assert limit.fits(found)
    assert (found.heads, found.kv_heads, found.head_dim, found.causal) == (16, 4, 64, True)
    assert 1 < found.seq_kv < op.seq_kv


@pytest.mark.parametrize("cache_bytes", [30e6, 330e6])
@pytest.mark.parametrize(("name", "kind"), [("quick", "cpu"), ("full", "cpu")])
def test_every_point_of_a_preset_fits(name, kind, cache_bytes, scripted):
    device = scripted(free_bytes=16e9)
    device.cache_bytes = cache_bytes
    preset = presets.preset(name, kind)
    limit = MemoryLimit.of(device, preset.most_memory_bytes)
    operators = parse_operators(preset.tokens(cache_bytes))
    kept, reduced = within_memory(operators, limit)
    assert all(limit.fits(op) for op in kept)
    assert len(kept) == sum(len(points(op)) for op in operators)
    assert {op.op for op in kept} == {op.op for op in operators}, "no operator is dropped for its size"
    assert reduced < 0.5 * len(kept), "most sizes stay"


@pytest.mark.parametrize("plan", [QUICK, THOROUGH], ids=["quick", "thorough"])
@pytest.mark.parametrize("cache_bytes", [1e6, 330e6, 2e9])
def test_the_buffers_of_a_calibration_fit(plan, cache_bytes, scripted):
    device = scripted(free_bytes=16e9)
    device.cache_bytes = cache_bytes
    limit = MemoryLimit.of(device, plan.most_memory_bytes, flush=False)
    each = 4 * buffer_elements(device, plan)
    assert 3 * each <= limit.usable_bytes
    wanted = max(4 * cache_bytes, 2**26)
    assert each >= wanted or 4 * each > limit.usable_bytes, "as large as the caches ask for, or as memory allows"


#: VmHWM is the peak of this program alone; ru_maxrss begins with that of the process which started it
RUN = """
import sys
from perfmodel.kernels.device import cpu
cpu.last_level_cache_bytes = lambda: 60e6
cpu.CpuDevice.free_memory_bytes = lambda self: 3.2e9
from perfmodel.cli import app
code = app.run(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.waiting
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/status")
def test_a_preset_stays_within_its_limit(tmp_path):
    # the kernels with the largest tensors; the calibration before them is part of the run
    options = ["--preset", "quick", "--device", "cpu", "--time-limit", "0.02", "--min-time", "0"]
    options += ["--kernel", "torch.elementwise", "--kernel", "F.layer_norm"]
    record = tmp_path / "record.json"
    command = [sys.executable, "-c", RUN, "bench", *options, "-o", str(record)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    peak = 1024 * float(ran.stdout.splitlines()[-1])
    limit = 0.25 * 3.2e9
    assert f'"memory_limit_bytes": {limit}' in record.read_text()
    assert peak <= limit


def test_on_a_gpu_a_kernel_that_needs_too_much_is_left_out_and_the_point_keeps_its_size(scripted):
    device = scripted(free_bytes=80e9)
    device.kind = "cuda"
    limit = MemoryLimit.of(device)
    op = Attention(batch=2, heads=32, seq_q=8192, head_dim=128, causal=True, dtype="bf16")
    assert limit.reduced(op) is op
    held = {kernel.name for kernel in find_kernels("attention") if kernel.computes(op) and limit.holds(op, kernel)}
    assert {"torch.sdpa", "torch.sdpa.flash", "triton.attention.tma"} <= held
    assert not held & {"naive", "torch.sdpa.math"}, "their scores take 17 GB, four times"
    assert MemoryLimit(limit.limit_bytes, 0.0).reduced(op).seq_q < 8192
