"""The time of whole models: a sum of kernels and gaps, against the host's dispatches."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Launch
from perfmodel.errors import UsageError
from perfmodel.prediction.launching import KERNEL_GAP_S
from perfmodel.prediction.whole_model import dispatch_time, predict_model
from perfmodel.workloads.config import ModelConfig
from perfmodel.workloads.transformer import forward_pass

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "whole_models.py"
#: mean error of whole models with the constants that ship
STATED_ERROR = 0.04
SMALL = ModelConfig("llama", 256, 2, 4, 4, 64, 512, 1000, 4096, "silu", False, 256)
WIDE = ModelConfig("llama", 4096, 2, 32, 32, 128, 11008, 32000, 4096, "silu", False, 4096)


def one(op, machine):
    return pm.predict(op, machine, timing="kernel").predicted_time_s


def test_kernels_whose_times_hold_their_dispatch_have_no_gap_between_them(simple_gpu):
    queueing = dataclasses.replace(simple_gpu, launch=Launch(overhead_s=4e-6, queued_s=4e-6))
    operators = [pm.Elementwise(numel=64, kind="add", dtype="fp32", count=5)]
    assert predict_model(operators, queueing).gaps_s == 0.0
    assert predict_model(operators, queueing).kernels_s >= 5 * 4e-6
    assert predict_model(operators, queueing, gap_s=1e-6).gaps_s == pytest.approx(5e-6)


def test_device_time_is_the_sum_of_kernels_and_gaps(simple_gpu):
    add = pm.Elementwise(numel=10**9, kind="add", dtype="fp32", count=3)
    norm = pm.LayerNorm(rows=10**6, cols=1024, count=2)
    made = predict_model([add, norm], simple_gpu)
    # Five kernels with a gap after each. They take milliseconds, so that the host is far ahead.
    assert made.kernels_s == pytest.approx(3 * one(add, simple_gpu) + 2 * one(norm, simple_gpu))
    assert made.gaps_s == pytest.approx(5 * KERNEL_GAP_S)
    assert made.time_s == pytest.approx(made.kernels_s + made.gaps_s)
    assert made.limiter == "device"


def test_it_is_less_than_the_sum_of_event_timed_calls(simple_gpu):
    # A kernel of 150 us (120 MB at 0.8 TB/s) hides its own dispatch but for 30 - 14 us, which events count each time.
    add = pm.Elementwise(numel=10**7, kind="add", dtype="fp32", count=100)
    events = 100 * pm.predict(add, simple_gpu, library="torch-2.1", timing="event").predicted_time_s
    assert predict_model([add], simple_gpu).time_s < events - 100 * 10e-6


def test_many_small_kernels_wait_for_the_host(simple_gpu):
    add = pm.Elementwise(numel=1, kind="add", dtype="fp32", count=1000)
    made = predict_model([add], simple_gpu)
    # A kernel of one element takes some us, its dispatch tens of us.
    assert made.time_s == made.host_s == pytest.approx(1000 * dispatch_time(add, simple_gpu))
    assert made.limiter == "host"
    # 80 % of hosts lie within exp(1.2816 * 0.4) = 1.67 of those measured
    assert [made.high_s / made.time_s, made.time_s / made.low_s] == pytest.approx([1.67, 1.67], rel=0.01)


def test_each_kernel_of_an_operator_that_runs_several_has_its_dispatch_and_its_gap(simple_gpu):
    loss = pm.CrossEntropy(rows=16, vocab=1000)  # log_softmax, and the entry of each row
    parts = loss.composition()
    made = predict_model([loss.changed(count=3)], simple_gpu, gap_s=1e-6)
    assert made.gaps_s == pytest.approx(3 * len(parts) * 1e-6)
    assert made.time_s == made.host_s == pytest.approx(3 * sum(dispatch_time(part, simple_gpu) for part in parts))
    # PyTorch activates and multiplies in kernels of their own, a compiler's kernel does both
    gate = pm.Swiglu(rows=16, cols=64)
    one, two = (dispatch_time(gate, simple_gpu, library=name) for name in ("triton", "torch-2.1"))
    assert two > 1.5 * one


def test_a_small_model_is_host_bound_and_a_wide_one_is_not(simple_gpu):
    assert predict_model(forward_pass(SMALL, 1, 16), simple_gpu).limiter == "host"
    assert predict_model(forward_pass(WIDE, 4, 512), simple_gpu).limiter == "device"


def test_host_time_does_not_grow_with_the_tensors(simple_gpu):
    short, long = (predict_model(forward_pass(SMALL, 2, seq), simple_gpu).host_s for seq in (16, 512))
    assert short == long


def test_families_and_terms_add_to_the_device_time(simple_gpu):
    made = predict_model(forward_pass(WIDE, 2, 256), simple_gpu)
    assert sum(made.by_family().values()) == pytest.approx(made.kernels_s)
    assert sum(made.by_term().values()) == pytest.approx(made.kernels_s + made.gaps_s)
    assert list(made.by_term().values()) == sorted(made.by_term().values(), reverse=True)


def test_more_sequences_take_longer(simple_gpu):
    times = [predict_model(forward_pass(WIDE, batch, 256), simple_gpu).time_s for batch in (1, 2, 4, 8)]
    assert times == sorted(times)
    # Eight times the tokens: at most eight times as long, since weights are read once.
    assert times[-1] < 8.1 * times[0]


def test_it_lies_within_its_interval(simple_gpu):
    made = predict_model(forward_pass(WIDE, 2, 256), simple_gpu)
    assert made.low_s < made.time_s < made.high_s


def test_gap_can_be_left_out(simple_gpu):
    operators = forward_pass(WIDE, 2, 256)
    without, made = predict_model(operators, simple_gpu, gap_s=0.0), predict_model(operators, simple_gpu)
    calls = sum(op.count for op in operators)
    assert made.time_s - without.time_s == pytest.approx(calls * KERNEL_GAP_S)


def test_no_operators_are_refused(simple_gpu):
    with pytest.raises(UsageError, match="no operators"):
        predict_model([], simple_gpu)


def test_a_sweep_is_no_model(simple_gpu):
    with pytest.raises(UsageError, match="numel is an array"):
        predict_model([pm.Elementwise(numel=[1, 2], kind="add")], simple_gpu)


# --- against measurements --------------------------------------------------------------------------------------


def test_a_bf16_decoder_takes_what_its_trace_shows(data_dir):
    """Qwen1.5-0.5B, 16 x 559 tokens, flash attention, no head, on an H100 whose elementwise rows nobody fitted."""
    config = ModelConfig("qwen2", 1024, 24, 16, 16, 64, 2816, 151936, 32768, "silu", True, 1024, qkv_bias=True)
    operators = forward_pass(config, 16, 559, "bf16", attention="flash", head="none")
    # The traced version also copies queries, keys, values and the result between layouts, four kernels a layer.
    operators.append(pm.Elementwise(numel=16 * 559 * 1024, kind="copy", strided=True, dtype="bf16", count=4 * 24))
    made = predict_model(operators, pm.hardware("h100-sxm5-80gb"))
    with (data_dir / "trace_reference_reports/h100_qwen1.5-0.5b/gpu_timeline.csv").open(encoding="utf-8") as stream:
        measured = {row["type"]: float(row["time ms"]) / 1e3 for row in csv.DictReader(stream)}
    assert made.limiter == "device"
    assert made.kernels_s == pytest.approx(measured["computation_time"], rel=0.15)
    assert made.time_s == pytest.approx(measured["total_time"], rel=0.15)


@pytest.fixture(scope="module")
def runs(data_dir):
    spec = importlib.util.spec_from_file_location("whole_models", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "whole_models", script)  # dataclasses look their module up
        patch.syspath_prepend(str(SCRIPT.parent))  # scripts import one another
        spec.loader.exec_module(script)
        yield script, script.comparison(data_dir)


def test_the_measured_runs_are_all_compared(runs):
    _, rows = runs
    assert Counter(row.hardware for row in rows) == {"v100-pcie-32gb": 5, "a100-pcie-40gb": 6, "h100-sxm5-80gb": 6}
    assert {row.model for row in rows} == {"BERT-Large", "GPT2-Large", "GPT3-XL", "OPT-1.3B"}
    assert all(row.predicted.limiter == "device" for row in rows)


def test_inference_of_whole_models_is_as_accurate_as_stated(runs):
    script, rows = runs
    assert script.mean_error(rows) < STATED_ERROR
    assert max(abs(row.error) for row in rows) < 3 * STATED_ERROR


def test_the_table_names_every_run_and_machine(runs):
    script, rows = runs
    printed = list(script.lines(rows))
    assert len(printed) == 1 + 17 + 3 + 1
    assert printed[-1].startswith("all: mean error ")
    assert printed[-1].endswith(" of 17 runs")
