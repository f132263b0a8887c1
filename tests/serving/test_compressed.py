"""Serving with compressed attention: windows, compressed keys, hyper-connections, experts in fp4 (DeepSeek-V4)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.prediction.sparse_attention import COMPRESSED_DEVIATION, SPARSE_DECODE_SHARE, SPARSE_SHARE
from perfmodel.serving.attention import LATENT_START_S, LayerAttention
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.kept_bytes import vector_bytes
from perfmodel.serving.laboratories import INDEXED
from perfmodel.serving.precision import beside_experts, weight_format
from perfmodel.serving.shard import stage_parts
from perfmodel.serving.support import remarks
from perfmodel.workloads.catalog import find_model, named_model

H200, B300, A100 = pm.hardware("h200-sxm-141gb"), pm.hardware("b300-sxm-288gb"), pm.hardware("a100-sxm-80gb")
FLASH, PRO = named_model("deepseek-v4-flash"), named_model("deepseek-v4-pro")
#: layers that attend to all compressed keys, without an indexer, and the same with a window alone
POOLED = dataclasses.replace(FLASH, index_heads=0, index_layers=0, index_ratio=1, pool_layers=41)
WINDOWED = dataclasses.replace(POOLED, pool_layers=0, pool_ratio=0, window_layers=43)


def deployed(config=FLASH, hardware=H200, **options):
    return Deployment(config, hardware, **{"engine": "vllm", "tp": 4, "kv": "fp8", **options})


def decoding(config, context, **options):
    return deployed(config, **options).step(decode=64, context=context).terms_s["kv"]


def test_sglang_runs_256_sequences_unless_told():
    assert deployed(engine="sglang").sequence_limit == 256
    assert deployed(engine="sglang", max_num_seqs=1024).sequence_limit == 1024
    assert deployed(named_model("deepseek-v3.2"), engine="sglang", tp=8).sequence_limit > 256
    assert deployed(engine="vllm").sequence_limit > 256


def test_decode_by_hand():
    """Layers of a window have 128 keys of 584 B; 16 heads of a GPU are padded to 64, which the kernel multiplies."""
    each = LATENT_START_S + 4 * 64 * 128 * 64 * 512 / (SPARSE_DECODE_SHARE * H200.best_peak("bf16").flop_per_s)
    assert decoding(WINDOWED, 5000) == pytest.approx(43 * each, rel=1e-9)


def test_prompts_by_hand():
    """Of 8,192 queries each has min(n, 128) keys and one of every 128 tokens before it."""
    pairs = 128 * 129 / 2 + 8064 * 128 + 128 * sum(range(64)) + 64
    flop = 4 * pairs * 64 * 512 * 41 + 4 * (128 * 129 / 2 + 8064 * 128) * 64 * 512 * 2
    time = deployed(POOLED).step(prefill=[(1, 8192, 8192)]).terms_s["prefill"]
    expected = 43 * LATENT_START_S + flop / (SPARSE_SHARE * H200.best_peak("bf16").flop_per_s)
    assert time == pytest.approx(expected, rel=1e-6)


def test_a_context_shorter_than_the_window_costs_as_a_window_alone():
    assert decoding(POOLED, 127) == pytest.approx(decoding(WINDOWED, 127), rel=1e-3)  # read between two contexts
    assert decoding(POOLED, 5000) > decoding(WINDOWED, 5000)


def test_decode_is_monotonic_and_grows_with_what_the_indexer_reads_alone():
    """Beyond 2,048 tokens an indexer's keys grow, 132 B for 4 tokens, and those of 128 tokens."""
    contexts = np.array([100.0, 1000.0, 4000.0, 20_000.0, 200_000.0, 1_000_000.0])
    times = decoding(FLASH, contexts)
    assert np.all(np.diff(times) > 0)
    scored = 64 * 21 * (132 / 4 + 8 / 4) * 800_000 / H200.main_memory.bandwidth_bytes_per_s
    pooled = 64 * 20 * 800_000 / 128 * 584 / H200.main_memory.bandwidth_bytes_per_s
    assert scored + pooled < times[-1] - times[-2] < 4.0 * (scored + pooled)


def test_the_doubt_is_that_of_kernels_that_were_never_measured():
    served = deployed(WINDOWED)
    attention = LayerAttention(served.part, served.profile, H200, "bf16", "fp8")
    _, deviation = attention.over_layers(batch=np.array([64.0]), seq_q=np.array([1.0]), seq_kv=np.array([5000.0]))
    assert deviation == pytest.approx(COMPRESSED_DEVIATION)
    assert deployed().elsewhere.kind == deployed(POOLED).elsewhere.kind == INDEXED
    assert any("No kernel of attention to compressed keys" in text for text in remarks(deployed()))
    assert not any("compressed keys" in text for text in remarks(deployed(named_model("deepseek-v3.2"), tp=8)))


def test_a_token_and_a_sequence_in_the_cache_by_hand():
    """A vector takes 448 B in fp8, 128 B of positions and 8 B of scales; keys of indexers 132 B."""
    assert vector_bytes(deployed().part, "fp8") == 584
    assert vector_bytes(deployed(kv="bf16").part, "bf16") == 1024
    memory = deployed().memory()
    assert memory.kv_bytes_token == memory.kv_bytes_token_gpu == 21 * (584 + 132) / 4 + 20 * 584 / 128
    fixed = 43 * 128 * 584 + FLASH.unfinished_bytes
    assert memory.sequence_bytes == fixed
    each = 8192 + 512 + fixed / memory.kv_bytes_token
    assert memory.max_batch(8192, 1024) == memory.kv_tokens // (np.ceil(each / 16) * 16)


def test_new_tokens_of_a_step_take_of_the_room_first():
    """Each has its vector in 43 layers, and keys and gates in fp32: 8 B of 1,024 and 256 numbers, or of 512."""
    each = 43 * 584 + 21 * 8 * (1024 + 256) + 20 * 8 * 512
    memory = deployed(max_batched_tokens=8192).memory()
    assert memory.step_bytes == 8192 * each
    assert memory.kv_tokens == (memory.kv_bytes - 8192 * each) // memory.kv_bytes_token
    small = deployed(max_batched_tokens=2048).memory()
    assert small.kv_tokens > memory.kv_tokens


def test_the_room_is_nearly_that_which_vllm_prints():
    """7.01 GiB hold 1.11 sequences of 912,128 tokens of Flash on two H20 (vllm-project/vllm issue 51041, 0.26)."""
    memory = deployed(tp=2, hardware=B300, max_batched_tokens=8192).memory()
    each = 912_128 * memory.kv_bytes_token_gpu + memory.sequence_bytes + memory.step_bytes
    assert 7.01 * 2**30 / each == pytest.approx(1.11, rel=0.15)


def test_a_window_alone_is_that_of_other_models():
    """The cache of layers with a window alone is that of a model with one key head, without a copy for the values."""
    shape = "layers=8 hidden=1024 heads=16 kv_heads=1 head_dim=128 window=256 vocab=32000 ffn=2048"
    usual, shared = find_model(shape), find_model(f"{shape} type=deepseek_v4")
    first, second = (deployed(config, tp=1, kv="bf16").memory() for config in (usual, shared))
    assert first.windows == second.windows == ((256, 1.0),)
    assert second.kv_bytes_token == first.kv_bytes_token / 2


def test_weights_are_as_many_bytes_as_the_checkpoint_has():
    """159.6 GB with the layer that predicts a second token (0.6 % of 3.6 GB), routed experts in 4 bits with scales."""
    held = deployed(hardware=B300, tp=1).memory().weights_bytes
    second = 257 * 3 * 4096 * 2048 * (0.5 + 1 / 32) + 0.15e9
    assert held + second == pytest.approx(159.6e9, rel=0.005)


def test_experts_in_fp4_beside_blocks_of_fp8():
    """Blackwell multiplies fp4 with 8 bits, Hopper widens it to 16 bits, Ampere all of the weights."""
    name = "fp4_experts"
    for machine, experts, others in ((B300, "fp8", "fp8"), (H200, "bf16", "fp8"), (A100, "bf16", "bf16")):
        found = weight_format(name, machine)
        assert (found.compute, found.weights) == (experts, "fp4")
        assert beside_experts(found, "bf16", machine).compute == others
    assert beside_experts(weight_format(name, H200), "bf16", H200).bytes == weight_format("fp8_block").bytes


def test_hyper_connections_move_all_streams():
    """Twice a layer 4 streams are read three times and written once; a product, a sum and an output are beside them."""
    one = dataclasses.replace(FLASH, residual_streams=1)
    many, single = (deployed(config).step(prefill=[(1, 8192, 8192)]).terms_s["kernels"] for config in (FLASH, one))
    more = 43 * 2 * 8192 * 4096 * 2 * (4 + 5 + 9 - 4)
    rate = H200.main_memory.bandwidth_bytes_per_s
    assert more / rate < many - single < 2.5 * more / rate


def test_gpus_share_out_the_groups_of_the_output():
    part = deployed().part
    assert part.output_matrices == ((2, 1024, 4096), (1, 4096, 2048))
    with pytest.raises(UsageError) as error:
        deployed(tp=16)
    assert "tp=16 does not divide the model's 8 groups of heads of the output" in str(error.value)
    assert "Possible: 1, 2, 4, 8." in str(error.value)


def test_stages_have_the_kinds_of_their_layers():
    parts = stage_parts(FLASH, deployed(pp=2).part, 2)
    assert sum(part.index_layers for part in parts) == 21
    assert sum(part.pool_layers for part in parts) == 20
    assert sum(part.window_layers for part in parts) == 2
    assert all(part.compressed_layers + part.window_layers == part.layers for part in parts)


def test_pro_is_served_on_eight_gpus():
    step = deployed(PRO, B300, tp=8).step(decode=64, context=8000)
    assert 0.005 < step.time_s < 0.05
    assert step.low_s < step.time_s < step.high_s
