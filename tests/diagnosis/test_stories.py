"""Real traces: what the diagnosis says of each agrees with what is known of the run."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.formats import read_profile
from perfmodel.hardware_catalog import hardware
from perfmodel.investment.plan import Plan
from perfmodel.investment.ranking import rank_candidates

#: file -> the machine it ran on (the README of the data names it; the traces of 2021 do not)
TRACES = {
    "traces/hta_a100_2rank_nccl_resnet.json.gz": "a100-sxm4-40gb",
    "traces/hta_alexnet_a100_big_gaps.json.gz": "a100-sxm4-40gb",
    "traces/kineto_resnet50_train_nw0_2021.pt.trace.json.gz": None,
    "traces/kineto_resnet50_train_nw4_2021.pt.trace.json.gz": None,
    "traces/tracelens_h100_bert-small.json.gz": "h100-sxm5-80gb",
    "traces/tracelens_h100_qwen1.5-0.5b_prefill.json.gz": "h100-sxm5-80gb",
    "traces/tracelens_mi300_resnet_act_checkpoint_ddp.json.gz": "mi300x",
    "traces/tracelens_sglang_qwen3-8b_decode_cudagraph_mi300.json.gz": "mi300x",
    "traces/tracelens_torch_compile_triton_mi300.json.gz": "mi300x",
    "nsys/ginda_h100_2gpu_megatron_before.sqlite": "h100-sxm5-80gb",
    "nsys/ginda_rtx3080_mock_minimal.sqlite": None,
}


@functools.cache
def _diagnosis(path: Path, machine: str | None):
    return diagnose(read_profile(path), hardware(machine) if machine else None)


@pytest.fixture
def story(data_dir):
    """Diagnose a file of the data, once."""

    def made(part: str):
        (name,) = [name for name in TRACES if part in name]
        path = data_dir / name
        if not path.is_file():
            pytest.skip(f"{name} is absent")
        return _diagnosis(path, TRACES[name])

    return made


def _share(made, dimension):
    return made.part(dimension).fraction


def _best(made, kind):
    return next(one for one in made.advice if one.kind == kind)


@pytest.mark.parametrize("name", TRACES)
def test_the_dimensions_are_the_whole_wall(story, name):
    made = story(name)
    assert sum(part.time_s for part in made.parts) == pytest.approx(made.total_s, rel=1e-6)
    assert sum(part.fraction for part in made.parts) == pytest.approx(1.0, rel=1e-6)
    assert made.wall.total_time_s == pytest.approx(made.total_s, rel=1e-6)
    for part in made.parts:
        told_s = sum(one.time_s for one in part.evidence)
        # evidence of less than a millionth of the wall is left out
        assert told_s == pytest.approx(part.time_s, rel=1e-6, abs=1e-6 * made.total_s * (len(part.evidence) + 400))


@pytest.mark.parametrize("name", TRACES)
def test_every_event_belongs_to_the_entry_that_counts_it(story, name):
    profile = story(name).profile
    gpu = profile.timeline.gpu
    mine = gpu.entry >= 0
    assert np.array_equal(mine, profile.timeline.in_window())
    times = np.bincount(gpu.entry[mine], weights=gpu.duration_s[mine], minlength=len(profile.entries))
    assert times == pytest.approx([entry.time_s for entry in profile.entries], rel=1e-9)


@pytest.mark.parametrize("name", TRACES)
def test_every_candidate_is_one_that_roi_ranks(story, name):
    made = story(name)
    if not made.candidates:
        return
    plan = Plan(made.candidates)
    saved = {row.name: row.time_saved_s for row in rank_candidates(made.wall, plan).rows}
    for one in made.advice:
        assert saved[one.candidate.name] == pytest.approx(one.time_saved_s, rel=1e-6)
        assert 0.01 * made.total_s <= one.time_saved_s <= made.total_s
    assert [one.time_saved_s for one in made.advice] == sorted((one.time_saved_s for one in made.advice), reverse=True)


def test_bert_small_is_launch_bound(story):
    made = story("bert-small")
    # TraceLens' report of the same trace: total 3.907824951 ms, computation 0.307197754, memcpy 0.002239990
    assert made.total_s == pytest.approx(3.907824951e-3, rel=1e-5)
    assert sum(made.part(name).time_s for name in ("compute", "memory", "other kernels")) == pytest.approx(
        0.307197754e-3, rel=1e-4
    )
    assert made.part("transfer").time_s == pytest.approx(0.002239990e-3, rel=1e-3)
    assert _share(made, "launch") > 0.85
    assert made.part("launch").evidence[0].what == "aten::addmm"
    assert made.part("sync").evidence[0].what == "aten::item"
    assert "modeling_attn_mask_utils.py" in made.part("sync").evidence[0].detail
    assert made.advice[0].kind == "cuda-graph"
    # nothing can be saved beyond the gaps themselves
    assert made.advice[0].time_saved_s < made.part("launch").time_s


def test_qwen_prefill_is_busy_and_its_rotary_embedding_can_be_fused(story):
    made = story("qwen1.5")
    # TraceLens: total 34.892418945 ms, computation 31.903115234, idle 2.986935791 (launch and sync here)
    assert sum(made.part(name).time_s for name in ("compute", "memory", "other kernels")) == pytest.approx(
        31.903115234e-3, rel=1e-4
    )
    waiting_s = sum(made.part(name).time_s for name in ("launch", "sync", "idle"))
    assert waiting_s == pytest.approx(2.986935791e-3, rel=1e-3)
    assert all(one.detail.startswith("limited by compute (from the model)") for one in made.part("compute").evidence)
    fused = [one for one in made.advice if one.kind == "fuse"]
    assert fused
    assert all("attention" not in one.candidate.name and "mm" not in one.candidate.name for one in fused)
    assert any(text.startswith("mm + ") and "epilogue" in text for text in made.not_advised)


def test_resnet_without_workers_waits_for_its_input(story):
    before, after = story("nw0"), story("nw4")
    busy = [sum(made.part(name).time_s for name in ("compute", "memory", "other kernels")) for made in (before, after)]
    # the README of the data: idle 31 % (by step), busy 87 %
    assert 1 - busy[0] / before.total_s == pytest.approx(0.31, abs=0.02)
    assert busy[1] / after.total_s + _share(after, "transfer") == pytest.approx(0.87, abs=0.01)
    evidence = before.part("idle").evidence[0]
    assert (evidence.what, evidence.count) == ("input pipeline", 6)
    advice = _best(before, "input-pipeline")
    assert advice is before.advice[0]
    # the run with four workers exists: it took 770 ms, and the estimate for it is 745
    assert before.total_s - advice.time_saved_s == pytest.approx(after.total_s, rel=0.05)
    assert not any(one.kind == "input-pipeline" for one in after.advice)


def test_alexnet_spends_its_time_starting_up(story):
    made = story("alexnet")
    assert _share(made, "idle") > 0.99
    first, second = made.part("idle").evidence[:2]
    assert first.what == second.what == "host work"
    # 30.4 s of start-up come before the first piece of GPU work, and stand apart
    assert made.outside_s[0] == pytest.approx(30.5, rel=0.02)
    assert first.time_s == pytest.approx(10.03, rel=0.01)
    assert "cudaFree under aten::cudnn_convolution" in first.detail
    assert second.time_s < first.time_s
    assert "warm up" in _best(made, "host-work").text


def test_a_decode_step_that_was_asked_for_is_held_up(story):
    made = story("sglang")
    # 463 ms between two decode steps, while the host sat in a copy that waits
    assert made.part("idle").time_s == pytest.approx(0.4632, rel=0.01)
    assert made.part("idle").evidence[0].what == "delayed start"
    assert "hipMemcpyWithStream" in made.not_advised[0]
    assert made.advice == ()


def test_ddp_has_more_to_say_than_to_compute(story):
    made = story("act_checkpoint")
    divided = made.decomposition
    assert _share(made, "transfer") == pytest.approx(0.620, abs=0.01)
    advice = _best(made, "overlap-communication")
    kernels_s = sum(divided.time_s[name] for name in ("compute", "memory", "other kernels"))
    # what kernels hide already is no more to save
    assert advice.time_saved_s == pytest.approx(kernels_s - divided.hidden_communication_s)
    assert "8 ranks" in made.part("transfer").evidence[0].what


def test_two_gpus_are_one_mean(story):
    made = story("megatron")
    # 541.106 ms of events on two GPUs, of which little overlaps: 270.55 ms each
    busy_s = sum(made.part(name).time_s for name in ("compute", "memory", "other kernels", "transfer"))
    assert busy_s == pytest.approx(0.541106145 / 2, rel=1e-4)
    assert made.notes[0] == "Times are the mean over 2 GPUs."
    assert made.part("compute").evidence[0].what.startswith("void flash::")


def test_data_parallel_on_two_gpus_launches_late_and_works_on_the_host(story):
    made = story("2rank")
    assert _share(made, "launch") > 0.5
    assert "unflatten_dense_tensors on the CPU" in made.part("idle").evidence[0].detail
