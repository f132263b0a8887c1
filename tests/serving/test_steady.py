"""The steady state: Little's law, limits, monotonicity, and a finite run's ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.static_batch import static_batch
from perfmodel.serving.steady import capacity, steady
from perfmodel.workloads.catalog import find_model


@pytest.fixture(scope="module")
def llama() -> Deployment:
    return Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="vllm")


def test_littles_law(llama: Deployment) -> None:
    # sequences = answers a second x time of one: here all of it is decode, since a prompt of one token is nothing
    state = steady(llama, 1, 1000, batch=64)
    assert float(state.output_tokens_per_s) * float(state.tpot_s) == pytest.approx(64, rel=0.01)


def test_one_user_decodes_alone(llama: Deployment) -> None:
    state = steady(llama, 512, 2, concurrency=1)
    alone = llama.step(decode=1, context=513)
    assert state.tpot_s == pytest.approx(alone.time_s)


def test_more_users_give_more_tokens_and_slower_ones(llama: Deployment) -> None:
    state = steady(llama, 512, 256, concurrency=np.array([1.0, 4, 16, 64, 256]))
    assert (np.diff(state.output_tokens_per_s) > 0).all()
    assert (np.diff(state.tpot_s) > 0).all()
    assert (np.diff(state.ttft_s) > 0).all()
    assert (np.asarray(state.tpot_low_s) < state.tpot_s).all()


def test_users_beyond_the_memory_wait(llama: Deployment) -> None:
    most = float(capacity(llama, 8000, 1000))
    full, over = steady(llama, 8000, 1000, concurrency=most), steady(llama, 8000, 1000, concurrency=2 * most)
    assert over.batch == most
    assert over.output_tokens_per_s == pytest.approx(full.output_tokens_per_s)
    # by Little's law the second half of the users waits as long as the first takes
    assert float(over.ttft_s) - float(full.ttft_s) == pytest.approx(most * 1000 / float(full.output_tokens_per_s))


def test_a_last_wave_that_is_not_full_costs_throughput(llama: Deployment) -> None:
    endless = float(steady(llama, 128, 512, batch=100).output_tokens_per_s)
    whole = float(steady(llama, 128, 512, batch=100, requests=300).output_tokens_per_s)
    broken = float(steady(llama, 128, 512, batch=100, requests=301).output_tokens_per_s)
    assert whole == pytest.approx(endless)
    assert broken < 0.9 * whole


def test_a_cached_prefix_saves_time(llama: Deployment) -> None:
    cold, warm = steady(llama, 2048, 64, batch=32), steady(llama, 2048, 64, batch=32, prefix=1900)
    assert float(warm.output_tokens_per_s) > 1.5 * float(cold.output_tokens_per_s)
    assert warm.ttft_s < cold.ttft_s


@given(
    isl=st.integers(1, 8000), osl=st.integers(1, 4000), users=st.integers(1, 300), chunk=st.sampled_from([512, 8192])
)
def test_no_load_beats_the_step_or_breaks(isl: int, osl: int, users: int, chunk: int) -> None:
    deployment = _CHUNKED[chunk]
    state = steady(deployment, isl, osl, concurrency=users)
    least = deployment.step(decode=1, context=1).time_s
    assert state.tpot_s >= least
    assert 0 < state.ttft_s < np.inf
    assert state.output_tokens_per_s <= users / least


_CHUNKED = {
    chunk: Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), max_batched_tokens=chunk)
    for chunk in (512, 8192)
}


def test_arrays_equal_scalars(llama: Deployment) -> None:
    isl, osl, users = np.array([100.0, 3000, 20000]), np.array([900.0, 100, 500]), np.array([3.0, 50, 9])
    together = steady(llama, isl, osl, concurrency=users)
    for index in range(3):
        alone = steady(llama, isl[index], osl[index], concurrency=users[index])
        for name in ("ttft_s", "tpot_s", "output_tokens_per_s"):
            assert getattr(alone, name) == pytest.approx(np.asarray(getattr(together, name))[index])


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"isl": 0, "osl": 10}, "isl is below 1"),
        ({"isl": 10, "osl": 10, "concurrency": 0}, "not above 0"),
        ({"isl": 10, "osl": 10, "prefix": 10}, "not shorter than the prompt"),
        ({"isl": 200_000, "osl": 10}, "longer than the model's 131072 positions"),
    ],
)
def test_bad_loads_say_why(llama: Deployment, load: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        steady(llama, **load)  # type: ignore[arg-type]


def test_a_sequence_that_does_not_fit_says_what_would() -> None:
    small = Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), kv_tokens=1000)
    with pytest.raises(UsageError, match="room for 1000"):
        steady(small, 2000, 100)


def test_a_static_batch_is_its_prompts_and_its_steps(llama: Deployment) -> None:
    batch = static_batch(llama, 4, 256, 101)
    token = llama.step(decode=4, context=256 + 101 / 2)
    prompts = llama.step(prefill=[(4, 256, 256)])
    assert batch.tpot_s == pytest.approx(token.time_s)
    time = 4 * 101 / float(batch.output_tokens_per_s)
    assert time == pytest.approx(float(prompts.time_s) + 100 * float(token.time_s))
