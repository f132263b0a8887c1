"""Kernels of the first releases with latent attention, and published runs whose notes tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.api.machines import find_machine
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import find_engine
from perfmodel.serving.published import judge
from perfmodel.serving.published_tables import reader_of
from perfmodel.serving.triton_blocks import triton_time, walk_s

H200 = find_machine("h200")
PUBLISHED = Path(__file__).resolve().parents[2] / "examples" / "published"


def deployed(machine: str, engine: str, release: str, model: str = "deepseek-v3", **options: object) -> Deployment:
    return pm.Deployment(model, machine, tp=8, engine=engine, engine_version=release, weights="fp8_block", **options)


def test_a_tile_walks_along_k() -> None:
    """8 rows of 512 columns and k = 7168 took 27.1 us by Triton and 13.4 by DeepGEMM, 2 x 128 of k 9.5 (H200)."""
    rows = np.array([8.0])
    few, many = (triton_time(np.array([5e-6]), rows, n, 7168, H200, experts=False).item() for n in (512, 7168))
    assert few == many == walk_s(7168) == pytest.approx(27.1e-6 - 9.5e-6 + walk_s(256), rel=0.3)
    assert triton_time(np.array([5e-6]), rows, 512, 256, H200, experts=False).item() == 5e-6  # no faster than others


def test_many_rows_run_at_the_rate_of_multiprocessors() -> None:
    """4096 rows of 24576 x 7168 took 4067 us, and a row more in a tile of 64 takes nothing more."""
    time = [triton_time(np.array([1.35e-3]), np.array([rows]), 24576, 7168, H200, experts=False).item()
            for rows in (4096.0, 4033.0, 4097.0)]  # fmt: skip
    assert time[0] == time[1] == pytest.approx(4067e-6, rel=0.05)
    assert time[2] > time[0]


def test_without_aiter_products_take_two_and_those_of_experts_three_times_as_long() -> None:
    library, machine = np.array([100e-6]), find_machine("mi300x")
    plain, experts = (triton_time(library, np.array([512.0]), 4096, 256, machine, experts=of) for of in (False, True))
    assert (plain.item(), experts.item()) == pytest.approx((200e-6, 300e-6))


def test_first_releases_are_slower_and_the_gap_closes_with_later_ones() -> None:
    for machine in ("h20-96gb", "h200", "mi300x"):
        two = [deployed(machine, "sglang", release) for release in ("0.4.4", "0.4.6")]
        for sequences in (1, 64):
            early, late = (float(one.step(sequences, 512).time_s) for one in two)
            assert 1.3 < early / late < 5.0
    dense = [
        float(pm.Deployment("llama-3.1-8b", "h200", engine="sglang", engine_version=v).step(8, 512).time_s)
        for v in ("0.4.4", "0.4.6")
    ]
    assert dense[0] == dense[1]


def test_tiles_that_nobody_tuned_cost_where_experts_have_few_rows() -> None:
    engine = replace(find_engine("sglang", "0.4.4"), untuned="")
    tuned, untuned = (
        pm.Deployment("deepseek-v3", "h20-96gb", tp=8, engine=profile, weights="fp8_block")
        for profile in (engine, replace(engine, untuned="h20"))
    )
    some, many = (
        np.array([float(one.step(*sizes).terms_s["experts"]) for one in (tuned, untuned)])
        for sizes in ((32, 512), (0, 0, [(8, 2048, 2048)]))
    )
    assert some[1] > 1.5 * some[0]
    assert many[1] == pytest.approx(many[0], rel=0.05)
    other = pm.Deployment("deepseek-v3", "h200", tp=8, engine=replace(engine, untuned="h20"), weights="fp8_block")
    assert "fewest_rows" not in other._kernels._tiles


@pytest.mark.parametrize(("engine", "before", "since"), [("vllm", "0.7.0", "0.7.1"), ("sglang", "0.2.9", "0.3")])
def test_keys_of_all_heads_are_kept_before_latent_ones(engine: str, before: str, since: str) -> None:
    """16 heads of a GPU keep 2 x 256 numbers each, in place of 512 + 64 numbers that all heads share."""
    old, new = (deployed("h200", engine, release) for release in (before, since))
    assert (old.part.kept_width, new.part.kept_width) == (16 * 512, 576)
    assert old.held.weights_bytes == new.held.weights_bytes
    tokens = [one.memory().kv_tokens for one in (old, new)]
    assert tokens[1] / tokens[0] == pytest.approx(16 * 512 / 576, rel=1e-3)
    assert float(old.step(64, 2048).terms_s["kv"]) > 3.0 * float(new.step(64, 2048).terms_s["kv"])


@pytest.mark.parametrize(
    ("notes", "graph", "blocks", "untuned"),
    [
        ("SGLang's own images", None, "", ""),
        ("no CUDA graphs (--enforce-eager)", False, "", ""),
        ("tuned MoE config, AITER off", None, "all", ""),
        ("default MoE config, AITER off", None, "all", "mi300x"),
    ],
)
def test_notes_tell_how_kernels_ran(tmp_path: Path, notes: str, graph: bool | None, blocks: str, untuned: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "source,model,hardware,tp,pp,ep,wdtype,kvdtype,isl,osl,value,unit,meaning,engine,engine_version,requests,notes\n"
        f'x,qwen3-30b-a3b,mi300x,1,1,1,fp8_block,fp8,1000,1000,1000,tok/s,all,vllm,0.10.0,100,"{notes}"\n'
    )
    table = read_run_table(path)
    reader = reader_of(table.columns)
    assert reader is not None
    setup = reader(table.runs[0]).setup
    found = setup.deployment(find_machine, 2001).profile
    assert setup.graph is graph
    assert (found.graph, found.triton_blocks, found.untuned) == (graph is not False, blocks, untuned)


def test_published_runs_of_first_releases_are_nearer() -> None:
    """DeepSeek-R1 on eight H20 by SGLang of March 2025 took 3.3 times as long as predicted without these kernels."""
    table = read_run_table(PUBLISHED / "serving_arrivals.csv")
    runs = tuple(run for run in table.runs if run.text("source") in ("tanjunchen-h20-r1", "sglang-issue913"))
    rows = judge(replace(table, runs=runs), find_machine).rows
    ratios = {row.quantity: [] for row in rows}
    for row in rows:
        ratios[row.quantity].append(row.measured / row.predicted)
    assert 0.9 < np.median(ratios["tpot_s"]) < 1.6
    assert 0.5 < np.median(ratios["output_tokens_per_s"]) < 1.5


def test_transformers_asked_each_expert_before_it_skipped_those_without_tokens() -> None:
    """48 layers x (4 x 128 + 9 x 8) kernels of 20 us; Qwen3-30B-A3B took 537 ms a token on an H20 (4.51.3)."""
    before, since = (
        pm.Deployment("qwen3-30b-a3b", "h20-96gb", engine="hf-eager", engine_version=release)
        for release in ("4.51.3", "4.53.0")
    )
    more = 48 * (4 * 128 + 9 * 8)
    assert before.host.kernels - since.host.kernels == pytest.approx(more)
    time = float(before.step(1, 6144).time_s)
    assert time - float(since.step(1, 6144).time_s) == pytest.approx(more * 20e-6, rel=0.02)
    assert time == pytest.approx(0.537, rel=0.2)
