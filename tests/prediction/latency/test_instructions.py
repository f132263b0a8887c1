"""Which instructions kernels multiply 8-bit operands by, on machines where those with scales are faster."""

import pytest

import perfmodel as pm
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.instructions import launched

RTX_5090 = pm.hardware("rtx-5090")
SIZES = {"m": 8192, "n": 8192, "k": 8192}
PLAIN, SCALED = 419e12, 838e12


def rates(op: pm.Operator, library: str, machine: pm.Hardware = RTX_5090) -> tuple[float | None, ...]:
    return tuple(
        peak.flop_per_s if peak else None for peak in launched(op, machine, resolve_peak(op, machine), library)
    )


@pytest.mark.parametrize(
    ("library", "scale", "expected"),
    [
        ("cublaslt", "none", (SCALED, None)),
        ("torch", "none", (SCALED, None)),
        ("", "none", (SCALED, PLAIN)),
        ("own", "none", (SCALED, PLAIN)),
        ("own", "column", (SCALED, PLAIN)),
        ("torch", "column", (PLAIN, SCALED)),
        ("trtllm", "none", (PLAIN, SCALED)),
        ("vllm_cutlass", "column", (PLAIN, None)),
        ("torch_triton", "none", (PLAIN, None)),
        ("vllm", "block:128x128", (PLAIN, None)),
        ("cutlass", "group:32", (SCALED, None)),
    ],
)
def test_libraries_have_instructions_with_scales_or_plain_ones(
    library: str, scale: str, expected: tuple[float | None, ...]
) -> None:
    assert rates(pm.Gemm(**SIZES, dtype="fp8", scale=scale), library) == expected


def test_kernels_of_attention_are_plain_unless_somebody_wrote_them_by_hand() -> None:
    op = pm.Attention(heads=32, seq_q=8192, head_dim=128, dtype="fp8", kv_dtype="fp8")
    assert rates(op, "own") == (SCALED, PLAIN)
    assert rates(op, "") == (PLAIN, SCALED)
    assert rates(op, "vllm") == (PLAIN, None)


@pytest.mark.parametrize(("machine", "dtype"), [("rtx-4090", "fp8"), ("h100", "fp8"), ("rtx-5090", "bf16")])
def test_one_rate_leaves_no_choice(machine: str, dtype: str) -> None:
    chip, op = pm.hardware(machine), pm.Gemm(**SIZES, dtype=dtype)
    peak = resolve_peak(op, chip)
    assert launched(op, chip, peak, "own") == (peak, None)


def test_an_interval_holds_the_times_of_both_instructions_where_they_are_not_known() -> None:
    op = pm.Gemm(**SIZES, dtype="fp8")
    cublaslt, triton, own, any_library = (
        pm.predict(op, RTX_5090, library=library) for library in ("cublaslt", "triton", "own", "")
    )
    assert triton.predicted_time_s > 1.3 * cublaslt.predicted_time_s
    for unknown in (own, any_library):
        assert unknown.predicted_time_s == pytest.approx(cublaslt.predicted_time_s, rel=0.05)
        assert unknown.predicted_time_low_s < cublaslt.predicted_time_s
        assert unknown.predicted_time_high_s > 0.98 * triton.predicted_time_s
    assert triton.predicted_time_low_s > cublaslt.bound_time_s


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_instructions_of_cdna_3_reach_half_of_cdna_4(dtype: str) -> None:
    """TileLang's have k = 16 on both, in as many cycles as those of k = 32; elsewhere nothing differs."""
    op, new, old = pm.Gemm(**SIZES, dtype=dtype), pm.hardware("mi355x"), pm.hardware("mi300x")
    assert rates(op, "tilelang", new) == (0.5 * (rates(op, "", new)[0] or 0.0), None)
    assert rates(op, "tilelang", old) == rates(op, "", old)
    assert rates(op.changed(dtype="fp8"), "tilelang", new) == rates(op.changed(dtype="fp8"), "", new)
    compiled, usual = (float(pm.predict(op, new, library=name).predicted_time_s) for name in ("tilelang", "triton"))
    assert usual < compiled <= 2.0 * usual


def test_a_halved_rate_is_the_same_for_every_way_to_state_it() -> None:
    op, chip = pm.Gemm(**SIZES, dtype="bf16"), pm.hardware("mi350x")
    whole = resolve_peak(op, chip)
    peak, _ = launched(op, chip, whole, "tilelang")
    assert peak is not None
    assert whole is not None
    stated = (peak.flop_per_clock_per_sm or 0.0, peak.flop_per_s)
    assert stated == (0.5 * (whole.flop_per_clock_per_sm or 0.0), 0.5 * whole.flop_per_s)


@pytest.mark.parametrize("machine", ["mi300x", "mi355x"])
def test_attention_by_a_compiler_of_tiles_is_no_faster_than_by_amds_own_kernels(machine: str) -> None:
    op = pm.Attention(heads=32, seq_q=8192, head_dim=128, dtype="fp16")
    tiles, by_hand = (float(pm.predict(op, machine, library=name).predicted_time_s) for name in ("tilelang", "ck"))
    assert tiles > 1.5 * by_hand
