"""The passes of a pipeline: bubble, memory and dependencies of each schedule."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.timeline import alive, pipeline_timeline


def timeline(pp: int, m: int, vp: int = 1, schedule: str = "", forward: float = 1.0, backward: float = 2.0):
    plan = TrainingPlan(batch=m, seq=128, pp=pp, vp=vp, schedule=schedule)
    return plan, pipeline_timeline(plan, m, [forward] * pp, [backward] * pp)


@pytest.mark.parametrize(("pp", "m"), [(1, 4), (4, 4), (4, 16), (8, 8)])
def test_1f1b_ends_after_the_bubble_of_p_minus_1(pp, m):
    _, passes = timeline(pp, m)
    assert max(one.end_s for one in passes) == pytest.approx((m + pp - 1) * 3.0)


@pytest.mark.parametrize(("pp", "m", "vp"), [(4, 8, 2), (4, 16, 4), (8, 8, 2)])
def test_interleaving_divides_the_bubble(pp, m, vp):
    _, passes = timeline(pp, m, vp)
    assert max(one.end_s for one in passes) == pytest.approx((m + (pp - 1) / vp) * 3.0)


def test_1f1b_holds_p_micro_batches_on_the_first_stage_and_one_on_the_last():
    _, passes = timeline(4, 16)
    assert [max(held for _, held in alive(passes, gpu)) for gpu in range(4)] == [4, 3, 2, 1]


def test_gpipe_holds_all_of_them():
    _, passes = timeline(4, 16, schedule="gpipe")
    assert [max(held for _, held in alive(passes, gpu)) for gpu in range(4)] == [16] * 4
    assert max(one.end_s for one in passes) == pytest.approx((16 + 3) * 3.0)


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 8), (4, 16), (8, 16)])
def test_a_zero_bubble_schedule_waits_p_minus_1_times_f_plus_b_minus_2_w(pp, m):
    """ZB-H1 with F = 1, B = 2 of which W = 1: a third of the bubble of 1F1B, and p micro batches on every GPU."""
    _, passes = timeline(pp, m, schedule="zero_bubble")
    assert len(passes) == 3 * pp * m
    assert max(one.end_s for one in passes) == pytest.approx(3.0 * m + (pp - 1) * 1.0)
    assert {max(held for _, held in alive(passes, gpu)) for gpu in range(pp)} == {pp}


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 8), (6, 14), (8, 20), (16, 120)])
def test_dualpipe_waits_as_its_authors_say_and_holds_p_plus_1_micro_batches(pp, m):
    """(p / 2 - 1) (F + B + B - 3 W) with F = W = 1, B = 2, where no pair is shorter (DeepSeek-AI 2024, table 2)."""
    _, passes = timeline(pp, m, schedule="dualpipe")
    assert len(passes) == 3 * pp * m
    assert max(one.end_s for one in passes) == pytest.approx(3.0 * m + (pp / 2 - 1) * 2.0)
    assert max(held for gpu in range(pp) for _, held in alive(passes, gpu)) == pp + 1


@given(half=st.integers(1, 5), more=st.integers(0, 6), backward=st.floats(1.0, 3.0), weights=st.floats(0.1, 0.9))
def test_dualpipe_runs_every_pass_of_both_directions_after_its_input(half, more, backward, weights):
    pp, m = 2 * half, 4 * half + 2 * more
    plan = TrainingPlan(batch=m, seq=128, pp=pp, schedule="dualpipe")
    passes = pipeline_timeline(plan, m, [1.0] * pp, [backward] * pp, [weights * backward] * pp)
    forward = {(one.part, one.micro_batch, one.gpu): one for one in passes if not one.backward}
    assert len(forward) == pp * m
    assert {part for part, _, _ in forward} == {0, 1}
    for (part, micro_batch, gpu), one in forward.items():
        source = gpu - 1 if part == 0 else gpu + 1
        if 0 <= source < pp:
            assert one.start_s >= forward[part, micro_batch, source].end_s - 1e-9
    for gpu in range(pp):
        own = sorted((one.start_s, one.end_s) for one in passes if one.gpu == gpu)
        assert all(first[1] <= second[0] + 1e-9 for first, second in itertools.pairwise(own))
        assert sum(end - start for start, end in own) == pytest.approx(m * (1.0 + backward))


def test_interleaving_holds_more_on_the_first_stage():
    # (v - 1) p + 2 (p - 1) + 1 of v p parts: 8 + 6 + 1 = 15 of 12, or L (1 + (p - 1) / (p v)) layers
    _, passes = timeline(4, 16, vp=3)
    assert max(held for _, held in alive(passes, 0)) == 15


@given(
    pp=st.integers(1, 6),
    groups=st.integers(1, 4),
    vp=st.integers(1, 3),
    schedule=st.sampled_from(("1f1b", "gpipe")),
    backward=st.floats(0.5, 3.0),
)
def test_no_pass_starts_before_its_input_and_no_gpu_does_two_at_once(pp, groups, vp, schedule, backward):
    vp = vp if pp > 1 else 1
    _, passes = timeline(pp, groups * pp, vp, "" if vp > 1 else schedule, 1.0, backward)
    assert len(passes) == 2 * pp * vp * groups * pp
    end = {(one.gpu, one.part, one.micro_batch, one.backward): one.end_s for one in passes}
    for one in passes:
        if one.backward:
            assert one.start_s >= end[one.gpu, one.part, one.micro_batch, False] - 1e-9
        elif one.gpu:
            assert one.start_s >= end[one.gpu - 1, one.part, one.micro_batch, False] - 1e-9
    for gpu in range(pp):
        own = sorted((one.start_s, one.end_s) for one in passes if one.gpu == gpu)
        assert all(first[1] <= second[0] + 1e-9 for first, second in itertools.pairwise(own))


def test_too_many_passes_are_refused():
    with pytest.raises(UsageError, match="at most"):
        timeline(64, 10_000)


@pytest.mark.parametrize(("pp", "m"), [(4, 8), (8, 16), (16, 32)])
def test_the_bubble_of_dualpipe_is_near_its_time_line_where_the_head_makes_stages_unequal(pp, m):
    """The GPUs in the middle of the pipeline, whose waits fill the step, have neither embedding nor head."""
    plan = TrainingPlan(batch=m, seq=4096, pp=pp, schedule="dualpipe", framework="megatron-te")
    found = pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=pp), plan)
    passes = pipeline_timeline(plan, m, found.stage_forward_s, found.stage_backward_s, found.stage_weights_s)
    end = max(one.end_s for one in passes)
    beside = sum(found.terms_s.get(name, 0.0) for name in ("data", "optimizer", "sends"))
    assert end <= found.time_s - beside <= 1.12 * end


@pytest.mark.parametrize("pp", [2, 4, 8, 16])
@pytest.mark.parametrize("m", [1, 2, 5, 16, 100])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt3-6.7b"])
def test_the_bubble_of_a_zero_bubble_schedule_is_that_of_its_time_line(model, pp, m):
    """With one micro batch and with many, where embedding and head make stages unequal."""
    plan = TrainingPlan(batch=m, seq=2048, pp=pp, schedule="zero_bubble", framework="megatron-te")
    found = pm.train(model, pm.Cluster("h100", gpus=pp), plan)
    passes = pipeline_timeline(plan, m, found.stage_forward_s, found.stage_backward_s, found.stage_weights_s)
    end = max(one.end_s for one in passes)
    beside = sum(found.terms_s.get(name, 0.0) for name in ("data", "optimizer", "sends"))
    assert found.time_s - beside == pytest.approx(end, rel=0.01)


@given(pp=st.integers(2, 8), m=st.integers(1, 24), backward=st.floats(0.5, 3.0), weights=st.floats(0.0, 1.0))
def test_one_micro_batch_waits_for_weights_that_fill_nothing(pp, m, backward, weights):
    """(p - 1) (F + B) - (p - 1 + min(m, p) - 1) W of equal stages, with W <= F = 1 and W <= B - W."""
    plan, later = TrainingPlan(batch=m, seq=128, pp=pp, schedule="zero_bubble"), min(weights, 0.5 * backward)
    passes = pipeline_timeline(plan, m, [1.0] * pp, [backward] * pp, [later] * pp)
    waits = (pp - 1) * (1.0 + backward) - (pp - 2 + min(m, pp)) * later
    assert max(one.end_s for one in passes) == pytest.approx(m * (1.0 + backward) + waits)
