"""Products of kinds that the tables hardly have: what they are priced as, and how sure that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.gemm import FAMILIES
from perfmodel.prediction.latency.machine import Machine

FP4 = {"dtype": "fp4", "scale": "group:16", "out_dtype": "bf16", "quantized": True}


def _narrow_s(machine: str, library: str, m: int = 4096) -> float:
    op = pm.Gemm(m=m, n=8192, k=8192, dtype="bf16", weight_dtype="int4", scale="group:128")
    return float(pm.predict(op, machine, library=library).predicted_time_s)


def _width(prediction: pm.Prediction) -> float:
    return float(np.asarray(prediction.predicted_time_high_s) / np.asarray(prediction.predicted_time_low_s))


@pytest.mark.parametrize("machine", ["h100", "h200", "b200", "b300"])
def test_marlin_is_as_slow_as_mma_sync_where_the_engine_has_another_instruction(machine: str) -> None:
    # m n k alike in both, so that only the instruction differs; 62.9 % of 4096 FLOP a clock and SM is the most
    hardware = pm.hardware(machine)
    most = 0.629 * 4096.0 * hardware.sm_count * (hardware.native_peak("bf16").clock_hz or 0.0)
    assert 2.0 * 4096 * 8192**2 / _narrow_s(machine, "marlin") < most
    assert _narrow_s(machine, "marlin") > 1.2 * _narrow_s(machine, "cutedsl")


def test_marlin_is_the_kernel_that_a100_has_anyway() -> None:
    assert _narrow_s("a100-sxm4-80gb", "marlin") == pytest.approx(_narrow_s("a100-sxm4-80gb", "machete"))


def test_few_rows_wait_for_their_weights_by_any_instruction() -> None:
    assert _narrow_s("h100", "marlin", m=1) == pytest.approx(_narrow_s("h100", "machete", m=1), rel=0.1)


def test_the_same_call_again_may_find_its_weights_in_a_large_l2() -> None:
    thin, large = (pm.Gemm(m=m, n=6144, k=4096, dtype="bf16") for m in (16, 4096))
    for op, wider in ((thin, True), (large, False)):
        warm, cold = (pm.predict(op, "rtx-5090", cache=state) for state in ("warm", "cold"))
        assert (_width(warm) > 1.2 * _width(cold)) is wider
    beyond = pm.Gemm(m=16, n=32768, k=8192, dtype="bf16")  # 512 MiB of weights
    warm, cold = (pm.predict(beyond, "rtx-5090", cache=state) for state in ("warm", "cold"))
    assert _width(warm) == pytest.approx(_width(cold), rel=0.02)


def test_the_same_call_again_reads_l2_unless_other_layers_run_in_between() -> None:
    """50 MB of weights, which L2 of 96 MB keeps: 1.79 TB/s of memory and 0.08 x 64 B x 170 x 2.41 GHz of L2."""
    op = pm.Gemm(m=16, n=6144, k=4096, dtype="bf16")
    times = {
        (library, cache): float(pm.predict(op, "rtx-5090", cache=cache, library=library).predicted_time_s)
        for library in ("torch", "vllm")
        for cache in ("cold", "warm")
    }
    assert 1.4 < times["torch", "cold"] / times["torch", "warm"] < 2.5
    assert times["vllm", "warm"] == pytest.approx(times["vllm", "cold"], rel=0.1)


@pytest.mark.parametrize("machine", ["p100-pcie-16gb", "h100-sxm5-80gb", "a100-sxm4-80gb", "rtx-4090", "mi210"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_products_of_pytorch_elsewhere_are_less_sure_at_any_size(machine: str, dtype: str) -> None:
    """Of single products and of batches, inside the data of a surface and beyond: a doubt never makes surer."""
    m, batch = np.array([64.0, 4096.0, 64.0, 4096.0, 1e6]), np.array([1.0, 1.0, 8.0, 8.0, 1.0])
    op = pm.Gemm(m=m, n=4096, k=4096, batch=batch, dtype=dtype)
    here, there = (pm.predict(op, machine, library=name) for name in ("torch-2.1", "torch"))
    ends = ((one.predicted_time_high_s, one.predicted_time_low_s) for one in (here, there))
    measured, elsewhere = (np.log(np.asarray(high) / np.asarray(low)) for high, low in ends)
    assert (elsewhere > measured).all()
    assert there.predicted_time_s == pytest.approx(here.predicted_time_s)
    assert ErrorSource.INSTALLATION in there.uncertainty
    assert ErrorSource.INSTALLATION not in here.uncertainty


@pytest.mark.parametrize("machine", ["p100-pcie-16gb", "h100-sxm5-80gb", "a100-sxm4-80gb", "rtx-4090", "b200", "l40s"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_less_is_known_of_no_library_than_of_a_measured_one_and_least_of_another(machine: str, dtype: str) -> None:
    op = pm.Gemm(m=np.array([64.0, 4096.0]), n=4096, k=4096, dtype=dtype)
    made = [pm.predict(op, machine, library=name) for name in ("torch-2.11", "", "nonsense")]
    measured, none, another = (np.asarray(one.predicted_time_high_s) / one.predicted_time_low_s for one in made)
    assert (measured < none).all()
    assert (none <= another * (1.0 + 1e-9)).all()


def test_four_bit_kernels_of_another_library_are_less_sure() -> None:
    op = pm.Gemm(m=16, n=6144, k=4096, **FP4)  # type: ignore[arg-type]
    known, too, other = (pm.predict(op, "b200", library=name) for name in ("trtllm", "sglang", "vllm_cutlass"))
    assert _width(other) > 1.5 * max(_width(known), _width(too))
    assert ErrorSource.KERNEL not in {*known.uncertainty, *too.uncertainty}


def test_products_in_triton_are_less_sure_than_those_of_the_vendor() -> None:
    op = pm.Gemm(m=128, n=4096, k=11008, dtype="bf16")
    triton, cublas = (pm.predict(op, "a100-sxm4-80gb", library=name) for name in ("triton", "cublas"))
    assert _width(triton) > 1.1 * _width(cublas)


def test_long_rows_of_both_operands_are_slow_on_a_p100_and_those_of_one_are_not() -> None:
    # cuBLAS reaches 8.7 TFLOP/s in a square of 32768; a linear layer, whose weights lie [n, k], a third of that
    plain, linear = (
        float(pm.predict(pm.Gemm(m=32768, n=32768, k=32768, bias=bias), "p100-pcie-16gb").predicted_time_s)
        for bias in (False, True)
    )
    assert 2.0 * 32768**3 / plain > 6e12
    assert linear > 2.0 * plain


@pytest.mark.parametrize("library", ["triton", "efficient", "torch"])
def test_attention_in_triton_is_slower_than_the_usual_kernel_on_matrix_cores_of_amd(library: str) -> None:
    op = pm.Attention(batch=2, heads=40, seq_q=2048, head_dim=128, dtype="fp16")
    compiled, usual = (float(pm.predict(op, "mi300x", library=name).predicted_time_s) for name in (library, ""))
    assert 1.8 * usual < compiled < 4.0 * usual
    assert float(np.asarray(op.flop())) / compiled < 0.3 * 1307e12


@pytest.mark.parametrize("machine", ["p4", "t4", "h100"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_products_of_one_row_by_arrays_of_k_are_those_by_numbers(machine: str, dtype: str) -> None:
    k = np.array([16.0, 17.0, 4096.0])
    together = np.asarray(pm.predict(pm.Gemm(m=1, n=4096, k=k, dtype=dtype), machine).predicted_time_s)
    alone = [float(pm.predict(pm.Gemm(m=1, n=4096, k=one, dtype=dtype), machine).predicted_time_s) for one in k]
    assert together == pytest.approx(alone)


def test_decodes_and_prompts_in_fp32_have_one_rate() -> None:
    op = pm.Attention(batch=8, heads=32, kv_heads=8, seq_q=64, seq_kv=np.arange(200.0, 1024.0), head_dim=128)
    time = np.asarray(pm.predict(op, "h100", library="triton").predicted_time_s)
    assert (np.diff(time) > -0.02 * time[:-1]).all()


@pytest.mark.parametrize("library", ["sglang", "trtllm"])
def test_quantising_alone_is_less_sure_than_a_product_that_quantises_first(library: str) -> None:
    product = pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp8"), "h100", library=library)
    alone = pm.predict(pm.Quantize(rows=4096, cols=4096, dtype="fp8"), "h100", library=library)
    assert _width(alone) > 1.5 * _width(product)
    assert ErrorSource.KERNEL in alone.uncertainty


@pytest.mark.parametrize(
    "op",
    [pm.Quantize(rows=8192, cols=4096, dtype="fp8"), pm.Dequantize(rows=8192, cols=4096, in_dtype="fp8", dtype="bf16")],
    ids=lambda op: op.op,
)
@pytest.mark.parametrize("machine", ["h100", "b200", "mi355x"])
def test_a_kernel_of_a_named_library_is_no_chain_of_pytorchs(op: pm.Operator, machine: str) -> None:
    """Each kernel of the chain writes its result; a call of no library may be one, a kernel of a library is none."""
    chain = float(pm.predict(op, machine, library="torch").predicted_time_s)
    named, unnamed = (float(pm.predict(op, machine, library=name).predicted_time_high_s) for name in ("helion", ""))
    assert named < chain <= unnamed


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kernels_of_nobodys_table_are_less_sure_than_the_vendors_and_these_than_pytorchs(dtype: str) -> None:
    op = pm.Gemm(m=4096, n=4096, k=4096, dtype=dtype)
    widths = [
        _width(pm.predict(op, "h100", library=name))
        for name in ("torch-2.1", "torch", "cublas", "cutlass_3x", "my_own")
    ]
    assert widths[0] < widths[1] < widths[2] < widths[3] == widths[4]
    assert pm.predict(op, "h100", library="my_own").predicted_time_s == pytest.approx(
        float(pm.predict(op, "h100").predicted_time_s), rel=0.1
    )


def test_what_vendors_differ_by_holds_whose_kernels_run() -> None:
    op = pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")
    assert _width(pm.predict(op, "mi355x", library="own")) == _width(pm.predict(op, "mi355x", library="hipblaslt"))


@pytest.mark.parametrize("m", [1, 64, 8192])
def test_fp8_by_fp4_is_an_8_bit_product_that_reads_less(m: int) -> None:
    sizes = {"m": m, "n": 28672, "k": 4096, "quantized": True}
    wide, mixed, narrow = (
        pm.predict(pm.Gemm(**sizes, **kinds), "b200", library="trtllm")
        for kinds in ({"dtype": "fp8"}, {"dtype": "fp8", "weight_dtype": "fp4", "scale": "group:32"}, {"dtype": "fp4"})
    )
    assert mixed.prediction_basis.startswith("gemm_fp8")
    assert narrow.predicted_time_s <= mixed.predicted_time_s <= 1.001 * wide.predicted_time_s
    # no table has such a product
    assert mixed.uncertainty.variances(mixed.regime)[ErrorSource.KERNEL] > 0
    assert _width(mixed) > _width(narrow)


def _reach(machine: str, library: str, **params: Any) -> float:
    """High over low end of the interval of a product."""
    return _width(pm.predict(pm.Gemm(n=4096, k=4096, **params), pm.hardware(machine), library=library))


def test_products_in_a_dtype_without_a_table_are_no_surer_on_a_machine_and_in_a_library_that_nobody_measured() -> None:
    for rows in (64, 1024, 8192):
        unknown = _reach("mi355x", "aiter", m=rows, batch=8, dtype="mxfp8")
        assert unknown > _reach("mi355x", "aiter_ck", m=rows, batch=8, dtype="fp8")
        # what vendors differ by holds what libraries do
        assert unknown >= _reach("mi355x", "torch", m=rows, batch=8, dtype="mxfp8")
        assert unknown > 1.2 * _reach("b200", "torch", m=rows, batch=8, dtype="mxfp8")
    # it is one error of all such products, so that it does not average out in a sum
    found = pm.predict(pm.Gemm(m=1024, n=4096, k=4096, batch=8, dtype="mxfp8"), pm.hardware("mi355x"))
    variances = found.uncertainty.variances(found.regime)
    assert variances[ErrorSource.KERNEL] > 10.0 * variances[ErrorSource.SHAPE]


@pytest.mark.parametrize("dtype", ["int4_wo", "int8_wo"])
def test_few_rows_by_narrow_weights_are_less_sure_in_a_library_that_may_widen_them_for_each(dtype: str) -> None:
    for rows in (2, 5, 16):
        assert _reach("a100", "onnxruntime", m=rows, dtype=dtype) > 1.5 * _reach(
            "a100", "onnxruntime", m=1, dtype=dtype
        )
        assert _reach("a100", "trtllm", m=rows, dtype=dtype) < 1.1 * _reach("a100", "trtllm", m=1, dtype=dtype)


@pytest.mark.parametrize("machine", ["rtx-4090", "rtx-3090", "l4"])
def test_small_tiles_of_fp64_wait_for_nothing_but_its_few_lanes(machine: str) -> None:
    """Whole tiles in a large batch: 0.9 of the few lanes' peak, where fp32 loses more to its loads."""
    hardware = pm.hardware(machine)
    for size in (32, 64, 128):
        reached = {}
        for dtype in ("fp64", "fp32"):
            op = pm.Gemm(m=size, n=size, k=size, batch=8192, dtype=dtype)
            made = pm.predict(op, hardware)
            reached[dtype] = float(op.flop()) / float(made.predicted_time_s) / hardware.best_peak(dtype).flop_per_s
        assert 0.75 < reached["fp64"] <= 0.9
        assert reached["fp64"] > reached["fp32"]


def test_chips_with_as_many_lanes_of_fp64_have_the_constants_of_fp32() -> None:
    op = pm.Gemm(m=64, n=64, k=64, batch=4096, dtype="fp64")
    made = pm.predict(op, "v100")
    assert float(op.flop()) / float(made.predicted_time_s) < 0.8 * pm.hardware("v100").best_peak("fp64").flop_per_s


BLOCKS = {"dtype": "fp8", "scale": "block:128x128", "out_dtype": "bf16", "quantized": True}


def _blocks_s(machine: str, library: str, m: int) -> float:
    op = pm.Gemm(m=m, n=24576, k=7168, **BLOCKS)  # type: ignore[arg-type]
    return float(pm.predict(op, machine, library=library).predicted_time_s)


@pytest.mark.parametrize("library", ["vllm_cutlass", "torch"])
def test_cutlass_computes_128_rows_of_products_with_scales_of_blocks(library: str) -> None:
    """2 x 128 x 24576 x 7168 FLOP take 152 us at an H20's 296 TFLOP/s: it measured 202 to 204 us for 16 and 64 rows."""
    few, more, whole = (_blocks_s("h20", library, rows) for rows in (16, 64, 128))
    assert few == pytest.approx(whole, rel=0.05)
    assert more == pytest.approx(whole, rel=0.05)
    assert 152e-6 < few < 204e-6
    assert _blocks_s("h20", "deepgemm", 64) < 0.6 * few
    # where the weights' bytes take longer than 128 rows, it makes no difference
    assert _blocks_s("h100", library, 16) < 1.2 * _blocks_s("h100", "deepgemm", 16)


@pytest.mark.parametrize("library", ["flashinfer", "sglang_triton"])
def test_young_kernels_for_scales_of_blocks_are_less_sure(library: str) -> None:
    assert _reach("h200", library, m=1024, **BLOCKS) > 2.0 * _reach("h200", "deepgemm", m=1024, **BLOCKS)


@pytest.mark.parametrize("machine", ["h100", "b200"])
def test_compiled_kernels_quantise_as_they_stream(machine: str) -> None:
    op = pm.Quantize(rows=65536, cols=8192, dtype="fp8", scale="group:128")
    compiled, serving = (float(pm.predict(op, machine, library=name).predicted_time_s) for name in ("torchao", "vllm"))
    least = float(op.work().bytes) / pm.hardware(machine).main_memory.bandwidth_bytes_per_s
    assert least < compiled < 1.3 * least
    assert serving > 1.5 * compiled


def test_installations_of_a_young_engine_differ_by_more() -> None:
    op = pm.Gemm(m=8192, n=8192, k=8192, dtype="bf16")
    young, usual = (pm.predict(op, machine, library="torch") for machine in ("b200", "h100"))
    parts = [one.uncertainty.variances(one.regime)[ErrorSource.INSTALLATION] for one in (young, usual)]
    assert parts[0] > 4.0 * parts[1]


@pytest.mark.parametrize("library", ["", "torch", "torch-2.4", "cublas", "triton", "own"])
@pytest.mark.parametrize("timing", ["kernel", "event"])
def test_what_is_asked_once_of_an_operator_holds_for_all_of_its_sizes(library: str, timing: str) -> None:
    """Doubts that no size decides are kept by settings, machine and conditions: nothing else may decide them."""
    conditions = Conditions.parse(timing=timing, library=library)
    products = [
        pm.Gemm(m=m, n=n, k=64, batch=batch, bias=bias, dtype=dtype)
        for m, n, batch in ((1, 1, 1), (3, 5, 2), (4096, 8192, 1))
        for bias in (False, True)
        for dtype in ("bf16", "fp16", "fp32", "fp8")
    ]
    products += [pm.Gemm(m=m, n=64, k=128, dtype="fp8", scale="group:32") for m in (1, 4096)]
    for hardware in map(pm.hardware, ("h100", "rtx-5090", "mi300x")):
        for family in FAMILIES:
            for doubt in (doubt for doubt in family.all_doubts if not doubt.by_size and doubt.machines(hardware)):
                answers: dict[Any, set[Any]] = {}
                for product in products:
                    machine = Machine.of(hardware, resolve_peak(product, hardware))
                    answers.setdefault(product.settings, set()).add(doubt.about(product, machine, conditions))
                assert all(len(found) == 1 and found <= {False, True} for found in answers.values()), doubt
