"""Attention: worked examples, limits and agreement with measurements, for many queries and for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.hardware import Kernels
from perfmodel.core.vocabulary import CacheState, ErrorSource
from perfmodel.hardware_catalog import hardware, load_all
from perfmodel.operators.attention import Attention
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import flash2
from perfmodel.prediction.latency.attention.decode import (
    DECODE,
    GROUP_CYCLES,
    GROUP_DOUBLING,
    SHOWN,
)
from perfmodel.prediction.latency.attention.kernels import KERNELS
from perfmodel.prediction.latency.attention.libraries import ROWS_OF, RUNS, decoding_lenders, kernel_of, lenders
from perfmodel.prediction.latency.attention.prefill import PREFILL
from perfmodel.prediction.latency.attention.rates import EIGHT_BIT, TWO_LEVEL, TWO_LEVEL_LOSS
from perfmodel.prediction.latency.attention.run import TILE_MATH
from perfmodel.prediction.latency.attention.terms import WITHOUT_WRITE
from perfmodel.prediction.latency.attention.trtllm import FIRST_KEYS_TCGEN05
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import LAUNCH
from perfmodel.records.measurements import read_measurements

#: 100 SMs at 1 GHz with 4096 FLOP a clock each, 10 TB/s, no L2
ROUND = Machine(100.0, 1e9, 409.6e12, "tensor", "bf16", 1e13, 1e13, 0.0, np.inf, matrix_instruction="wgmma")
FLASH, TRTLLM = Conditions(), Conditions(library="trtllm")
PREFILL_VALUES = {"launch": 10e-6, "math": 0.5, "block": 1000.0, "token": 10.0, "energy": 1e-12, "kv": 1.0}
DECODE_VALUES = {
    "launch": 10e-6, "eta": 0.8, "block": 1000.0, "l2": 2.0, "token": 100.0, "head": 4000.0, "key": 20.0,
    "join": 2e-6, "split": 1e-6,
}  # fmt: skip


def default(family: Family) -> Values:
    return {constant.name: constant.default for constant in family.all_constants}


def seconds(family: Family, op: Attention, machine: Machine = ROUND, conditions: Conditions = FLASH) -> float:
    return float(np.asarray(family.formula(op, machine, default(family), conditions).time_s))


def causal(**sizes: object) -> Attention:
    return Attention(dtype="bf16", causal=True, **{"head_dim": 128, "kv_write": True, **sizes})  # type: ignore[arg-type]


# ---- many queries


def test_a_prefill_by_hand() -> None:
    got = PREFILL.formula(causal(heads=100, seq_q=256), ROUND, PREFILL_VALUES, FLASH)
    # a pair of one query and one key: 4 128 / (0.5 4096) = 0.25 cycles of products, and of 1 / 16 cycle of exponentials
    # the 0.7 that FlashAttention-3 does not hide
    # pairs = 256 257 / 2 = 32,896 a head, of 100 heads, over 100 SMs at 1 GHz
    assert got.adds["math"] == pytest.approx(32896 * 0.25e-9)
    assert got.adds["softmax"] == pytest.approx(32896 * 0.7 / 16 * 1e-9)
    # 2 blocks of 128 rows a head, each of 128.5 + 64 = 192.5 keys: 2 128 192.5 = 49,280 pairs visited
    assert got.adds["tile waste"] == pytest.approx((49280 - 32896) * 0.29375e-9)
    assert got.adds["block setup"] == pytest.approx(2e-6)
    # longest block: 128 256 0.29375 + 1000 = 10,625.6 cycles; busy 14.476 + 2 us, with 0.3 of the longest 19.66368 us
    run = (19.66368**4 + 10.6256**4) ** 0.25
    assert got.adds["wave quantisation"] == pytest.approx((run - 16.476) * 1e-6)
    # Q, K, V and O of 6.5536 MB each at 8.5 TB/s
    dram = 4 * 6.5536 / 8.5
    assert got.alone["hbm"] == pytest.approx(dram * 1e-6)
    assert got.adds["contention"] == pytest.approx(((run**4 + dram**4) ** 0.25 - run) * 1e-6)
    # 256 tokens of 100 heads at 0.15 of 10 cycles = 0.384 us; K and V read and written = 26.2 MB, as much as `dram`
    assert got.adds["rope and kv write"] == pytest.approx(np.hypot(0.384, dram) * 1e-6)
    assert got.adds["launch"] == 10e-6
    assert np.asarray(got.time_s) == pytest.approx(33.18e-6, rel=1e-3)


@pytest.mark.parametrize("sizes", [{"seq_q": 256}, {"seq_q": 1, "seq_kv": 4096}], ids=["prefill", "decode"])
def test_rope_and_the_write_of_the_cache_count_only_where_they_are_asked_for(sizes: dict[str, int]) -> None:
    family = DECODE if sizes["seq_q"] == 1 else PREFILL
    values = default(family)
    whole, alone = (
        family.formula(causal(heads=100, kv_write=write, **sizes), ROUND, values, FLASH) for write in (True, False)
    )
    assert whole.adds["rope and kv write"] > 0
    assert np.all(np.asarray(alone.adds["rope and kv write"]) == 0)
    assert alone.adds["launch"] == pytest.approx(WITHOUT_WRITE * whole.adds["launch"])
    kept = [term for term in whole.adds if term not in ("rope and kv write", "launch")]
    assert [alone.adds[term] for term in kept] == [whole.adds[term] for term in kept]
    assert not pm.Attention(heads=1, seq_q=1, head_dim=64).kv_write


def test_a_long_prefill_comes_near_its_share_of_the_peak() -> None:
    op = causal(heads=64, seq_q=65536)
    got = PREFILL.formula(op, ROUND, PREFILL_VALUES, FLASH)
    # products at half of the peak, and exponentials that add 0.7 0.0625 / 0.25 = 17.5 %
    limit = op.flop() / (0.5 * 409.6e12) * 1.175
    assert 1.0 < got.time_s / limit < 1.03


def test_queries_of_a_group_share_a_block_unless_the_library_keeps_heads_apart() -> None:
    grouped, apart = causal(heads=4096, kv_heads=128, seq_q=4), causal(heads=4096, seq_q=4)
    # 32 heads of 4 queries fill one block of 128 rows; apart, each has a block whose rows are nearly all empty
    setup = [PREFILL.formula(op, ROUND, PREFILL_VALUES, FLASH).adds["block setup"] for op in (grouped, apart)]
    empty = kernel_of(apart, ROUND, "").filled * 124 / 128
    assert setup[1] == pytest.approx(32 * (1 - empty) * setup[0])
    assert not kernel_of(apart, ROUND, "trtllm").packed
    assert not kernel_of(apart, replace(ROUND, matrix_instruction="tcgen05"), "").packed


def test_what_the_layer_before_left_takes_room_in_l2() -> None:
    # Q, K, V and O of 1024 tokens of 64 heads are 67 MB, and K and V as the pass before attention reads them 34 MB
    warm = Conditions(cache=CacheState.WARM)
    for l2_bytes, slower in ((1e9, False), (85e6, True)):
        machine = replace(ROUND, l2_bytes=l2_bytes)
        alone, whole = (
            PREFILL.formula(causal(heads=64, seq_q=1024, batch=1, kv_write=write), machine, PREFILL_VALUES, warm)
            for write in (False, True)
        )
        assert (np.asarray(whole.alone["hbm"]) > 1.05 * np.asarray(alone.alone["hbm"])) == slower


def test_a_window_costs_what_it_lets_see() -> None:
    full, window = (seconds(PREFILL, causal(heads=100, seq_q=32768, window=w)) for w in (0, 1024))
    # a block sees 1024 + 128 keys of on average 16,384 + 64; the tokens' own pass stays
    assert full / window > 8
    assert seconds(PREFILL, causal(heads=100, seq_q=512, window=512)) == seconds(PREFILL, causal(heads=100, seq_q=512))


def test_a_chunk_that_ends_a_long_sequence_uses_all_sms() -> None:
    # 8 blocks on 100 SMs: without splitting the keys one of 131,072 keys would take 128 131072 0.23 / 1 GHz = 3.8 ms
    chunk = causal(heads=8, seq_q=128, seq_kv=131072)
    assert seconds(PREFILL, chunk) < 0.6e-3
    whole, parts = causal(heads=64, seq_q=8192), [causal(heads=64, seq_q=2048, seq_kv=2048 * i) for i in (1, 2, 3, 4)]
    assert seconds(PREFILL, whole) == pytest.approx(sum(seconds(PREFILL, part) for part in parts), rel=0.1)


def test_split_keys_give_every_sm_the_same_share() -> None:
    # 8 blocks on 100 SMs: 12.5 parts each, and 8 12.5 = 100, so that the longest block is as long as the busiest SM
    op = causal(heads=8, seq_q=128, seq_kv=131072)
    got = PREFILL.formula(op, ROUND, PREFILL_VALUES, FLASH)
    pair = 4 * 128 / (0.5 * 4096) + 0.7 / 16
    busy = 8 * (128 * 131072 * pair + 1000) / 100
    longest = 128 * 131072 * pair / 12.5 + 1000
    run = ((busy + 0.3 * longest) ** 4 + longest**4) ** 0.25
    # joined in 2 us, and 11.5 times 8 B for each of 8 128 128 outputs
    joined = 2e-6 + 11.5 * 8 * 8 * 128 * 128 / ROUND.bandwidth_bytes_per_s
    assert got.alone["math"] == pytest.approx(run * 1e-9 + joined)
    # a single tile of keys cannot be split: one block of 128 x 128 pairs, whatever the idle SMs
    short = PREFILL.formula(causal(heads=1, seq_q=128), ROUND, PREFILL_VALUES, FLASH)
    alone = 128 * 128 * pair + 1000
    assert short.alone["math"] == pytest.approx((((0.01 + 0.3) * alone) ** 4 + alone**4) ** 0.25 * 1e-9)


def test_few_long_prompts_split_their_keys_where_the_kernel_does() -> None:
    few = causal(heads=2, seq_q=2048)
    whole, split = (Conditions(library=library) for library in ("vllm/triton", "sglang/fa3"))
    # 32 blocks of 2048 keys, 16 steps: in up to 4 parts over 100 SMs
    assert seconds(PREFILL, few, conditions=split) < 0.8 * seconds(PREFILL, few, conditions=whole)
    # nothing jumps where the blocks fill the SMs, or where keys become enough for another part
    heads = np.arange(1.0, 40.0)
    times = PREFILL.formula(causal(heads=heads, kv_heads=heads, seq_q=2048), ROUND, PREFILL_VALUES, split).time_s
    assert np.all(np.abs(np.diff(np.log(times))) < 0.4)


def test_the_power_limit_takes_hold_in_long_calls() -> None:
    hot = replace(ROUND, tdp_w=250.0)
    short, long = causal(heads=16, seq_q=2048), causal(heads=64, seq_q=65536)
    slower = [seconds(PREFILL, op, hot) / seconds(PREFILL, op, ROUND) for op in (short, long)]
    assert 1.0 < slower[0] < 1.1 < slower[1]
    sustained = Conditions(load="sustained")
    assert seconds(PREFILL, short, hot, sustained) > 1.1 * seconds(PREFILL, short, hot)


def test_heads_whose_sums_fill_the_registers_wait_for_their_operands() -> None:
    """An SM reads 36 B a clock from L2, and from shared memory 128 B, whatever its tensor engine could compute."""
    op = causal(heads=64, seq_q=16384, head_dim=512, kv_write=False)
    cycles = 100.0 * 1e9

    def flop_per_clock(library: str, instruction: str) -> float:
        machine = replace(ROUND, matrix_instruction=instruction, peak_flop_per_s=4 * ROUND.peak_flop_per_s)
        values = {**PREFILL_VALUES, "math": 1.0, "energy": 1e-15}
        math = PREFILL.formula(op, machine, values, Conditions(library=library)).adds["math"]
        return float(np.asarray(op.flop() / (math * cycles)))

    # 32 rows and 128 keys of c columns: 2 128 c + 32 c elements of 2 B, sums of 2 32 c 4 B, for 4 32 128 c FLOP
    moved = (2 * 128 + 32) * 2 + 2 * 32 * 4
    for instruction in ("mma.sync", "wgmma", "tcgen05"):
        assert flop_per_clock("efficient", instruction) == pytest.approx(36.0 * 4 * 32 * 128 / moved)
    # m16n8k16: 2 16 8 16 FLOP from 16 16 + 8 16 elements of 2 B
    assert flop_per_clock("triton", "mma.sync") == pytest.approx(128.0 * 2 * 16 * 8 * 16 / ((256 + 128) * 2))
    assert flop_per_clock("fa3", "wgmma") == pytest.approx(4 * 4096)


@pytest.mark.parametrize("library", ["", "sglang", "torch", "fa3", "triton"])
@pytest.mark.parametrize("queries", [1, 4096])
def test_heads_above_those_of_all_tables_are_less_sure(library: str, queries: int) -> None:
    def found(head_dim: int) -> pm.Prediction:
        op = pm.Attention(heads=16, seq_q=queries, seq_kv=32768, head_dim=head_dim, dtype="bf16")
        return pm.predict(op, "h100", library=library)

    usual, large = found(256), found(512)
    widths = [float(p.predicted_time_high_s / p.predicted_time_low_s) for p in (usual, large)]
    assert widths[1] > 1.3 * widths[0]
    assert ErrorSource.EXTRAPOLATION in large.uncertainty.variances(large.regime)
    assert ErrorSource.EXTRAPOLATION not in usual.uncertainty.variances(usual.regime)


def test_vector_lanes_compute_no_rows_and_keys_that_are_not_there() -> None:
    """A tile of 64 rows is the tensor engine's; on a T4 fp64 runs on lanes, at 1/32 of the rate of fp32."""
    one = pm.Attention(batch=16, heads=32, kv_heads=8, seq_q=1, seq_kv=1, head_dim=128, dtype="fp64")
    for library in ("trtllm", ""):
        times = [pm.predict(x, "t4", library=library).predicted_time_s for x in (one, one.changed(seq_kv=2))]
        assert 1.0 / 5.0 < times[1] / times[0] < 5.0
    machine = hardware("t4")
    prompt = one.changed(seq_q=16, seq_kv=16)
    bound = prompt.flop() / machine.native_peak("fp64").flop_per_s
    assert bound < pm.predict(prompt, machine).predicted_time_s < 5.0 * bound


@pytest.mark.parametrize("machine", ["p100-pcie-16gb", "t4", "v100-sxm2-32gb"])
def test_the_memory_efficient_kernel_computes_whole_tiles_on_lanes_too(machine: str) -> None:
    """One query of a cache is a tile of 64 in fp32, without a tensor engine as with one."""
    one = pm.Attention(batch=8, heads=32, kv_heads=8, seq_q=1, seq_kv=8192, head_dim=128, dtype="fp32")
    times = [pm.predict(op, machine, library="torch").predicted_time_s for op in (one, one.changed(seq_q=64))]
    assert times[0] > 64.0 * one.flop() / hardware(machine).native_peak("fp32").flop_per_s
    assert times[0] == pytest.approx(times[1], rel=0.1)


@pytest.mark.parametrize("queries", [1, 64, 4096])
def test_products_without_a_tensor_engine_are_summed_at_the_rate_of_fp32(queries: int) -> None:
    """A P100 has 18.7 TFLOP/s of packed multiply-adds, which add in fp16, and 9.3 of fp32."""
    machine = hardware("p100-pcie-16gb")
    op = pm.Attention(batch=64, heads=32, kv_heads=1, seq_q=queries, seq_kv=8192, head_dim=128, dtype="fp16")
    peak = machine.find_peak("fp32", "vector")
    assert peak is not None
    for library in ("", "torch", "sglang"):
        assert op.flop() / pm.predict(op, machine, library=library).predicted_time_s < peak.flop_per_s


def test_energy_beside_the_products_goes_with_their_columns() -> None:
    """Of as many FLOP, heads of 64 columns have twice the scores of those of 128 and take no more energy."""
    hot, sustained = replace(ROUND, tdp_w=250.0), Conditions(load="sustained")
    assert kernel_of(causal(heads=1, seq_q=1), hot, "").beside > 0.5
    wide, narrow = causal(heads=64, seq_q=16384), causal(heads=128, seq_q=16384, head_dim=64)
    limited = [seconds(PREFILL, op, hot, sustained) for op in (wide, narrow)]
    assert limited[0] > 1.5 * seconds(PREFILL, wide, ROUND, sustained)
    assert limited[1] == pytest.approx(limited[0], rel=0.05)


def test_eight_bit_products_run_at_the_rate_that_the_generation_has() -> None:
    sixteen = causal(heads=64, seq_q=16384)
    mixed = Attention(dtype="bf16", kv_dtype="fp8", heads=64, seq_q=16384, head_dim=128, causal=True)

    def math(op: Attention, instruction: str) -> float:
        machine = replace(ROUND, matrix_instruction=instruction)
        return float(PREFILL.formula(op, machine, PREFILL_VALUES, FLASH).adds["math"])

    assert math(mixed, "wgmma") == pytest.approx(math(sixteen, "wgmma") / (2 * EIGHT_BIT))
    assert math(mixed, "tcgen05") < math(sixteen, "tcgen05")


@pytest.mark.parametrize(("head_dim", "loss"), [(64, 0.0), (128, 1 / 3), (256, 1.0)])
def test_sums_in_two_levels_cost_more_for_larger_heads(head_dim: int, loss: float) -> None:
    mixed = Attention(dtype="bf16", kv_dtype="fp8", heads=64, seq_q=16384, head_dim=head_dim, causal=True)
    got, sixteen = (
        PREFILL.formula(op, ROUND, PREFILL_VALUES, Conditions(library="vllm")).adds["math"]
        for op in (mixed, replace(mixed, kv_dtype="bf16"))
    )
    assert got == pytest.approx(sixteen / TWO_LEVEL * (1 + TWO_LEVEL_LOSS * loss))


def test_vllm_on_ada_has_blocks_of_64_rows_that_heads_do_not_share_and_keys_that_are_not_split() -> None:
    ada = replace(ROUND, matrix_instruction="mma.sync")
    one, chunk = causal(heads=8, seq_q=16, seq_kv=8192), causal(heads=8, kv_heads=1, seq_q=64, seq_kv=8192)
    times = [seconds(DECODE, op, ada, Conditions(library="vllm")) for op in (one, chunk)]
    assert times[1] == pytest.approx(times[0], rel=0.05)
    assert seconds(DECODE, one, ada, Conditions(library="sglang")) < 0.5 * times[0]


# ---- one query


def test_a_decode_by_hand() -> None:
    op = causal(batch=10, heads=40, kv_heads=10, seq_q=1, seq_kv=1024)
    got = DECODE.formula(op, replace(ROUND, bandwidth_bytes_per_s=1e12), DECODE_VALUES, FLASH)
    # K and V: 2 10 10 1024 128 2 B = 52.43 MB; Q and O: 2 10 40 128 2 B = 0.2048 MB; at 0.8 TB/s
    dram = (52.4288 + 0.2048) / 0.8
    assert got.adds["hbm"] == pytest.approx(dram * 1e-6)
    # 100 blocks on 100 SMs, not split; a key is 128 4 128 / (0.8 4096) = 20 cycles; the block 1000 and 1024 of them
    assert TILE_MATH == 0.8
    busy = 1.0 + 1024 * 0.02
    assert got.alone["math"] == pytest.approx(busy * 1e-6)
    assert got.adds["contention"] == pytest.approx(((dram**4 + busy**4) ** 0.25 - dram) * 1e-6)
    # 400 query heads of 100 cycles over 100 SMs
    assert got.adds["rope and kv write"] == pytest.approx(0.4e-6)
    assert got.adds["split-k"] == 0
    assert got.adds["launch"] == 10e-6
    assert np.asarray(got.time_s) == pytest.approx(76.39e-6, rel=1e-3)


def test_few_sequences_split_their_keys_over_the_sms() -> None:
    op = causal(batch=1, heads=8, kv_heads=2, seq_q=1, seq_kv=65536)
    got = DECODE.formula(op, ROUND, DECODE_VALUES, FLASH)
    # 2 blocks on 100 SMs: 48 parts each, the number next to 50, joined in 2 us and log2 48 steps of 1 us
    assert got.adds["split-k"] == pytest.approx((2 + np.log2(48)) * 1e-6)
    # a part has 65536 / 48 keys of 20 cycles, and of the block's 3560 cycles 0.4 do not show
    busy = 96 * (1000 + 20 * 65536 / 48) / 100
    shown = 20 * (65536 / 48 - 128) + SHOWN * 3560
    assert got.alone["math"] == pytest.approx(max(busy, shown) * 1e-9)


def test_a_long_decode_streams_the_cache() -> None:
    op = causal(batch=256, heads=64, kv_heads=8, seq_q=1, seq_kv=16384)
    slow = replace(ROUND, bandwidth_bytes_per_s=1e12)
    stream = op.work().bytes / 0.8e12
    assert DECODE.formula(op, slow, DECODE_VALUES, FLASH).time_s == pytest.approx(stream, rel=0.01)


def test_a_cache_that_fits_l2_streams_at_its_speed_when_used_again() -> None:
    op = causal(batch=10, heads=40, kv_heads=10, seq_q=1, seq_kv=1024)
    machine = replace(ROUND, l2_bytes=1e8)
    cold, warm = (
        DECODE.formula(op, machine, DECODE_VALUES, Conditions(cache=c)).alone["hbm"] for c in ("cold", "warm")
    )
    assert warm == pytest.approx(cold / 2)


def test_a_kernel_of_single_heads_pays_for_every_head_of_the_group() -> None:
    blackwell = replace(ROUND, matrix_instruction="tcgen05")
    one, eight = (
        DECODE.formula(
            causal(batch=512, heads=8 * g, kv_heads=8, seq_q=1, seq_kv=4096), blackwell, DECODE_VALUES, TRTLLM
        ).alone["math"]
        for g in (1, 8)
    )
    assert eight == pytest.approx(8 * one, rel=0.1)
    # on Hopper one block serves a group of up to 32
    two, many = (
        DECODE.formula(causal(batch=64, heads=8 * g, kv_heads=8, seq_q=1, seq_kv=2), ROUND, DECODE_VALUES, TRTLLM)
        for g in (2, 16)
    )
    assert two.alone["math"] == many.alone["math"]


def test_blocks_of_groups_run_in_whole_waves() -> None:
    def waves(batch: int, keys: int) -> float:
        op = causal(batch=batch, heads=32, kv_heads=4, seq_q=1, seq_kv=keys)
        return float(DECODE.formula(op, ROUND, DECODE_VALUES, TRTLLM).alone["math"]) / 1e-6

    # 100 blocks of 1000 cycles at once; keys are split from 256 on, while there are at most 8 waves
    assert [waves(batch, 128) for batch in (10, 25, 26, 50, 51)] == pytest.approx([1, 1, 2, 2, 3])
    assert [waves(batch, 256) for batch in (10, 25, 50, 100)] == pytest.approx([1, 2, 4, 8])


def test_blackwells_kernels_serve_eight_heads_of_a_group_at_once() -> None:
    blackwell = replace(ROUND, matrix_instruction="tcgen05")

    def math(group: int, batch: int) -> float:
        op = causal(batch=batch, heads=group, kv_heads=1, seq_q=1, seq_kv=2)
        return float(DECODE.formula(op, blackwell, DECODE_VALUES, FLASH).alone["math"]) / 1e-9

    # a block is 1000 cycles and 128 keys of 20; for a group of 32, twice doubled, 1000 (1 + 2 GROUP_DOUBLING)
    assert math(8, 1000) == pytest.approx(10 * 3560)
    assert math(32, 1000) == pytest.approx(10 * (2560 + 1000 * (1 + 2 * GROUP_DOUBLING)))
    assert math(32, 1) == pytest.approx(SHOWN * (2560 + 1000 * (1 + 2 * GROUP_DOUBLING)) + 24 * GROUP_CYCLES)


def test_flashattention_2_gives_heads_with_a_window_blocks_of_their_own() -> None:
    ampere = replace(ROUND, matrix_instruction="mma.sync")
    sizes = {"heads": 64, "seq_q": 1, "seq_kv": 1024}
    for batch in (1, 64):  # blocks that leave SMs idle, whose keys are split, and blocks for all of them
        windowed, alone, together = (
            DECODE.formula(causal(batch=batch, **sizes, **more), ampere, DECODE_VALUES, Conditions(library="fa2"))
            for more in ({"kv_heads": 8, "window": 1024}, {"kv_heads": 64}, {"kv_heads": 8})
        )
        assert windowed.alone["math"] == pytest.approx(alone.alone["math"])
        assert windowed.alone["math"] > together.alone["math"]


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_flashattention_2_packs_the_heads_of_a_group_for_one_query_alone(batch: int) -> None:
    """15 sequences of 128 heads, 16 of them of keys, and 1648 keys take an H200 55 us with one query, 380 with two."""
    sizes = {"batch": batch, "seq_kv": 4096, "head_dim": 128, "dtype": "bf16"}
    one, two, alone = (
        pm.predict(pm.Attention(seq_q=n, heads=64, kv_heads=kv, **sizes), "h200", library="torch/fa2").predicted_time_s
        for n, kv in ((1, 8), (2, 8), (2, 64))
    )
    assert two > one
    # two queries of a group compute what those of 64 key heads do, which only read more
    assert two <= alone * 1.001


def test_the_tensor_of_a_mask_takes_kernels_of_its_own_and_cycles_of_every_score() -> None:
    """8 heads of 96 columns, 2816 queries and keys, take an H200 58 us, and 287 with a key more, which need a mask."""
    sizes = {"heads": 8, "seq_q": 2816, "head_dim": 96, "causal": True, "dtype": "bf16"}
    square, aligned, off = (
        pm.predict(pm.Attention(seq_kv=keys, **sizes), "h200", library="torch").estimate for keys in (2816, 2824, 2817)
    )
    assert square.time_s < aligned.time_s < off.time_s
    assert pytest.approx(square.time_s, rel=0.2) == 58e-6
    assert pytest.approx(off.time_s, rel=0.2) == 287e-6
    assert square.terms.adds["mask"] == 0.0
    # a kernel that reads a byte of each score and writes two, and two that fill a value
    assert aligned.terms.adds["mask"] > 2e-6 + 3 * 2816 * 2824 / 4.8e12


@pytest.mark.parametrize("library", ["torch/cudnn", "torch/fa2"])
def test_gradients_of_keys_are_added_up_over_the_heads_of_a_group(library: str) -> None:
    sizes = {"batch": 3, "heads": 128, "seq_q": 256, "head_dim": 128, "dtype": "fp16", "backward": True}
    grouped, alone = (
        pm.predict(pm.Attention(kv_heads=heads, **sizes), "h200", library=library).estimate for heads in (32, 128)
    )
    # two kernels more, and gradients of 128 heads of keys and values written and read in 16 bits at 4.8 TB/s at most
    moved_s = 2 * 2 * 3 * 128 * 256 * 128 * 2 / 4.8e12
    assert grouped.terms.adds["launch"] - alone.terms.adds["launch"] == pytest.approx(5e-6)
    assert grouped.terms.adds["hbm"] - alone.terms.adds["hbm"] > moved_s
    # 175 us by cuDNN, 308 by FlashAttention-2 (`examples/records`)
    assert grouped.time_s == pytest.approx(175e-6 if library == "torch/cudnn" else 308e-6, rel=0.25)


def test_a_window_beyond_the_sequence_masks_nothing() -> None:
    sizes = {"heads": 8, "seq_q": 512, "head_dim": 128, "causal": True, "dtype": "bf16"}
    whole, wide, narrow = (
        pm.predict(pm.Attention(window=window, **sizes), "h200", library="torch").predicted_time_s
        for window in (0, 512, 511)
    )
    assert wide == pytest.approx(whole)
    assert narrow > whole


@pytest.mark.parametrize(("kernel", "columns"), [("cudnn", {72: 128, 80: 128, 96: 128, 160: 192}), ("fa2", {80: 96})])
def test_heads_are_padded_to_the_next_size_of_the_kernel(kernel: str, columns: dict[int, int]) -> None:
    padded = KERNELS[kernel][0].padded
    assert {size: padded(size) for size in columns} == columns
    assert padded(np.array([64.0, *columns])).tolist() == [64.0, *columns.values()]


def test_flashattention_2_splits_keys_where_blocks_leave_places() -> None:
    # 2 blocks on each of 132 SMs: 0.8 of 264 is 211.2
    sizes = {"heads": 8, "seq_q": 64, "seq_kv": 8192, "head_dim": 128, "dtype": "bf16"}
    machine = replace(ROUND, sm_count=132.0)
    calls = [pm.Attention(batch=batch, **sizes) for batch in (1, 26, 27)]
    assert [bool(flash2.whole(call, machine)) for call in calls] == [False, False, True]
    assert [flash2.parts(call, machine) for call in calls] == pytest.approx([264 / 8, 264 / 208, 1.0])
    # of one block of keys there are no parts
    assert flash2.parts(pm.Attention(heads=1, seq_q=16, seq_kv=64, head_dim=64, dtype="bf16"), machine) == 1.0


@pytest.mark.parametrize("seq_kv", [128, 1024, 65536])
def test_an_8_bit_cache_is_no_slower_on_hopper(seq_kv: int) -> None:
    """Half of the bytes stream, by a kernel with fewer launches and shorter blocks."""
    wide, narrow = (
        DECODE.formula(
            replace(causal(batch=8, heads=64, kv_heads=8, seq_q=1, seq_kv=seq_kv), kv_dtype=dtype),
            ROUND, DECODE_VALUES, TRTLLM,
        )
        for dtype in ("bf16", "fp8")
    )  # fmt: skip
    assert narrow.time_s < wide.time_s
    assert narrow.adds["launch"] <= wide.adds["launch"]


def test_a_kernel_of_single_heads_splits_keys_over_the_sms_of_one_wave() -> None:
    # 10 heads of 128 columns on 100 SMs: 10 parts each, of 100,000 of the 1e6 keys, 20 cycles a key from the 257th on
    op = causal(batch=1, heads=10, kv_heads=10, seq_q=1, seq_kv=10**6)
    got = DECODE.formula(op, replace(ROUND, matrix_instruction="tcgen05"), DECODE_VALUES, TRTLLM)
    assert got.alone["math"] == pytest.approx((4000 * (1 + FIRST_KEYS_TCGEN05) + 20 * (1e5 - 256)) * 1e-9)
    assert got.adds["split-k"] == pytest.approx((2 + np.log2(10)) * 1e-6)


# ---- both

FAMILIES = pytest.mark.parametrize("family", [PREFILL, DECODE], ids=lambda family: family.name)


@FAMILIES
@given(
    batch=st.integers(1, 512),
    kv_heads=st.sampled_from([1, 2, 8]),
    group=st.sampled_from([1, 4, 8, 48]),
    seq_q=st.integers(1, 5000),
    more=st.integers(0, 5000),
    window=st.sampled_from([0, 128, 1024]),
    library=st.sampled_from(["", "trtllm", "vllm", "torch", *KERNELS]),
    kv_dtype=st.sampled_from(["bf16", "fp8"]),
    instruction=st.sampled_from(["wgmma", "tcgen05", "mma.sync"]),
    widens=st.booleans(),
)
def test_scalar_and_array_agree_and_no_term_is_negative(
    family: Family,
    batch: int,
    kv_heads: int,
    group: int,
    seq_q: int,
    more: int,
    window: int,
    library: str,
    kv_dtype: str,
    instruction: str,
    widens: bool,
) -> None:
    kernels = Kernels(widens_fp8_keys=widens)
    machine = replace(ROUND, matrix_instruction=instruction, kernels=kernels, l2_bytes=5e7)
    sizes = {"batch": batch, "kv_heads": kv_heads, "heads": kv_heads * group, "seq_q": seq_q, "seq_kv": seq_q + more}
    conditions = Conditions(cache="warm", library=library)
    sizes = {**sizes, "head_dim": 128}
    one = family.formula(causal(**sizes, window=window, kv_dtype=kv_dtype), machine, default(family), conditions)
    arrays = {n: np.array([float(size), (1.0 if n == "head_dim" else 2.0) * size]) for n, size in sizes.items()}
    two = family.formula(causal(**arrays, window=window, kv_dtype=kv_dtype), machine, default(family), conditions)
    assert np.asarray(two.time_s)[0] == pytest.approx(float(np.asarray(one.time_s)), rel=1e-12)
    for value in (*two.adds.values(), *one.adds.values()):
        assert np.all(np.asarray(value) >= -1e-15)
    assert np.all(np.isfinite(two.time_s))


@FAMILIES
@given(
    batch=st.integers(1, 256),
    heads=st.sampled_from([1, 8, 64]),
    shorter=st.integers(1, 20000),
    longer=st.integers(1, 20000),
)
def test_more_keys_take_no_less_time(family: Family, batch: int, heads: int, shorter: int, longer: int) -> None:
    few, many = sorted((shorter, longer))
    queries = 1 if family is DECODE else min(few, 512)
    low, high = (
        seconds(family, causal(batch=batch, heads=heads, seq_q=queries, seq_kv=n)) for n in (max(few, queries), many)
    )
    assert low <= high * (1 + 1e-9)


#: machines and libraries of the property tests: all kernels but TensorRT-LLM's, whose waves and choices step both ways
MACHINES = ("a100-sxm4-80gb", "h100-sxm5-80gb", "l40s", "b200-sxm-180gb", "rtx-4090")
#: from this size on one more is a neighbour; two sequences are twice the cache of one, and may no longer fit L2
NEIGHBOURS = 16
SMOOTH = ("", "sglang", "torch", "fa2", "fa3", "flashinfer", "triton", "cudnn")


def running(libraries: Iterable[str]) -> list[tuple[str, str]]:
    """Return machines with the libraries that run on them: FlashAttention-3 has no kernels for Blackwell."""
    return [(one, name) for one in MACHINES for name in libraries if (one, name) != ("b200-sxm-180gb", "fa3")]


def random_decodes(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return sizes of decodes of 1 to 512 sequences of 2 to 131,072 keys."""
    rng = np.random.default_rng(seed)
    kv_heads = np.exp2(rng.integers(0, 6, rows))
    return {
        "batch": np.floor(np.exp2(rng.uniform(0, 9, rows))),
        "kv_heads": kv_heads,
        "heads": kv_heads * rng.choice([1.0, 2, 3, 4, 5, 8, 12, 16, 32], rows),
        "seq_kv": 2 + np.floor(np.exp2(rng.uniform(0, 17, rows))),
        "head_dim": rng.choice([64.0, 128, 192, 256], rows),
        "window": rng.choice([0.0, 0, 0, 128, 1024], rows),
    }


def predicted(
    machine: str, library: str, sizes: dict[str, np.ndarray], queries: float = 1.0, *, writes: bool = False
) -> np.ndarray:
    op = Attention(dtype="bf16", causal=True, seq_q=queries, kv_write=writes, **sizes)  # type: ignore[arg-type]
    return np.asarray(pm.predict(op, machine, library=library, cache="warm").predicted_time_s)


@pytest.mark.parametrize(("machine", "library"), running([*SMOOTH, "vllm", "trtllm"]))
def test_a_decode_is_never_slower_than_the_same_call_with_two_queries(machine: str, library: str) -> None:
    sizes = random_decodes(300, 1)
    # two queries with a window need a mask in PyTorch, and so another kernel
    other = (library == "torch") & (sizes["window"] > 0)
    slower = predicted(machine, library, sizes) > predicted(machine, library, sizes, 2.0) * (1 + 1e-9)
    assert not np.any(slower & ~other)


@pytest.mark.parametrize(("machine", "library"), running(SMOOTH))
def test_a_decode_takes_no_less_time_for_a_larger_size_and_no_jump(machine: str, library: str) -> None:
    sizes = random_decodes(300, 2)
    here = predicted(machine, library, sizes)
    for name in ("batch", "seq_kv"):
        ratio = predicted(machine, library, {**sizes, name: sizes[name] + 1}) / here
        assert np.all(ratio >= 1 - 1e-9), name
        assert np.all(ratio[sizes[name] >= NEIGHBOURS] < 3), name
    # more heads of a group read no more keys: at most their queries and outputs
    more = {**sizes, "heads": sizes["heads"] * 2}
    assert np.all(predicted(machine, library, more) >= here * (1 - 1e-9))
    more["kv_heads"] = sizes["kv_heads"] * 2
    assert np.all(predicted(machine, library, more) >= here * (1 - 1e-9))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("library", ["vllm", "trtllm"])
def test_a_sequence_or_key_more_makes_no_jump(machine: str, library: str) -> None:
    sizes = random_decodes(300, 3)
    here = predicted(machine, library, sizes)
    for name in ("batch", "seq_kv"):
        ratio = predicted(machine, library, {**sizes, name: sizes[name] + 1}) / here
        assert np.all(ratio > 1 / 3), name
        assert np.all(ratio[sizes[name] >= NEIGHBOURS] < 3), name


@pytest.mark.parametrize(("machine", "library"), running([*SMOOTH, "vllm", "trtllm"]))
def test_the_first_key_of_a_cache_makes_no_jump(machine: str, library: str) -> None:
    """Attention alone has one query, whether its only key is a prompt's or a cache's."""
    sizes = {**random_decodes(300, 5), "window": 0.0}
    one, two, three = (predicted(machine, library, {**sizes, "seq_kv": n + 0.0 * sizes["seq_kv"]}) for n in (1.0, 2, 3))
    for fewer, more in itertools.pairwise((one, two, three)):
        assert np.all(more >= fewer * (1 - 1e-9))
        assert np.all(more < 3.0 * fewer)


def test_a_serving_librarys_prompt_of_one_token_has_the_kernels_of_prompts() -> None:
    shape = {"batch": 64, "heads": 32, "seq_q": 1, "seq_kv": 1, "head_dim": 128, "causal": True, "dtype": "bf16"}
    for library, family in (("sglang", "attention_prefill"), ("vllm", "attention_decode")):
        assert pm.predict(pm.Attention(**shape, kv_write=True), "b200", library=library).family == family
        assert pm.predict(pm.Attention(**shape), "b200", library=library).family == "attention_decode"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("library", ["", "sglang", "trtllm", "torch"])
def test_a_prompt_of_a_few_tokens_takes_no_less_than_one_of_a_single_token(machine: str, library: str) -> None:
    """Of serving libraries, whose calls write the cache; attention alone has a kernel of its own for one query."""
    sizes = random_decodes(300, 4)
    times = [
        predicted(machine, library, {**sizes, "seq_kv": n + 0.0 * sizes["seq_kv"]}, n, writes=library != "torch")
        for n in (1.0, 2, 4, 8, 9, 16)[library == "torch" :]
    ]
    for fewer, more in itertools.pairwise(times):
        assert np.all(more >= 0.9 * fewer)
        assert np.all(more < 4.0 * fewer)  # heads of a group share blocks until those are full


@pytest.mark.parametrize(("machine", "library"), running([*SMOOTH, "vllm", "trtllm"]))
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
@pytest.mark.waiting
def test_a_query_more_makes_no_jump(machine: str, library: str, dtype: str) -> None:
    """The kernels of a few queries hand over to those of prompts, which 129 queries take, by and by."""
    spec = hardware(machine)
    if spec.find_peak(dtype, "tensor") is None or (dtype == "fp8" and library in ("torch", "fa2")):
        return
    if dtype == "fp8" and library in ("fa3", "cudnn") and spec.matrix_instruction == "mma.sync":
        return
    sizes = {**random_decodes(300, 7), "window": 0.0}
    sizes["seq_kv"] = sizes["seq_kv"] + 512.0
    for queries in (2.0, 7.0, 8.0, 9.0, 16.0, 63.0, 64.0, 65.0, 100.0, 127.0, 128.0, 129.0):
        fewer, more = (
            np.asarray(
                pm.predict(
                    Attention(dtype=dtype, causal=True, seq_q=n, **sizes),
                    machine,
                    library=library,  # type: ignore[arg-type]
                ).predicted_time_s
            )
            for n in (queries, queries + 1.0)
        )
        assert np.all(more < 3.0 * fewer), queries
        assert np.all(more > fewer / 3.0), queries


def test_torch_with_cudnn_does_not_split_the_keys_of_several_queries() -> None:
    """68 queries of 7961 keys take an H200 327 us, one 17 (`examples/records`); FlashAttention-2 splits them."""
    sizes = {"heads": 32, "kv_heads": 8, "seq_kv": 8192, "head_dim": 128, "dtype": "bf16", "causal": True}
    few = pm.Attention(seq_q=np.array([1.0, 2.0, 64.0]), **sizes)
    now, before = (pm.predict(few, "h100", library=f"torch-{v}").predicted_time_s for v in ("2.11", "2.8"))
    assert now[1] > 5.0 * now[0]
    assert now[2] == pytest.approx(now[1], rel=0.1)
    assert before[2] < 3.0 * before[0]


def random_prompts(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return sizes of prompts of 128 to 16,384 tokens."""
    rng = np.random.default_rng(seed)
    tokens = np.floor(np.exp2(rng.uniform(7, 14, rows)))
    heads = 8.0 * np.exp2(rng.integers(0, 4, rows))
    batch = np.floor(np.exp2(rng.uniform(0, 6, rows)))
    return {"batch": batch, "heads": heads, "seq_q": tokens, "head_dim": rng.choice([64.0, 128], rows)}


@pytest.mark.parametrize(("machine", "library"), running(["", "sglang", "fa2", "fa3", "triton", "cudnn", "vllm"]))
def test_keys_that_no_query_sees_make_no_call_slower(machine: str, library: str) -> None:
    sizes = random_prompts(400, 6)

    def time(**options: Any) -> np.ndarray:
        op = Attention(dtype="bf16", **sizes, **options)
        return np.asarray(pm.predict(op, machine, library=library).predicted_time_s)

    # The residual surfaces are of causal calls alone, and the widest step of one is 20 %.
    causal = time(causal=True)
    assert np.all(causal <= 1.25 * time())
    for window in (0.98 * sizes["seq_q"], 0.5 * sizes["seq_q"], 128.0):
        assert np.all(time(causal=True, window=np.floor(window)) <= 1.08 * causal), window


@pytest.mark.parametrize(("machine", "library"), running([*SMOOTH, "vllm", "trtllm"]))
def test_a_block_of_queries_multiplies_no_faster_than_the_peak(machine: str, library: str) -> None:
    sizes = {**random_decodes(300, 5), "window": 0.0}
    sizes["seq_kv"] = sizes["seq_kv"] + 512.0
    op = Attention(dtype="bf16", causal=True, seq_q=128.0, **sizes)  # type: ignore[arg-type]
    found = pm.predict(op, machine, library=library)
    assert "bound" not in found.predicted_terms_s


# ---- kernels by name


def test_every_kernel_that_a_library_runs_is_known() -> None:
    assert {kernel for *_, kernel in RUNS} <= set(KERNELS)
    assert set(ROWS_OF) <= set(KERNELS)
    assert RUNS[-1][:3] == ("", "", None)


@pytest.mark.parametrize(
    ("library", "instruction", "kv_dtype", "kernel"),
    [
        ("torch", "mma.sync", "bf16", "fa2"),
        ("torch", "wgmma", "bf16", "cudnn"),
        ("torch/fa2", "wgmma", "bf16", "fa2"),
        ("torch/efficient", "wgmma", "bf16", "efficient"),
        ("sglang", "wgmma", "fp8", "fa3"),
        ("sglang/triton", "wgmma", "bf16", "triton"),
        ("sglang", "tcgen05", "bf16", "trtllm_gen"),
        ("vllm", "mma.sync", "bf16", "fa2"),
        ("vllm", "mma.sync", "fp8", "flashinfer"),
        ("vllm", "wgmma", "bf16", "fa3"),
        ("trtllm", "wgmma", "bf16", "trtllm"),
        ("flashinfer", "wgmma", "bf16", "flashinfer"),
        ("", "mma.sync", "bf16", "fa3"),
        ("nobody", "mma.sync", "bf16", "fa3"),
    ],
)
def test_a_library_runs_the_kernel_of_the_chip(library: str, instruction: str, kv_dtype: str, kernel: str) -> None:
    op = causal(heads=8, seq_q=128, kv_dtype=kv_dtype)
    assert kernel_of(op, replace(ROUND, matrix_instruction=instruction), library).name == kernel


@pytest.mark.parametrize("machine", ["a100", "h100", "b200"])
def test_torch_runs_its_memory_efficient_kernel_in_fp32(machine: str) -> None:
    """The others are for 16 bits. Three products of TF32 make one of fp32; a score takes twice the cycles."""
    wide, narrow = (pm.Attention(heads=16, seq_q=4096, head_dim=128, dtype=dtype) for dtype in ("fp32", "bf16"))
    own, named = (pm.predict(wide, machine, library=name).predicted_time_s for name in ("torch", "torch/efficient"))
    assert own == named
    assert own > 2.0 * pm.predict(narrow, machine, library="torch/efficient").predicted_time_s


def test_backends_of_torch_on_hopper_take_their_own_time() -> None:
    op = pm.Attention(batch=2, heads=32, seq_q=4096, head_dim=128, dtype="bf16", causal=True)
    times = {
        name: pm.predict(op, "h100", library=f"torch/{name}").predicted_time_s for name in ("cudnn", "fa2", "efficient")
    }
    assert pm.predict(op, "h100", library="torch").predicted_time_s == times["cudnn"]
    assert times["cudnn"] < times["fa2"] < times["efficient"]


def test_a_mask_tensor_costs_the_keys_that_it_hides() -> None:
    """is_causal of torch aligns the first query with the first key: queries of a later chunk need a mask."""
    chunk = pm.Attention(heads=32, seq_q=1024, seq_kv=4096, head_dim=128, dtype="bf16", causal=True)
    every = chunk.changed(causal=False)
    corner = chunk.changed(seq_kv=1024)
    few = chunk.changed(seq_q=np.array([1.0, 2.0, 100.0]))
    assert pm.predict(few, "h100", library="torch").family.tolist() == ["attention_decode", *["attention_prefill"] * 2]
    for name, costs in (("torch", True), ("torch/fa2", False)):
        masked, full = (pm.predict(op, "h100", library=name).predicted_time_s for op in (chunk, every))
        assert (masked > full) is costs
    assert pm.predict(corner, "h100", library="torch").predicted_time_s < (
        pm.predict(corner.changed(causal=False), "h100", library="torch").predicted_time_s
    )


@pytest.mark.parametrize(
    ("machine", "named", "library"),
    [
        ("h100-sxm5-80gb", "sglang/fa3", "sglang"),
        ("h100-sxm5-80gb", "vllm/fa3", "vllm"),
        ("l40s", "vllm/fa2", "vllm"),
        ("b200-sxm-180gb", "sglang/trtllm_gen", "sglang"),
    ],
)
def test_the_kernel_that_a_library_runs_anyway_is_the_library(machine: str, named: str, library: str) -> None:
    op = pm.Attention(heads=32, kv_heads=8, seq_q=4096, head_dim=128, dtype="bf16", causal=True)
    one, other = (pm.predict(op, machine, library=name) for name in (named, library))
    assert one.predicted_time_s == other.predicted_time_s
    assert one.predicted_time_high_s == other.predicted_time_high_s
    assert one.calibration == other.calibration == "calibrated"


def test_a_kernel_named_alone_takes_the_constants_of_its_rows_and_the_interval_of_a_stranger() -> None:
    op = pm.Attention(heads=32, kv_heads=8, seq_q=4096, head_dim=128, dtype="bf16", causal=True)
    named, library = (pm.predict(op, "h100", library=name) for name in ("fa3", "sglang"))
    assert named.predicted_time_s == library.predicted_time_s
    assert named.predicted_time_high_s > library.predicted_time_high_s
    assert named.calibration == "never seen"


def test_torch_on_a100_is_flashattention_2() -> None:
    """About 190 TFLOP/s are reported, unchecked, for a causal forward of 16k tokens with heads of 128 columns."""
    op = pm.Attention(heads=16, seq_q=16384, head_dim=128, dtype="fp16", causal=True)
    got = pm.predict(op, "a100", library="torch", cache="warm")
    assert op.flop() / got.predicted_time_s == pytest.approx(190e12, rel=0.08)


def test_flashattention_2_on_hopper_reaches_half_of_what_cudnn_does() -> None:
    """329 and 631 TFLOP/s for 24 heads of 4608 tokens: github.com/pytorch/pytorch/issues/142132."""
    op = pm.Attention(heads=24, seq_q=4608, head_dim=128, dtype="bf16")
    slow, fast = (op.flop() / pm.predict(op, "h100", library=name).predicted_time_s for name in ("fa2", "cudnn"))
    assert slow == pytest.approx(329e12, rel=0.15)
    assert fast == pytest.approx(631e12, rel=0.15)


@FAMILIES
def test_it_stays_sensible_far_outside_the_measurements(family: Family) -> None:
    small, large = causal(heads=1, seq_q=1), causal(batch=1e4, heads=128, seq_q=1e6)
    for spec in load_all():
        if spec.find_peak("fp16", "tensor") is None:
            continue
        ops = [replace(op, dtype="fp16", kv_dtype="fp16") for op in (small, large)]
        machine = Machine.of(spec, resolve_peak(ops[0], spec))
        tiny, huge = (seconds(family, op, machine) for op in ops)
        assert 1e-6 < tiny < 50e-6
        assert huge > ops[1].work().bytes / machine.bandwidth_bytes_per_s


def test_the_unfused_algorithm_is_two_products_and_a_softmax_in_turn() -> None:
    machine = hardware("a100-sxm4-80gb")
    unfused = pm.Attention(batch=2, heads=8, seq_q=2048, head_dim=64, dtype="bf16", algorithm="unfused")
    parts = (
        pm.Gemm(batch=16, m=2048, n=2048, k=64, dtype="bf16"),
        pm.Softmax(rows=16 * 2048, cols=2048, dtype="bf16"),
        pm.Gemm(batch=16, m=2048, n=64, k=2048, dtype="bf16"),
    )
    predicted = pm.predict(unfused, machine)
    assert predicted.predicted_time_s == pytest.approx(
        sum(pm.predict(part, machine).predicted_time_s for part in parts)
    )
    fused = pm.predict(pm.Attention(batch=2, heads=8, seq_q=2048, head_dim=64, dtype="bf16"), machine)
    assert predicted.predicted_time_s > 1.5 * fused.predicted_time_s


# ---- measurements


@cache
def table(path: Path) -> tuple[MeasuredCalls, ...]:
    return read_measurements(path).calls


def halves(calls: list[MeasuredCalls], rows: int) -> tuple[list[Group], list[Group]]:
    """Return groups of some rows each, of one half of the shapes and of the other."""
    sides: tuple[list[Group], list[Group]] = ([], [])
    for call in calls:
        shapes = np.stack([np.broadcast_to(v, len(call)) for v in call.op.params().values() if np.ndim(v)], axis=1)
        half = np.array([hash(tuple(shape)) % 1009 < 505 for shape in shapes.tolist()])
        spec = hardware(call.hardware)
        machine = Machine.of(spec, resolve_peak(call.op, spec))
        for side, chosen in zip(sides, (half, ~half), strict=True):
            usable = np.flatnonzero(chosen & (call.flags == ""))
            part = call.take(np.random.default_rng(0).permutation(usable)[:rows])
            side.append(Group(part.op, machine, part.conditions, part.time_s))
    return sides


@pytest.mark.parametrize(
    ("phase", "machine", "library", "fitted_error", "default_error"),
    [
        ("prefill", "a100-sxm4-80gb", "trtllm", 0.07, 0.30),
        ("prefill", "h100-sxm5-80gb", "sglang", 0.12, 0.30),
        ("prefill", "h100-sxm5-80gb", "trtllm", 0.14, 0.30),
        ("prefill", "b200-sxm-180gb", "trtllm", 0.14, 0.30),
        ("decode", "h100-sxm5-80gb", "sglang", 0.12, 0.20),
        ("decode", "l40s", "sglang", 0.14, 0.25),
        ("decode", "a100-sxm4-80gb", "trtllm", 0.18, 0.35),
        ("decode", "b200-sxm-180gb", "trtllm", 0.21, 0.35),
    ],
)
def test_it_agrees_with_measurements_that_were_not_fitted(
    data_dir: Path, phase: str, machine: str, library: str, fitted_error: float, default_error: float
) -> None:
    family = PREFILL if phase == "prefill" else DECODE
    calls = table(data_dir / "measurements" / f"aic_attention_{phase}.csv.gz")
    fitted, judged = halves([c for c in calls if c.hardware == machine and c.library == library], 250)
    values = fit(family, fitted).values

    def error(values: Values) -> float:
        return float(np.mean(np.abs(np.expm1(log_ratio(family, values, judged)))))

    assert error(values) < fitted_error
    assert error(default(family)) < default_error


def test_kernels_of_one_origin_lend_each_other_their_constants_and_those_of_tensorrt_do_not() -> None:
    assert lenders(hardware("a100"), "sglang") == ("sglang", ("sglang", "vllm"))
    assert lenders(hardware("h100"), "vllm") == ("vllm", ("vllm", "sglang"))
    assert lenders(hardware("b200"), "sglang") == ("sglang", ("sglang",))
    assert lenders(hardware("a100"), "trtllm") == ("trtllm", ("trtllm",))
    # of one query cuDNN takes TensorRT-LLM's on mma.sync, of a prompt SGLang's
    assert decoding_lenders(hardware("a100"), "cudnn") == ("cudnn", ("cudnn", "torch/cudnn", "trtllm", "sglang"))
    for machine, library in (("h100", "cudnn"), ("a100", "sglang")):
        assert decoding_lenders(hardware(machine), library) == lenders(hardware(machine), library)
    assert "trtllm" not in lenders(hardware("a100"), "cudnn")[1]
    # what was measured of a library elsewhere says more about it than another one on the machine
    own, other = (constants(PREFILL, hardware("a100"), library, "bf16").values for library in ("vllm", "sglang"))
    assert own["math"] < other["math"]


def test_the_longest_blocks_end_last_where_they_start_in_the_order_of_their_keys() -> None:
    """A causal prompt then has a longer tail than the even blocks of full attention over as many keys."""
    values = {**PREFILL_VALUES, "energy": 1e-15}
    op = causal(heads=30, seq_q=2048, kv_write=False)
    fa2, even = replace(ROUND, matrix_instruction="wgmma"), Conditions(library="fa2")
    ascending = kernel_of(op, fa2, "fa2").ascending
    assert ascending > 0.0
    busy = [PREFILL.formula(one, fa2, values, even).time_s for one in (op, op.changed(heads=3000))]
    # a hundred times the heads take less than a hundred times as long: one tail in place of a hundred
    assert busy[1] < 85.0 * busy[0]


def test_a_lone_block_of_the_memory_efficient_kernel_takes_twice_its_part_of_an_sm() -> None:
    """Two blocks share an SM: a hundred on as many SMs take nearly as long as two hundred."""
    values = {**PREFILL_VALUES, "launch": 1e-9, "block": 1.0, "energy": 1e-15}
    op = pm.Attention(heads=100, seq_q=64, seq_kv=8192, head_dim=64, dtype="bf16")
    kernel = Conditions(library="efficient")
    one, two = (PREFILL.formula(x, ROUND, values, kernel).time_s for x in (op, op.changed(heads=200)))
    assert one < two < 1.3 * one
    assert PREFILL.formula(op.changed(heads=400), ROUND, values, kernel).time_s > 1.5 * two


def test_kernels_without_a_form_for_one_query_serve_it_as_a_prompt() -> None:
    op = pm.Attention(batch=4, heads=16, seq_q=1, seq_kv=3000, head_dim=64, dtype="fp16")
    slow, fast = (pm.predict(op, "h100", library=f"torch/{name}") for name in ("efficient", "cudnn"))
    assert (slow.family, fast.family) == ("attention_prefill", "attention_decode")
    assert slow.predicted_time_s > 2.0 * fast.predicted_time_s


def test_gradients_take_longer_than_five_halves_of_the_forward_pass_and_their_interval_is_wider() -> None:
    op = pm.Attention(batch=2, heads=16, seq_q=2048, head_dim=128, dtype="bf16", causal=True)
    forward, backward = (pm.predict(x, "h100", library="torch") for x in (op, op.changed(backward=True)))
    assert 2.5 < backward.predicted_time_s / forward.predicted_time_s < 4.0
    widths = [p.predicted_time_high_s / p.predicted_time_low_s for p in (forward, backward)]
    assert widths[0] < widths[1] < 2.0 * widths[0]
    assert backward.calibration == forward.calibration
    strange = pm.predict(op.changed(backward=True), "h100", library="nobody")
    assert strange.predicted_time_high_s / strange.predicted_time_low_s > widths[1]


def test_a_kernel_that_writes_the_cache_takes_its_time_for_each_token_and_another_narrows_queries() -> None:
    """100 SMs at 1 GHz: 10,000 tokens of 200 cycles take 20 us; narrowed keys cost columns and one more kernel."""
    op = causal(batch=10, heads=8, seq_q=1000)
    own, alone = (
        PREFILL.formula(x, ROUND, PREFILL_VALUES, Conditions(library="vllm")) for x in (op, op.changed(kv_write=False))
    )
    kernel = kernel_of(op, ROUND, "vllm")
    term = next(term for term in own.adds if str(term) == "rope and kv write")
    assert own.adds[term] > 10_000 * kernel.write_token / (100 * 1e9)
    assert alone.adds[term] == 0.0
    narrow = op.changed(kv_dtype="fp8")
    launches = [
        PREFILL.formula(x, ROUND, PREFILL_VALUES, Conditions(library="vllm")).adds[LAUNCH] for x in (op, narrow)
    ]
    assert launches[1] - launches[0] == pytest.approx(kernel.narrowing_s)


def test_an_engine_that_its_vendor_limits_is_fed_by_slow_kernels_up_to_what_their_instructions_take() -> None:
    """An H20 reaches 84 TFLOP/s with FlashAttention-2, 126 with FlashAttention-3 (`examples/published`), of 148."""
    op = pm.Attention(batch=8, heads=16, seq_q=2048, head_dim=128, dtype="fp16")
    slow, fast = (op.flop() / pm.predict(op, "h20-96gb", library=name).predicted_time_s for name in ("fa2", "fa3"))
    assert slow == pytest.approx(84e12, rel=0.15)
    assert fast == pytest.approx(126e12, rel=0.15)
    assert slow < 0.629 * pm.predict(op, "h20-96gb").operator.flop() / pm.predict(op, "h20-96gb").bound_time_s


def test_flashinfer_decodes_an_h20_at_the_rate_of_its_memory_and_widens_8_bit_keys_in_software() -> None:
    """339 and 437 us for 1024 keys of 16 and 8 bits: github.com/flashinfer-ai/flashinfer issue 1753."""
    sizes = {"batch": 128, "heads": 128, "kv_heads": 16, "seq_q": 1, "seq_kv": 1024, "head_dim": 128, "dtype": "bf16"}
    wide, narrow = (pm.Attention(**sizes, kv_dtype=dtype) for dtype in ("bf16", "fp8"))
    machine = pm.hardware("h20-96gb")
    assert pm.predict(wide, machine, library="flashinfer").predicted_time_s == pytest.approx(339e-6, rel=0.15)
    assert pm.predict(narrow, machine, library="flashinfer").predicted_time_s == pytest.approx(437e-6, rel=0.15)
    # FlashAttention-3 fills tiles of 64 rows, of which eight hold queries
    assert pm.predict(wide, machine, library="fa3").predicted_time_s > 1e-3


def test_tf32_is_the_tensor_engines_and_no_rate_of_fp32() -> None:
    """Triton feeds it from shared memory number by number: the same for each SM, unless the engine is slower yet."""
    op = pm.Attention(batch=4, heads=16, seq_q=4096, head_dim=64, dtype="tf32")
    h100, h20 = (pm.predict(op, machine, library="triton").predicted_time_s for machine in ("h100", "h20"))
    assert 0.9 * 132 / 78 < h20 / h100 < 1.1 * 132 / 78
    single = pm.predict(op.changed(dtype="fp32", kv_dtype="fp32"), "h20", library="triton").predicted_time_s
    assert h20 < 0.7 * single


def _reach(op: pm.Attention, machine: str, library: str) -> float:
    """High over low end of the interval."""
    made = pm.predict(op, machine, library=library)
    return float(made.predicted_time_high_s) / float(made.predicted_time_low_s)


@pytest.mark.parametrize(
    ("machine", "library", "other", "params"),
    [
        ("a100", "efficient", "fa2", {"seq_q": 4096, "head_dim": 64}),
        ("a100", "efficient", "fa2", {"seq_q": 4096, "head_dim": 64, "backward": True}),
        ("v100", "triton", "efficient", {"seq_q": 4096, "head_dim": 64}),
    ],
)
def test_kernels_that_published_rows_show_to_be_unsure_are(
    machine: str, library: str, other: str, params: dict[str, Any]
) -> None:
    op = pm.Attention(batch=2, heads=16, dtype="fp16", **params)
    assert _reach(op, machine, library) > 1.4 * _reach(op, machine, other)


def test_gradients_are_no_surer_than_the_forward_pass() -> None:
    """The family of gradients has the doubts of the forward pass, its own, and what it differs by from it."""
    forward = pm.Attention(batch=2, heads=16, seq_q=4096, head_dim=64, dtype="fp16")
    for library in ("efficient", "fa2", "cudnn"):
        gradient, least = (_reach(op, "a100", library) for op in (forward.changed(backward=True), forward))
        assert gradient >= least * (1.0 - 1e-12)
        # of FlashAttention-2 the doubt about its few rows, and what gradients differ by, are of one source: one counts
        assert (gradient > 1.001 * least) is (library != "fa2")


def test_one_query_with_heads_above_those_of_all_tables_is_unsure() -> None:
    sizes = {"batch": 8, "heads": 32, "kv_heads": 1, "seq_q": 1, "seq_kv": 8192, "dtype": "bf16"}
    usual, large = (pm.Attention(head_dim=columns, **sizes) for columns in (256, 512))  # type: ignore[arg-type]
    assert _reach(large, "b200", "cudnn") > 2.0 * _reach(usual, "b200", "cudnn")
