"""The kernels of a calibration: torch's by their results, Triton's under its interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from perfmodel.kernels.torch import _bandwidth


def test_probes_of_memory_do_what_their_bytes_say():
    numel = 2**16
    probes = {name: make() for name, make in _bandwidth.memory_probes("cpu", numel).items()}
    assert {name: probe.amount / numel for name, probe in probes.items()} == {
        "read": 4, "write": 4, "copy": 8, "triad": 12,
    }  # fmt: skip
    # the copy's source is what is summed, so that the sum of what was copied is the sum that is read
    total, copied = probes["read"].call(), probes["copy"].call()
    torch.testing.assert_close(copied.view(1, -1).sum(-1), total)
    assert torch.equal(probes["write"].call(), torch.full((numel,), 1.5))
    source, other = probes["copy"].call().clone(), probes["triad"].call()
    assert not torch.equal(source, other)
    assert other.data_ptr() == copied.data_ptr(), "written in place: nothing is allocated while the clock runs"


def test_products_of_integers_are_exact_on_a_cpu():
    probe = _bandwidth.special_product("int8", 64, "cpu")
    assert probe.amount == 2 * 64**3
    left, right = probe.call.args
    assert torch.equal(probe.call(), left.int() @ right.int())
    assert _bandwidth.special_unsupported("int8", "cpu") == ""
    assert "fp8" in _bandwidth.special_unsupported("fp8", "cpu")


@pytest.fixture
def interpreted():
    """Triton's own kernels, where they run on the CPU: the interpreter is chosen before triton is imported."""
    triton = pytest.importorskip("triton")
    if not triton.knobs.runtime.interpret:
        pytest.skip("triton was imported before its interpreter was chosen, or there is a GPU")
    from perfmodel.kernels.triton import _bandwidth as kernels

    return kernels


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


def test_a_stream_reads_each_element_once(interpreted):
    # 5 programs, 16 blocks each
    probe = interpreted.memory_probes(16 * 5 * interpreted._BLOCK, 5, device="cpu")["read"]
    x, out = probe.call.args[:2]
    probe.call()
    close(out.sum(), x.sum())
    assert probe.amount == 4 * x.numel()


def test_a_ring_is_read_in_the_order_of_its_blocks(interpreted):
    # a ring of 4 blocks, the largest power of two within five; program p sums blocks p, p + 3, p + 6, ... modulo 4
    block = interpreted._BLOCK
    probe = interpreted.l2_probes(5 * 4 * block, 3, device="cpu", moved=1.0)["read"]
    x, out = probe.call.args[:2]
    probe.call()
    sums = x.view(4, block).sum(1)
    close(out, torch.stack([sums[[(p + 3 * i) % 4 for i in range(16)]].sum() for p in range(3)]))


def test_every_program_goes_round_in_the_same_ring_of_the_l1(interpreted):
    probe = interpreted.l1_probes(2, device="cpu", moved=1.0)["read"]
    x, out = probe.call.args[:2]
    probe.call()
    assert 4 * x.numel() == interpreted._RING_BYTES
    close(out, (4 * x.sum()).expand(2))


def test_a_write_reaches_every_block(interpreted):
    # block i is written by program i modulo 2, with 0, 1, 2, ... plus its number
    block = interpreted._BLOCK
    probe = interpreted.memory_probes(16 * 2 * block, 2, device="cpu")["write"]
    probe.call()
    wanted = torch.arange(block).float() + torch.tensor([0.0, 1.0])[:, None]
    close(probe.call.args[0].view(16, 2, block), wanted.expand(16, 2, block))


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_a_chain_of_an_even_number_of_steps_ends_where_it_began(interpreted, dtype):
    probe = interpreted.chain_probe(dtype, 1, device="cpu", flop=1.0)
    probe.call()
    out = probe.call.args[0]
    offsets = torch.arange(interpreted._BLOCK, dtype=torch.int32)
    c = (((offsets * 1103515245 + 12345) & 0x7FFFFFFF) * (1.0 / 2147483648.0)).to(out.dtype)
    # 32 steps: shift - x and x in turn
    torch.testing.assert_close(out, c, rtol=1e-5, atol=1e-5)
    assert probe.amount == 2 * interpreted._BLOCK * 32


def test_two_numbers_in_32_bits_are_counted_as_two(interpreted):
    probe = interpreted.chain_probe("bf16", 3, device="cpu", flop=1e6)
    turns = probe.call.args[5]
    assert probe.amount == 2 * 2 * 3 * interpreted._BLOCK * 32 * turns
    assert 0.5e6 < probe.amount < 1e6
    # any fraction with the exponent of one half is a number from 0.5 to 1
    fraction, half = probe.call.args[3:5]
    largest = torch.tensor([fraction | half], dtype=torch.int32).view(torch.bfloat16)
    assert 0.98 < float(largest[0]) == float(largest[1]) < 1.0
