"""Calibration from rows of one's own: the prediction follows them, and its interval holds those that were left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.calibration import calibrate_family
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.own_rows import MachineCalibration, calibrate_calls
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.report import report
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.hardware_catalog.write import write_spec
from perfmodel.operators.base import Operator
from perfmodel.prediction.latency.constants import WIDEST, Constants
from tests.accuracy.test_fit import FAMILY, rows

ROWS = np.repeat([512.0, 2048.0, 8192.0], 4)
COLS = np.tile([512.0, 1024.0, 2048.0, 4096.0], 3)
#: machine, operator with twelve sizes
PRODUCTS = ("h100-sxm5-80gb", pm.Gemm(m=ROWS, n=2 * COLS, k=COLS[::-1], dtype="bf16"))
SOFTMAX = ("l4", pm.Softmax(rows=ROWS, cols=COLS, dtype="fp16"))
NORMS = ("rtx-4090", pm.RmsNorm(rows=ROWS, cols=COLS, dtype="bf16"))
LOOK_UPS = ("a100-sxm4-80gb", pm.Embedding(tokens=ROWS, dim=COLS, vocab=32000, dtype="bf16"))
PROMPTS = (
    "h100-sxm5-80gb",
    pm.Attention(batch=ROWS / 512, heads=16, seq_q=COLS, head_dim=128, causal=True, dtype="bf16"),
)


def timed(machine: str, op: Operator, factor: Any, library: str = "") -> MeasuredCalls:
    """Rows that take a factor times what the shipped constants say."""
    times = np.asarray(pm.predict(op, machine, library=library).predicted_time_s) * factor
    line = np.arange(2, times.size + 2)
    flags = np.full(times.size, "")
    return MeasuredCalls(machine, op, times, Timing.KERNEL, CacheState.COLD, library, flags, "mine.csv", line)


def calibrated(calls: MeasuredCalls) -> MachineCalibration:
    return calibrate_calls([calls], pm.hardware(calls.hardware), "mine.csv", "2026-11-27")


def off(calls: MeasuredCalls, machine: Hardware) -> tuple[Any, Any, Any]:
    """Predicted over measured, which rows are inside the interval, and high over low."""
    found = pm.predict(calls.op, machine, library=calls.library)
    low, high = np.asarray(found.predicted_time_low_s), np.asarray(found.predicted_time_high_s)
    inside = (low <= calls.time_s) & (calls.time_s <= high)
    return np.asarray(found.predicted_time_s) / calls.time_s, inside, high / low


@pytest.mark.waiting
@pytest.mark.parametrize("factor", [0.95, 1.3, 1.6, 2.0, 5.0])
@pytest.mark.parametrize("rows_of", [PRODUCTS, SOFTMAX, NORMS, LOOK_UPS, PROMPTS], ids=lambda one: one[1].op)
def test_rows_that_are_all_slower_move_the_prediction_by_as_much(rows_of: tuple[str, Any], factor: float) -> None:
    """A factor that all rows share is no noise: it is told by twelve rows as well as by a thousand."""
    calls = timed(*rows_of, factor)
    ratio, inside, _ = off(calls, calibrated(calls).hardware)
    assert np.exp(np.median(np.log(ratio))) == pytest.approx(1.0, abs=0.06)
    assert np.abs(ratio - 1.0).mean() < 0.1
    assert inside.mean() >= 0.8


@pytest.mark.waiting
def test_noisy_rows_at_three_times_the_prediction_are_followed() -> None:
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(12))
    calls = timed(*PRODUCTS, 3.0 * noise)
    ratio, inside, _ = off(calls, calibrated(calls).hardware)
    assert np.exp(np.median(np.log(ratio))) == pytest.approx(1.0, abs=0.1)
    assert inside.mean() >= 0.8


@pytest.mark.parametrize(("factor", "words"), [(1e3, "are the times in milliseconds?"), (1e6, "in microseconds?")])
def test_rows_that_nothing_describes_are_refused_and_a_unit_is_guessed(factor: float, words: str) -> None:
    result = calibrated(timed(*PRODUCTS, factor))
    assert not result.families
    (reason,) = result.unused
    assert reason.startswith("of gemm_bf16: ")
    assert words in reason


@pytest.mark.waiting
def test_rows_that_scatter_widen_the_interval_to_their_scatter() -> None:
    """The interval is that of rows left out, narrower than before or wider: four of five are inside."""
    calls = timed(*PRODUCTS, np.random.default_rng(1).permutation(np.repeat([1.3, 3.0], 6)))
    _, _, before = off(calls, pm.hardware(calls.hardware))
    _, inside, width = off(calls, calibrated(calls).hardware)
    assert inside.mean() >= 0.8
    assert np.median(width) > 3.0 / 1.3 > 1.5 * np.median(before)


@pytest.mark.parametrize("rows_of", [NORMS, LOOK_UPS], ids=lambda one: one[1].op)
def test_rows_without_a_library_tell_what_a_call_without_one_takes(rows_of: tuple[str, Any], tmp_path: Any) -> None:
    """The file that is written predicts its rows as well as the fit says, and is surer of them than before."""
    calls = timed(*rows_of, 1.3)
    result = calibrated(calls)
    (made,) = result.families
    write_spec(result.hardware, tmp_path / "mine.toml")
    ratio, _, width = off(calls, pm.hardware(tmp_path / "mine.toml"))
    assert np.abs(ratio - 1.0).mean() < 1.2 * (made.off - 1.0) + 0.005
    _, _, before = off(calls, pm.hardware(calls.hardware))
    assert np.median(width) < np.median(before)


def test_rows_of_attention_of_torch_are_those_that_torch_is_predicted_by() -> None:
    """Shipped tables name the kernel within torch ("torch/cudnn"); a table of one's own has torch's rows as "torch"."""
    calls = timed(*PROMPTS, 1.3, "torch")
    _, _, before = off(calls, pm.hardware(calls.hardware))
    machine = calibrated(calls).hardware
    ratio, inside, width = off(calls, machine)
    found = pm.predict(
        pm.Attention(batch=4, heads=16, seq_q=2048, head_dim=128, dtype="bf16"), machine, library="torch"
    )
    assert found.calibration == "calibrated"
    assert np.abs(ratio - 1.0).mean() < 0.05
    assert inside.mean() >= 0.8
    assert np.median(width) < np.median(before)


def test_what_is_printed_agrees_with_the_choice_of_constants() -> None:
    """Half of the time is further off than 1.9 times it, though 50 % is less than 90 %: the constants before stay."""
    base = Constants({c.name: c.default for c in FAMILY.constants}, dict.fromkeys(REGIMES, WIDEST), "never seen", "")
    found = calibrate_family(FAMILY, [rows(40, 0.5, 4e-6)], base, "mine", "2026-11-27", follow=True)
    halves, more = np.log(np.full(40, 0.5)), np.log(np.full(40, 1.9))
    made = replace(found, log_ratio=halves, log_ratio_before=more, stays=True)
    text = report(MachineCalibration(pm.hardware("h100"), (made,), {})).notes[0]
    assert "off by a factor of 2.000 in the mean on rows that were not fitted, 1.900 with the constants before." in text
    assert "These stay" in text


def test_what_the_constants_may_not_reach_is_a_factor_of_the_kernels() -> None:
    """The rate ends at 0.1 of the peak: kernels at a twentieth take twice as long, and the file says so."""
    base = Constants({c.name: c.default for c in FAMILY.constants}, dict.fromkeys(REGIMES, WIDEST), "never seen", "")
    found = calibrate_family(FAMILY, [rows(40, 0.05, 4e-6)], base, "mine", "2026-11-27", follow=True)
    assert found.table.constants["factor"] > 1.5
    assert np.abs(found.log_ratio).max() < 0.1
    known = calibrate_family(FAMILY, [rows(40, 0.5, 4e-6)], base, "mine", "2026-11-27", follow=True)
    assert "factor" not in known.table.constants


def test_the_rows_of_many_machines_have_no_factor() -> None:
    """They tell what is usual: what a machine of one's own differs by is none of that."""
    base = Constants({c.name: c.default for c in FAMILY.constants}, dict.fromkeys(REGIMES, WIDEST), "never seen", "")
    found = calibrate_family(FAMILY, [rows(40, 0.05, 4e-6)], base, "open", "2026-11-27")
    assert "factor" not in found.table.constants


def test_gradients_and_turning_decodes_follow_the_factor_of_prompts() -> None:
    machine = calibrated(timed(*PROMPTS, 8.0)).hardware
    table = machine.latency["attention_prefill"]
    assert table.constants["factor"] > 2.0  # limits of physics hold the constants back
    prompt = pm.Attention(batch=2, heads=32, kv_heads=8, seq_q=4096, head_dim=128, causal=True, dtype="bf16")
    forward, backward = (
        float(pm.predict(prompt.changed(backward=back), machine).predicted_time_s) for back in (False, True)
    )
    assert backward > forward
    few = prompt.changed(batch=8, seq_kv=8192)
    before, after = (float(pm.predict(few.changed(seq_q=n), machine).predicted_time_s) for n in (128, 129))
    assert before < after < 1.5 * before


@pytest.mark.waiting
def test_the_error_before_is_that_of_each_library() -> None:
    shapes, op = PRODUCTS
    calls = [timed(shapes, op, factor, library) for library, factor in (("sglang", 1.0), ("vllm", 1.0))]
    found = calibrate_calls(calls, pm.hardware(shapes), "mine.csv", "2026-11-27")
    assert found.families[0].off_before < 1.05


@pytest.mark.waiting
@pytest.mark.parametrize("machine", ["h100-sxm5-80gb", "h200-sxm-141gb"])
@pytest.mark.parametrize("library", ["", "torch", "sglang"])
def test_constants_that_no_fit_betters_stay_and_the_interval_is_that_of_the_rows(
    machine: str, library: str, tmp_path: Any
) -> None:
    """Rows that scatter about the prediction without a rule teach no constant; a fit to them would be a guess."""
    scatter = np.exp(0.3 * np.random.default_rng(7).permutation(np.repeat([-1.0, 1.0], 6)))
    calls = timed(machine, PRODUCTS[1], scatter, library)
    result = calibrated(calls)
    (made,) = result.families
    assert made.stays
    assert made.off >= made.off_before
    write_spec(result.hardware, tmp_path / "mine.toml")
    other = PRODUCTS[1].changed(m=ROWS + 100.0)
    for op in (calls.op, other):
        before, after = (pm.predict(op, on, library=library) for on in (machine, tmp_path / "mine.toml"))
        assert np.asarray(after.predicted_time_s) == pytest.approx(np.asarray(before.predicted_time_s), rel=1e-3)
    _, inside, width = off(calls, pm.hardware(tmp_path / "mine.toml"))
    assert inside.mean() >= 0.8
    assert np.median(width) < 4.0


def test_a_file_that_knows_a_kind_of_kernel_is_read_again(tmp_path: Any) -> None:
    """PyTorch's prompts run its FlashAttention-2 on an A100, a doubt until rows tell of it: the file says that."""
    result = calibrated(timed("a100-sxm4-80gb", PROMPTS[1], 1.3, "torch"))
    write_spec(result.hardware, tmp_path / "mine.toml")
    known = pm.hardware(tmp_path / "mine.toml").latency["attention_prefill"]
    assert known.deviations == result.families[0].table.deviations == {"kernel": (0.0, 0.0, 0.0)}
