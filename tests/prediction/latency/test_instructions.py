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
