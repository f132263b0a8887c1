"""What fusion saves, worked by hand on tensors of one size."""

from __future__ import annotations

import pytest

from perfmodel.diagnosis.fusion import follows, fuse_operators
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm

A100 = hardware("a100-sxm4-80gb")
NUMEL = 2**24


def _chain(*kinds):
    return [Elementwise(numel=NUMEL, kind=kind) for kind in kinds]


def test_two_passes_less_for_each_intermediate():
    # add (2 reads, 1 write), relu (1, 1), mul (2, 1): 8 accesses; fused 3 reads + 1 write = 4, of 4 B each
    made = fuse_operators(_chain("add", "relu", "mul"), A100, times_s=(3e-3, 2e-3, 3e-3))
    assert made.verdict == "fuse"
    assert made.bytes_saved == 4 * 4 * NUMEL
    assert made.fused_time_s == pytest.approx(4e-3)
    assert made.speedup == pytest.approx(2.0)


def test_an_intermediate_that_is_used_again_is_still_written():
    # 5 accesses apart; fused: 2 reads, the intermediate's write, the output's write = 4
    made = fuse_operators(_chain("add", "relu"), A100, times_s=(3e-3, 2e-3), uses=2)
    assert made.bytes_saved == 4 * NUMEL
    assert made.fused_time_s == pytest.approx(4e-3)
    assert "another operator reads" in made.reason


def test_three_operators_of_one_size_become_two_accesses():
    # reference case 11: ReLU, BatchNorm and convolution, each one read and one write, weights left out: 6 become 2
    made = fuse_operators(_chain("relu", "tanh", "exp"), A100, times_s=(1e-3, 1e-3, 1e-3))
    assert made.fused_time_s / made.time_s == pytest.approx(2 / 6)


def test_a_product_is_left_to_its_library():
    product = Gemm(m=8192, n=8192, k=8192, dtype="bf16")
    made = fuse_operators([product, Elementwise(numel=8192 * 8192, kind="gelu", dtype="bf16")], A100)
    assert made.verdict == "only as an epilogue"
    assert made.fused_time_s >= 2 * 8192**3 / 312e12  # no faster than the product's arithmetic


def test_two_products_are_not_fused():
    one = Gemm(m=4096, n=4096, k=4096, dtype="bf16")
    assert fuse_operators([one, one], A100).verdict == "do not fuse"


def test_many_registers_speak_against_it():
    made = fuse_operators(_chain("add", "relu"), A100, registers_per_thread=(90, 60))
    assert made.verdict == "do not fuse"
    # 90, and of the 60 those above the 16 that every kernel has: 134
    assert "134 registers" in made.reason


def test_small_kernels_in_a_row_do_not_fill_the_registers():
    # eight kernels of 24 registers: 24 + 7 x (24 - 16) = 80, below 128
    chain = _chain("relu", "tanh", "exp", "neg", "abs", "sqrt", "log", "square")
    assert fuse_operators(chain, A100, registers_per_thread=(24,) * 8).verdict == "fuse"


@pytest.mark.parametrize(
    ("machine", "most"),
    # 65,536 registers / (a quarter of 2048, 1536 and 1024 threads); 131,072 of 4 B on a compute unit of the MI300X
    [("h100", 128), ("v100-sxm2-16gb", 128), ("rtx-4090", 170), ("t4", 256), ("mi300x", 256)],
)
def test_the_registers_that_leave_a_quarter_of_the_threads_follow_from_the_chip(machine, most):
    assert int(hardware(machine).registers_per_thread(0.25)) == most
    chain = _chain("add", "relu")
    # the larger one, and what the other has above 16
    assert fuse_operators(chain, hardware(machine), registers_per_thread=(most - 1, 17)).verdict == "fuse"
    made = fuse_operators(chain, hardware(machine), registers_per_thread=(most + 1, 17))
    assert made.verdict == "do not fuse"


def test_an_operator_that_broadcasts_all_that_it_reads_follows_none():
    made, read = Elementwise(numel=1024, kind="mul", num_inputs=2), Elementwise(numel=1024, kind="mul", num_inputs=0)
    assert not follows(made, read)


def test_operators_that_do_not_follow_are_refused():
    first, second = Elementwise(numel=100, kind="relu"), LayerNorm(rows=10, cols=11)
    assert not follows(first, second)
    with pytest.raises(UsageError, match="elementwise has no output"):
        fuse_operators([first, second], A100)
    with pytest.raises(UsageError, match="two or more operators"):
        fuse_operators([first], A100)


def test_up_to_128_registers_fusion_is_worth_it():
    # the larger one, and what the other has above 16: 72 + (72 - 16) = 128, 73 + (72 - 16) = 129
    chain = _chain("add", "relu")
    assert fuse_operators(chain, A100, registers_per_thread=(72, 72)).verdict == "fuse"
    assert fuse_operators(chain, A100, registers_per_thread=(72, 73)).verdict == "do not fuse"
