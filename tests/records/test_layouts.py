"""Layers of mixtures of experts in the layout of others, in CSV and Parquet."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import InputFileError, UnavailableError
from perfmodel.operators.moe import Moe
from perfmodel.records.measurements import read_measurements

FOREIGN = (
    "gpu,framework,framework_version,dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "distribution,kernel_source,latency_ms\n"
)
OWN = (
    "hardware,op,dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,time_s,"
    "timing,cache,implementation,flags\n"
)


def _read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return read_measurements(path)


def test_the_layout_of_aiconfigurator(tmp_path: Path) -> None:
    rows = (
        "L40S,trtllm,1.3,fp8,64,4096,1536,8,128,2,4,power_law_1.2,moe_torch_flow_nongated,0.5\n"
        "L40S,trtllm,1.3,bfloat16,64,4096,1536,8,128,1,1,balanced,moe_torch_flow_cutlass,0.5\n"
    )
    table = _read(tmp_path, FOREIGN + rows)
    assert not table.skipped
    assert not table.notes
    skewed, balanced = table.calls
    assert (skewed.hardware, skewed.library, skewed.timing, skewed.cache) == (
        "L40S", "trtllm", Timing.KERNEL, CacheState.WARM
    )  # fmt: skip
    assert skewed.time_s.tolist() == [0.5e-3]
    op = skewed.op
    assert isinstance(op, Moe)
    assert (op.dtype, op.skew, op.routing, op.gated, op.router) == ("fp8", 1.2, "random", False, False)
    assert (op.tokens, op.hidden, op.inter, op.top_k, op.experts, op.tp, op.ep) == (64, 4096, 1536, 8, 128, 2, 4)
    assert (balanced.op.routing, balanced.op.skew, balanced.op.gated) == ("balanced", 0.0, True)


@pytest.mark.parametrize("names", [("num_tokens", "hidden_size", "topk"), ("tokens", "hidden", "top_k")])
def test_the_schema_of_perfmodel_with_either_names(tmp_path: Path, names: tuple[str, str, str]) -> None:
    header = OWN.replace("num_tokens", names[0]).replace("hidden_size", names[1]).replace("topk", names[2])
    row = "l40s,moe,int4_wo,64,4096,1536,8,128,1,1,power_law_1.01,5e-4,graph,rotating,sglang-0.5/sglang_marlin_moe,\n"
    (call,) = _read(tmp_path, header + row).calls
    assert (call.op.weight_dtype, call.op.scale, call.op.skew) == ("int4", "group:128", 1.01)
    assert (call.timing, call.cache, call.library) == (Timing.GRAPH, CacheState.ROTATING, "sglang")


def test_sglangs_kernels_compute_the_slots_of_other_ranks(tmp_path: Path) -> None:
    row = "l40s,moe,{},64,4096,1536,8,128,1,{},balanced,5e-4,graph,warm,sglang-0.5/{},\n"
    triton = "sglang_fused_moe_triton"
    rows = [row.format("bf16", 4, triton), row.format("bf16", 1, triton), row.format("nvfp4", 4, "sglang_cutedsl")]
    first, second = (call.op for call in _read(tmp_path, OWN + "".join(rows)).calls)
    assert isinstance(first, Moe)
    # Tokens that take the experts in turn have some on each of 4 ranks, which computes all 8 slots.
    assert np.array_equal(first.slots, [64 * 8, 0.0])
    assert np.array_equal(second.slots, 0) or np.array_equal(second.slots, [0])


def test_tokens_with_any_experts_visit_some_ranks_and_b200_skips_the_slots_of_others(tmp_path: Path) -> None:
    row = "{},moe,bf16,64,4096,1536,8,128,1,4,,5e-4,graph,warm,sglang-0.5/sglang_fused_moe_triton,\n"
    computed, skipped = (call.op for call in _read(tmp_path, OWN + row.format("l40s") + row.format("B200-SXM")).calls)
    assert isinstance(computed, Moe)
    # A token has none of its 8 experts on a rank with a chance of (96 / 128) (95 / 127) ... = 0.09.
    assert computed.slots == [np.round(64 * computed.visits / 4 * 8)]
    assert 0.9 * 64 * 8 < computed.slots[0] < 0.92 * 64 * 8
    assert skipped.params()["slots"] == 0


def test_a_column_of_slots_counts(tmp_path: Path) -> None:
    row = "l40s,moe,bf16,64,4096,1536,8,128,1,4,balanced,5e-4,graph,warm,sglang-0.5/sglang_fused_moe_triton,200\n"
    (call,) = _read(tmp_path, OWN.replace("flags", "slots") + row).calls
    assert call.op.params()["slots"] == [200]


def test_impossible_layers_are_counted(tmp_path: Path) -> None:
    row = "l40s,moe,bf16,64,4096,1536,{},128,1,{},balanced,5e-4,graph,warm,trtllm-1/x,\n"
    table = _read(tmp_path, OWN + row.format(8, 4) + row.format(200, 1))
    assert sum(len(call) for call in table.calls) + sum(skipped.rows for skipped in table.skipped) == 2
    assert "top_k" in table.skipped[0].reason


def test_a_table_without_what_it_needs_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="hardware"):
        _read(tmp_path, FOREIGN.replace("gpu,", "") + "x\n")


def test_parquet_without_its_library_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(UnavailableError, match="pyarrow"):
        read_measurements(path)


@pytest.mark.waiting
@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet(tmp_path: Path, data_dir: Path) -> None:
    table = read_measurements(data_dir / "other_latency" / "aic_moe.parquet")
    assert sum(map(len, table.calls)) == 40_000
    broken = tmp_path / "table.parquet"
    broken.write_bytes(b"no parquet")
    with pytest.raises(InputFileError, match="Parquet"):
        read_measurements(broken)


def test_a_parquet_file_that_is_not_there_is_told_so(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputFileError, match=r"absent\.parquet: no such file\. Check the path\."):
        read_measurements(tmp_path / "absent.parquet")
