"""Rules of a training plan, and the nearest plan that keeps them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import UsageError
from perfmodel.training.plan import TrainingPlan, divisors, nearest_divisor


def test_data_parallel_ranks_are_what_is_left():
    plan = TrainingPlan(batch=512, seq=8192, tp=4, pp=4, cp=2, micro_batch=2)
    assert plan.dp(64) == 2
    assert plan.micro_batches(64) == 128


def test_a_plan_that_does_not_divide_says_so():
    with pytest.raises(UsageError, match=r"3 x 1 x 1 = 3 does not divide 8 GPUs"):
        TrainingPlan(batch=8, seq=1024, tp=3).dp(8)
    with pytest.raises(UsageError, match=r"batch = 10 does not divide by dp = 4.*Nearest: batch=8"):
        TrainingPlan(batch=10, seq=1024).micro_batches(4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tp": 0}, {"tp": True}, {"seq": 10**12}, {"batch": 1.5}, {"zero": 4}, {"dtype": "fp7"}, {"recompute": "all"},
        {"vp": 2}, {"seq": 1001, "cp": 2}, {"pp": 2, "stages": (1, 2, 3)}, {"pp": 2, "vp": 2, "schedule": "gpipe"},
        {"attention": "fa9"}, {"optimizer": "adamm"}, {"grad_dtype": "fp8"},
        {"expert_imbalance": 0.5}, {"expert_imbalance": "x"},
        {"framework": 3}, {"hsdp": "yes"}, {"stages": 2}, {"stages": "ab", "pp": 2}, {"schedule": None},
        {"dispatcher": "deep"}, {"dispatcher": 1},
    ],
)  # fmt: skip
def test_bad_values_get_one_message(wrong):
    with pytest.raises(UsageError):
        TrainingPlan(**{"batch": 8, "seq": 1024, **wrong})


def test_the_schedule_follows_the_stages_of_a_gpu():
    assert TrainingPlan(batch=8, seq=64, pp=2).schedule == "1f1b"
    assert TrainingPlan(batch=8, seq=64, pp=2, vp=2).schedule == "interleaved"
    assert TrainingPlan(batch=8, seq=64, pp=2).changed(vp=2).schedule == "interleaved"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("schedule", "zero_bubble"), ("recompute", "selective_op"), ("recompute", "selective_layer"),
        ("attention", "eager-unfused"), ("optimizer", "adam-8bit"),
    ],
)  # fmt: skip
def test_words_take_hyphens_and_underscores(name, kept):
    plan = TrainingPlan(batch=8, seq=64, pp=2)
    for spelling in (kept, kept.replace("_", "-"), kept.replace("-", "_")):
        assert getattr(plan.changed(**{name: spelling}), name) == kept


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_divisors_divide(number, wanted):
    assert all(number % value == 0 for value in divisors(number))
    assert number % nearest_divisor(number, wanted) == 0
