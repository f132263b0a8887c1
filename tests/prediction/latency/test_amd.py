"""AMD's machines: the energy of matrix cores, products of the vendor's library, MIOpen's kernels around its sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.elementwise import FAMILY as ELEMENTWISE
from perfmodel.prediction.latency.gemm import GEMM_BF16
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.own_figures import HIPBLASLT
from perfmodel.prediction.latency.power import MFMA_ENERGY, process_energy

MI300X, H100 = hardware("mi300x"), hardware("h100-sxm5-80gb")
#: machine, dtype, n, TFLOP/s of 4096 x n x 32896 after a second of load ("Measuring Max-Achievable FLOPs, part 2")
BEST = (
    ("mi300x", "fp16", 4864, 654.0), ("mi300x", "bf16", 4864, 708.0), ("mi300x", "fp8", 3648, 1273.0),
    ("mi325x", "fp16", 4864, 794.0), ("mi325x", "bf16", 4864, 843.0), ("mi325x", "fp8", 3648, 1519.0),
)  # fmt: skip


def _machine(dtype: str) -> Machine:
    return Machine.of(MI300X, resolve_peak(pm.Gemm(m=64, n=64, k=64, dtype=dtype), MI300X))


def test_a_flop_of_amds_matrix_cores_takes_more_energy_in_16_bits_alone() -> None:
    sixteen, single = _machine("bf16"), _machine("fp32")
    other = replace(sixteen, matrix_instruction="wgmma")
    assert process_energy(sixteen) == pytest.approx(MFMA_ENERGY * process_energy(other))
    assert process_energy(replace(single, matrix_instruction="mfma")) == process_energy(single)


@pytest.mark.parametrize(("machine", "dtype", "n", "rate"), BEST)
def test_the_vendors_best_products_are_beyond_its_typical_ones(machine: str, dtype: str, n: int, rate: float) -> None:
    op = pm.Gemm(m=4096, n=n, k=32896, dtype=dtype)
    found = pm.predict(op, machine, load="sustained")
    measured = float(op.flop()) / (rate * 1e12)
    # 4 % in the mean by energy alone, and then the library's factor
    assert measured <= found.predicted_time_s <= HIPBLASLT * 1.1 * measured
    assert found.predicted_time_low_s <= measured


def test_products_take_the_vendors_factor_and_no_other_machines_do() -> None:
    assert constants(GEMM_BF16, MI300X, "", "bf16").values["factor"] == HIPBLASLT
    assert "factor" not in constants(GEMM_BF16, H100, "", "bf16").values


def test_sums_are_filled_and_converted_by_two_kernels_but_around_plain_products() -> None:
    three = {"n": 10, "c": 64, "h": 56, "w": 56, "k": 64, "dtype": "bf16"}
    split = pm.predict(pm.Conv2d(**three, r=3, s=3, padding=1), MI300X).predicted_terms_s["split-k"]
    # two starts of 4.4 us; 2 x 4 B and 2 B of 2,007,040 sums at a share of 5.3 TB/s between a half and all of it
    stream = 10.0 * 10 * 64 * 56 * 56 / 5.3e12
    assert 8.8e-6 + stream < split < 8.8e-6 + 2.0 * stream
    for one in (pm.Conv2d(**three, r=1, s=1), pm.Conv2d(**three, r=1, s=1, stride=2)):
        assert pm.predict(one, MI300X).predicted_terms_s.get("split-k", 0.0) < 1e-6


def test_images_are_unfolded_one_after_another() -> None:
    def starts(machine: pm.Hardware, n: int) -> float:
        op = pm.Conv2d(n=n, c=16, h=4, w=4, k=16, r=3, s=3, padding=1, dtype="fp16", algorithm="im2col")
        return float(pm.predict(op, machine).predicted_terms_s["im2col"])

    assert starts(MI300X, 32) - starts(MI300X, 16) > 30 * 4.4e-6
    assert starts(H100, 32) - starts(H100, 16) < 4.4e-6


def test_a_step_of_composable_kernel_takes_three_times_as_long_on_gfx950() -> None:
    """112 steps of 64 at 150 ns in place of 50 add 11 us to one block's time; large products hide them."""
    few, many = (pm.Gemm(m=m, n=768, k=7168, dtype="fp8", scale="block:128x128", quantized=True) for m in (16, 2**20))
    ck, others = (
        [pm.predict(op, "mi355x", library=library) for op in (few, many)] for library in ("aiter_ck", "aiter")
    )
    added = 112 * 100e-9
    assert ck[0].predicted_time_s - others[0].predicted_time_s == pytest.approx(added, rel=0.3)
    assert ck[1].predicted_time_s == pytest.approx(float(others[1].predicted_time_s), rel=0.05)
    on_gfx942 = [pm.predict(few, "mi300x", library=library).predicted_time_s for library in ("aiter_ck", "aiter")]
    assert on_gfx942[0] == on_gfx942[1]


@pytest.mark.parametrize(("library", "most"), [("fa2", 0.45), ("triton", 0.35), ("torch", 0.35)])
def test_attention_reaches_less_of_radeons_vector_units(library: str, most: float) -> None:
    op = pm.Attention(batch=4, heads=32, seq_q=8192, head_dim=64, dtype="fp16")
    found = pm.predict(op, "rx-7900-xtx", library=library)
    assert 0.15 < found.bound_time_s / found.predicted_time_s < most


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_products_on_a_radeon_are_less_sure(dtype: str) -> None:
    op = pm.Gemm(m=4096, n=4096, k=4096, dtype=dtype)
    kernels = [pm.predict(op, name, library="torch").uncertainty for name in ("rx-7900-xtx", "mi300x")]
    assert ErrorSource.KERNEL in kernels[0]
    assert ErrorSource.KERNEL not in kernels[1]


def _attention_s(machine: str, library: str = "", **sizes: object) -> float:
    op = pm.Attention(**{"heads": 1, "seq_q": 4096, "head_dim": 64, "dtype": "fp16", **sizes})  # type: ignore[arg-type]
    return float(pm.predict(op, machine, library=library).predicted_time_s)


@pytest.mark.parametrize("library", ["", "ck", "torch", "triton"])
def test_blocks_of_a_few_heads_are_not_split_over_idle_units(library: str) -> None:
    """One head has 64 blocks, of 304 units: two take as long. FlashAttention-3 splits them, on other machines."""
    one, two = (_attention_s("mi300x", library, heads=heads, seq_q=8192) for heads in (1, 2))
    assert two < 1.2 * one
    one, two = (_attention_s("h100-sxm5-80gb", "fa3", heads=heads, seq_q=4096) for heads in (1, 2))
    assert two > 1.2 * one


@pytest.mark.parametrize("library", ["triton", "torch", "fa2"])
def test_heads_of_128_columns_leave_radeons_registers(library: str) -> None:
    small, large = (
        _attention_s("rx-7900-xtx", library, heads=heads, head_dim=columns) for heads, columns in ((64, 64), (32, 128))
    )
    assert large > 1.2 * small
    small, large = (
        _attention_s("mi300x", library, heads=heads, head_dim=columns) for heads, columns in ((64, 64), (32, 128))
    )
    assert large < small


@pytest.mark.parametrize("machine", ["mi100", "mi210", "mi300a", "mi300x", "mi355x"])
@pytest.mark.parametrize("library", ["hip", "tilelang"])
def test_what_libraries_of_another_vendor_differ_by_says_nothing_of_a_stream(machine: str, library: str) -> None:
    """AMD's machines ran PyTorch alone: an unknown kernel is as fast there but for the instructions it issues."""
    op = pm.Elementwise(numel=2**28, dtype="fp32")
    table = constants(ELEMENTWISE, hardware(machine), library, "fp32").values
    assert table["eta"] == constants(ELEMENTWISE, hardware(machine), "torch", "fp32").values["eta"]
    pytorch, unknown = (float(pm.predict(op, machine, library=name).predicted_time_s) for name in ("torch", library))
    assert unknown == pytest.approx(pytorch, rel=0.04)
