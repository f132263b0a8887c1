"""Shared experts beside the exchanges of routed ones, and tokens in 8 bits on their way to experts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.training.exchange import NARROW
from perfmodel.training.expert_overlap import beside_shared_s
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.workloads.catalog import find_model

DEEPSEEK, QWEN = (find_model(name) for name in ("deepseek-v2-lite", "qwen3-30b-a3b"))
times = st.floats(0.0, 10.0)


def plan(**values: object) -> TrainingPlan:
    usual = {"batch": 16, "seq": 4096, "ep": 16, "framework": "megatron-te", "dtype": "fp8"}
    return TrainingPlan(**(usual | values))  # type: ignore[arg-type]


def step(model: object = DEEPSEEK, gpus: int = 16, **values: object) -> TrainingStep:
    return pm.train(model, pm.Cluster("h100", gpus=gpus, nic="400Gb/s"), plan(**values))


def test_each_half_of_the_shared_experts_hides_one_way():
    # 3 beside 2, 5 beside 6
    assert beside_shared_s(3.0, 5.0, 2.0, 6.0, 0.0) == pytest.approx(2.0 + 5.0)
    assert beside_shared_s(3.0, 5.0, 2.0, 6.0, 0.15) == pytest.approx(0.85 * 7.0)


@given(ways=st.tuples(times, times), products=st.tuples(times, times), contention=st.floats(0.0, 1.0))
def test_shared_experts_hide_no_more_than_exchanges_or_their_own_time(ways, products, contention):
    hidden = beside_shared_s(*ways, *products, contention)
    assert -1e-9 <= hidden <= min(sum(ways), sum(products)) + 1e-9


def test_8_bits_with_a_scale_for_128_are_33_of_64_bytes():
    """Of 7,168 numbers 7,168 B and 56 scales of 4 B, in place of 14,336 B."""
    assert NARROW * 2.0 * 7168 == 7168 + 56 * 4


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "allgather"])
def test_tokens_in_8_bits_save_a_quarter_of_the_exchanges(dispatcher):
    """One of two ways takes 33/64 of the bytes: 0.758 of the time, latency and limits of links aside."""
    wide, narrow = (step(dispatcher=dispatcher, dispatch_dtype=dtype) for dtype in ("bf16", "fp8"))
    assert narrow.terms_s["expert"] / wide.terms_s["expert"] == pytest.approx(0.5 * (1.0 + NARROW), rel=0.03)
    others = [name for name in wide.terms_s if name != "expert"]
    assert [narrow.terms_s[name] for name in others] == pytest.approx([wide.terms_s[name] for name in others])


def test_16_bits_are_what_frameworks_send():
    assert step().terms_s == step(dispatch_dtype="bf16").terms_s
    assert any("No described framework" in note for note in step(dispatch_dtype="fp8").notes)


def test_shared_experts_shorten_the_exchange_and_nothing_else():
    plain, beside = step(), step(shared_expert_overlap=True)
    others = [name for name in plain.terms_s if name != "expert"]
    assert [beside.terms_s[name] for name in others] == pytest.approx([plain.terms_s[name] for name in others])
    assert 0.0 < beside.terms_s["expert"] < plain.terms_s["expert"]
    both = step(shared_expert_overlap=True, dispatch_dtype="fp8")
    assert both.time_s < min(beside.time_s, step(dispatch_dtype="fp8").time_s)


def test_what_is_computed_anew_hides_its_exchanges_too():
    plain, beside = (step(recompute="full", shared_expert_overlap=way) for way in (False, True))
    assert beside.terms_s["recompute"] < plain.terms_s["recompute"]


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (QWEN, {}, "shared_expert_overlap needs a model with shared experts"),
        (DEEPSEEK, {"dispatcher": "deepep"}, "needs the dispatcher alltoall, not deepep. Use dispatcher = alltoall"),
        (DEEPSEEK, {"expert_overlap": True}, "needs no other passes beside the exchanges"),
        (DEEPSEEK, {"framework": "megatron-bridge"}, "needs the dispatcher alltoall, not deepep"),
    ],
)
def test_what_shared_experts_cannot_run_beside(model, values, message):
    with pytest.raises(UsageError) as caught:
        step(model, shared_expert_overlap=True, **values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dispatch_dtype": "fp8", "dtype": "bf16"}, "dispatch_dtype = fp8 sends what products of 8 bits read"),
        ({"dispatch_dtype": "int8"}, "unknown dispatch_dtype 'int8'"),
        ({"dispatch_dtype": "fp8", "ep": 1}, "dispatch_dtype fp8 is of tokens among expert parallel ranks, and ep = 1"),
        ({"shared_expert_overlap": True, "ep": 1}, "shared_expert_overlap hides exchanges of experts, and ep = 1"),
    ],
)
def test_wrong_options(values, message):
    with pytest.raises(UsageError) as caught:
        step(**values)
    assert message in str(caught.value)
