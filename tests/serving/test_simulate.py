"""The simulation: queueing theory, conservation of tokens and blocks, and cases that are computed by hand."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.serving.blocks import Blocks, Windows
from perfmodel.serving.deployment import Deployment, StepClock
from perfmodel.serving.journal import Journal
from perfmodel.serving.load import TabledClock
from perfmodel.serving.policies import POLICIES, Policy
from perfmodel.serving.pools import LEAST_LOADED, Link, run_pool
from perfmodel.serving.replica import Replica, steps_within
from perfmodel.serving.requests import Requests, closed_loop, open_loop
from perfmodel.serving.simulate import Server, simulate_server
from perfmodel.workloads.catalog import find_model
from tests.serving.simulated import HandClock, server

CONTINUOUS = ["chunked-prefill", "no-evict", "prefill-first", "new-token-ratio"]
SLOWER_WITH_LOAD = HandClock(0.01, 1e-5, 1e-8)


def test_one_request_takes_its_prompt_step_and_a_step_for_each_later_token() -> None:
    replay = simulate_server(server(clock=HandClock(0.01, 1e-4)), closed_loop(1, 1, 100, 11))
    assert replay.ttft_s[0] == pytest.approx(0.01 + 100e-4)
    assert replay.latency_s[0] == pytest.approx(0.02 + 10 * 0.0101)
    assert replay.tpot_s[0] == pytest.approx(0.0101)
    assert replay.statistics("itl_s")["mean"] == pytest.approx(0.0101)


def test_a_long_prompt_takes_several_steps_of_the_token_budget() -> None:
    replay = simulate_server(server(clock=HandClock(0.01, 1e-4), max_batched_tokens=40), closed_loop(1, 1, 100, 1))
    assert replay.ttft_s[0] == pytest.approx(3 * 0.01 + 100e-4)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_littles_law_sequences_in_the_system_are_rate_times_latency(policy: str) -> None:
    load = open_loop(15.0, 800, 300, 40, spread=0.5, seed=3)
    replay = simulate_server(server(policy, 40_000, SLOWER_WITH_LOAD, max_num_seqs=16), load)
    in_system = replay.mean_running + replay.mean_queued
    assert in_system == pytest.approx(replay.latency_s.sum() / replay.duration_s, rel=1e-6)


def test_waiting_time_of_one_token_requests_is_that_of_an_m_d_1_queue() -> None:
    service, utilization = 0.01, 0.7  # W = s rho / (2 (1 - rho)), Pollaczek and Khinchine
    load = open_loop(utilization / service, 40_000, 1, 1, seed=1)
    replay = simulate_server(server(max_batched_tokens=1), load)
    assert replay.queued_s.mean() == pytest.approx(service * utilization / (2 * (1 - utilization)), rel=0.05)
    assert replay.busy_share == pytest.approx(utilization, rel=0.02)


@pytest.mark.parametrize("policy", CONTINUOUS)
def test_without_a_queue_the_simulation_equals_the_steady_state(policy: str) -> None:
    # every step takes 10 ms, so that a request takes as many steps as its answer has tokens
    replay = simulate_server(server(policy), closed_loop(8, 400, 64, 50))
    assert replay.output_tokens_per_s == pytest.approx(8 / 0.01, rel=1e-6)
    assert replay.tpot_s == pytest.approx(np.full(400, 0.01))
    assert replay.queued_s.max() == 0


def test_the_same_seed_gives_the_same_result() -> None:
    results = [
        simulate_server(server(clock=SLOWER_WITH_LOAD), open_loop(20.0, 500, 200, 30, spread=0.4, seed=seed))
        for seed in (5, 5, 6)
    ]
    assert np.array_equal(results[0].last_s, results[1].last_s)
    assert not np.array_equal(results[0].last_s, results[2].last_s)


def test_a_load_above_capacity_is_reported_with_the_growth_of_the_queue() -> None:
    # one sequence at a time, five steps of 10 ms each: 20 requests a second
    replay = simulate_server(server(max_num_seqs=1), open_loop(50.0, 2000, 8, 5, seed=2))
    assert replay.count == 2000
    assert replay.growth is not None
    assert replay.growth.capacity_per_s == pytest.approx(20, rel=0.1)
    assert replay.growth.per_s == pytest.approx(30, rel=0.1)


def test_arrivals_faster_than_any_answer_still_say_the_capacity() -> None:
    replay = simulate_server(server(max_num_seqs=1), open_loop(1e9, 300, 8, 5, seed=2))
    assert replay.growth is not None
    assert replay.growth.capacity_per_s == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize("rate", [5.0, 17.0])
def test_a_load_below_capacity_has_no_growing_queue(rate: float) -> None:
    assert simulate_server(server(max_num_seqs=1), open_loop(rate, 2000, 8, 5, seed=2)).growth is None


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_full_cache_preempts_the_youngest_and_still_gives_every_token(preemption: str) -> None:
    load = open_loop(math.inf, 12, 32, 100)
    ran = server(kv_tokens=512, preemption=preemption, kv_bytes_token=1.0)
    replay = simulate_server(ran, load)
    assert replay.preemptions > 0
    assert replay.generated_tokens == 12 * 100
    assert replay.last_s[0] == replay.last_s.min()  # the oldest is never preempted
    recomputed = replay.computed_tokens - 12 * (32 + 99)
    assert (recomputed > 0) == (preemption == "recompute")


def test_a_preempted_sequence_finds_the_blocks_that_nobody_took() -> None:
    load = open_loop(math.inf, 12, 32, 100)
    kept, lost = (
        simulate_server(server(kv_tokens=512, clock=SLOWER_WITH_LOAD, keeps_blocks=keeps), load)
        for keeps in (True, False)
    )
    assert kept.preemptions > 0
    assert 12 * (32 + 99) < kept.computed_tokens < lost.computed_tokens
    assert kept.generated_tokens == lost.generated_tokens
    assert kept.duration_s < lost.duration_s


def test_a_prompt_that_is_preempted_half_read_finds_its_blocks_too() -> None:
    """The second prompt has 208 tokens when the other one takes two more of 16 blocks: it lacks these when it is back.

    vLLM V1 caches the blocks of each chunk of a prompt (``KVCacheManager.allocate_slots``).
    """
    load = Requests(np.zeros(2), np.array([32, 230]), np.array([40, 2]))
    kept, lost = (
        simulate_server(server(kv_tokens=256, max_batched_tokens=64, keeps_blocks=keeps), load)
        for keeps in (True, False)
    )
    assert kept.preemptions == lost.preemptions == 1
    least = 32 + 39 + 230 + 1
    assert (kept.computed_tokens - least, lost.computed_tokens - least) == (2 * 16, 208)


def test_a_preempted_sequence_with_states_is_computed_anew() -> None:
    """Its state is that of its last token: blocks of its first ones that nobody took do not help."""
    load = open_loop(math.inf, 12, 32, 100)
    kept, lost = (
        simulate_server(server(kv_tokens=768, clock=SLOWER_WITH_LOAD, keeps_blocks=keeps, sequence_tokens=20.0), load)
        for keeps in (True, False)
    )
    assert kept.preemptions > 0
    assert kept.computed_tokens == lost.computed_tokens
    assert kept.duration_s == lost.duration_s


def test_a_prompt_in_chunks_leaves_the_blocks_of_its_states_alone() -> None:
    """Of ten blocks one sequence holds its states' three and up to four more; the other waits for its last chunks."""
    load = Requests(np.zeros(2), np.array([16, 96]), np.array([40, 2]))
    journal = Journal(load.prompt.tolist(), load.output.tolist())
    (engine,) = server(kv_tokens=160, sequence_tokens=48.0, max_batched_tokens=17).engines(journal)
    run_pool([engine], load, journal, "round-robin", lambda done: None)
    assert sorted(journal.done) == [0, 1]
    used = engine.tally.samples[:, 3]
    assert used.max() == 10
    assert used.min() >= 0


def test_a_swap_moves_the_states_of_a_sequence_out_and_in() -> None:
    load = open_loop(math.inf, 12, 32, 100)
    sizes = {"kv_tokens": 512, "preemption": "swap", "host_bytes_per_s": 1e9}
    without, moved = (simulate_server(server(sequence_bytes=size, **sizes), load) for size in (0.0, 1e6))
    assert moved.preemptions == without.preemptions > 0
    assert moved.duration_s - without.duration_s == pytest.approx(2 * moved.preemptions * 1e6 / 1e9)


def test_reservation_never_preempts() -> None:
    replay = simulate_server(server("no-evict", kv_tokens=512), open_loop(math.inf, 12, 32, 100))
    assert replay.preemptions == 0
    assert replay.mean_running < 4  # three requests of 131 tokens, in 9 blocks each, fit into 32 blocks


def test_static_batches_compute_until_their_longest_answer() -> None:
    load = Requests(np.zeros(4), np.full(4, 10), np.array([1, 2, 3, 9]))
    replay = simulate_server(server("static", batch=2), load)
    assert replay.last_s == pytest.approx([0.01, 0.02, 0.02 + 0.03, 0.02 + 0.09])


def test_dynamic_batches_start_after_the_longest_wait() -> None:
    load = Requests(np.array([0.0, 1.0, 5.0]), np.full(3, 10), np.ones(3, dtype=np.int64))
    replay = simulate_server(server("dynamic", batch=8, max_wait_s=2.0), load)
    assert replay.last_s == pytest.approx([2.01, 2.01, 5.01])  # nobody comes after the last one


def test_a_prompt_stalls_the_answers_that_it_interrupts_and_not_its_own() -> None:
    """Steps of 10 ms, and 1 ms for a token of a prompt: the second one of 100 tokens holds the first answer up."""
    load = Requests(np.array([0.0, 0.035]), np.array([10, 100]), np.full(2, 6))
    gaps = simulate_server(server("prefill-first", clock=HandClock(0.01, 1e-3)), load).gaps
    waited = 0.11 + 0.012  # the step of the prompt, and the next one of two sequences
    assert gaps.quantile(1.0) == pytest.approx(waited, rel=0.01)
    assert gaps.quantile(0.85) < 0.013
    assert gaps.count == 10


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_the_token_after_a_preemption_comes_when_the_sequence_is_back(preemption: str) -> None:
    """The younger of two sequences leaves a full cache until the older has ended."""
    load = Requests(np.zeros(2), np.full(2, 32), np.full(2, 50))
    full = server(kv_tokens=128, preemption=preemption, keeps_blocks=False)
    replay = simulate_server(full, load)
    assert replay.preemptions == 1
    assert replay.gaps.quantile(1.0) > 0.15
    assert replay.gaps.mean_s == pytest.approx((replay.last_s - replay.first_s).sum() / 98)


def test_replicas_share_a_load() -> None:
    load = open_loop(60.0, 1500, 8, 10, spread=0.9, seed=4)
    one, turns, fewest = (
        simulate_server(server(max_num_seqs=2, clock=SLOWER_WITH_LOAD, **more), load)
        for more in ({"replicas": 1}, {"replicas": 4}, {"replicas": 4, "routing": LEAST_LOADED})
    )
    assert one.growth is not None
    assert turns.growth is None
    assert fewest.queued_s.mean() <= turns.queued_s.mean() < one.queued_s.mean()
    assert len({replay.generated_tokens for replay in (one, turns, fewest)}) == 1


def test_a_running_batch_counts_as_load() -> None:
    """A batch of one takes a second on each of two engines: the second request goes to the idle one, at once."""
    load = Requests(np.array([0.0, 0.1, 0.2]), np.full(3, 10), np.full(3, 100))
    replay = simulate_server(server("static", batch=1, replicas=2, routing=LEAST_LOADED), load)
    assert replay.queued_s == pytest.approx([0.0, 0.0, 0.8])


@pytest.mark.parametrize("closed", [False, True])
def test_decoding_apart_from_prefill_is_not_disturbed_by_it(closed: bool) -> None:
    clock = HandClock(0.01, 1e-4)
    load = closed_loop(4, 200, 500, 20) if closed else open_loop(8.0, 200, 500, 20, seed=1)
    link = Link(bytes_per_s=1e9, latency_s=0.001, bytes_per_token=1e5)  # 51 ms a prompt
    apart = Server(clock, POLICIES["chunked-prefill"], prefill=server(clock=clock), link=link)
    replay, mixed = simulate_server(apart, load), simulate_server(server(clock=clock), load)
    assert replay.count == 200
    first_gap = link.transfer_s(500) + 0.0101
    assert replay.tpot_s.min() >= (first_gap + 18 * 0.0101) / 19 - 1e-12
    # the first token of each answer is followed by the transfer, 18 steps of at most four sequences by nothing else
    assert replay.gaps.quantile(0.94) == pytest.approx(0.0104, rel=0.03)
    assert replay.gaps.quantile(1.0) >= first_gap * 0.99
    assert replay.gaps.mean_s == pytest.approx((replay.last_s - replay.first_s).sum() / (200 * 19))
    assert mixed.gaps.quantile(1.0) >= (0.0101 if closed else 0.06)  # 50 ms for a prompt that others wait for
    assert replay.generated_tokens == 200 * 20


def test_the_link_takes_the_prompt_that_ends_first() -> None:
    """Two prefill engines start together: the short prompt ends at 0.02 s, and does not wait for the long one's."""
    clock = HandClock(0.01, 1e-3)
    link = Link(bytes_per_s=1.0, latency_s=0.0, bytes_per_token=0.001)  # 1 ms a token
    apart = Server(clock, POLICIES["chunked-prefill"], prefill=server(clock=clock, replicas=2), link=link)
    replay = simulate_server(apart, Requests(np.zeros(2), np.array([1000, 10]), np.full(2, 2)))
    step_s = 0.011
    assert replay.first_s == pytest.approx([1.01, 0.02])
    assert replay.last_s == pytest.approx([1.01 + 1.0 + step_s, 0.02 + 0.01 + step_s])


def test_an_interrupted_simulation_keeps_what_has_ended() -> None:
    calls = 0

    class Interrupted(HandClock):
        def decode_s(self, sequences: int, context: float) -> float:
            nonlocal calls
            calls += 1
            if calls > 500:
                raise KeyboardInterrupt
            return 0.01

    replay = simulate_server(server(clock=Interrupted()), open_loop(10.0, 2000, 8, 10))
    assert replay.interrupted
    assert 0 < replay.count < 2000
    assert np.isfinite(replay.statistics("ttft_s")["p99"])


def test_an_interruption_of_the_interval_keeps_the_simulation_and_is_told() -> None:
    """Ctrl-C while the ends of the interval are simulated ends the command, too."""
    calls = 0

    class Late(HandClock):
        def mixed_s(self, sequences: int, context: float, prompts: object) -> float:
            nonlocal calls
            calls += 1
            if calls > 250:
                raise KeyboardInterrupt
            return 0.01

    replay = simulate_server(server(clock=Late()), open_loop(10.0, 200, 8, 10), spread=lambda *_: (0.8, 1.25))
    assert replay.count == 200
    assert replay.interrupted
    assert replay.ends is None


def test_the_interval_of_steps_becomes_that_of_every_figure() -> None:
    ran = server(clock=SLOWER_WITH_LOAD, max_num_seqs=4)
    load = closed_loop(8, 100, 50, 20)
    replay = simulate_server(ran, load, spread=lambda batch, context: (0.8, 1.25))
    figures = replay.statistics("tpot_s")
    assert figures["mean_low"] == pytest.approx(0.8 * figures["mean"])  # a closed loop scales with its steps
    assert figures["p99_high"] == pytest.approx(1.25 * figures["p99"])
    assert replay.interval("output_tokens_per_s") == pytest.approx(
        (replay.output_tokens_per_s / 1.25, replay.output_tokens_per_s / 0.8)
    )


def test_what_steps_do_not_explain_widens_the_first_token_alone() -> None:
    replay = simulate_server(server(), closed_loop(8, 100, 50, 20), spread=lambda batch, context: (0.8, 1.25))
    doubtful = replace(replay, first_ends=Stretch(Z80 * 0.1, Z80 * 0.3))
    narrow, wide = replay.statistics("ttft_s"), doubtful.statistics("ttft_s")
    expected = math.exp(math.hypot(math.log(narrow["mean_high"] / narrow["mean"]), Z80 * 0.3))
    assert wide["mean_high"] / wide["mean"] == pytest.approx(expected)
    sooner = math.exp(math.hypot(math.log(narrow["mean"] / narrow["mean_low"]), Z80 * 0.1))
    assert wide["mean"] / wide["mean_low"] == pytest.approx(sooner)
    assert doubtful.statistics("tpot_s") == replay.statistics("tpot_s")


def test_a_request_that_never_fits_is_refused() -> None:
    with pytest.raises(UsageError, match=r"1 request of 2 never fit: the largest has 109 tokens"):
        simulate_server(server(kv_tokens=100), Requests(np.zeros(2), np.full(2, 10), np.array([10, 100])))


def test_a_cached_prefix_is_not_computed_but_attended_to() -> None:
    clock = HandClock(0.01, 1e-4, 1e-6)
    whole, cached = (
        simulate_server(server(clock=clock), replace(closed_loop(1, 1, 100, 3), cached=prefix)) for prefix in (0, 64)
    )
    assert whole.ttft_s[0] - cached.ttft_s[0] == pytest.approx(64e-4)
    assert cached.tpot_s == pytest.approx(whole.tpot_s)
    with pytest.raises(UsageError, match="not shorter than the shortest prompt"):
        replace(closed_loop(1, 1, 100, 3), cached=100)


@given(sequences=st.integers(1, 300), context=st.floats(1, 40_000))
def test_lines_between_contexts_are_within_half_a_per_cent_of_the_clock(sequences: int, context: float) -> None:
    clock = _small_clock()
    expected = clock.decode_s(sequences, context)
    assert TabledClock(clock).decode_s(sequences, context) == pytest.approx(expected, rel=5e-3)


@functools.cache
def _small_clock() -> StepClock:
    config = find_model("layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=65536")
    return Deployment(config, hardware("h100")).clock()


@given(
    policy=st.sampled_from(sorted(POLICIES)),
    preemption=st.sampled_from(["recompute", "swap"]),
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.floats(0, 0.2)), min_size=1, max_size=25),
    blocks=st.integers(7, 30),
    budget=st.integers(1, 80),
    sequences=st.integers(1, 8),
    clients=st.integers(0, 5),
    states=st.integers(0, 40),
    windows=st.sampled_from([(), ((16, 1.0),), ((40, 0.5),), ((24, 0.3), (64, 0.6))]),
)
def test_tokens_and_blocks_are_conserved(
    policy: str, preemption: str, sizes: list[tuple[int, int, float]], blocks: int, budget: int, sequences: int,
    clients: int, states: int, windows: Windows,
) -> None:  # fmt: skip
    blocks += math.ceil(states / 16)
    prompt, output = (np.array([size[index] for size in sizes]) for index in (0, 1))
    gaps = np.array([0.0 if clients else size[2] for size in sizes])
    load = Requests(np.cumsum(gaps), prompt, output, clients)
    rules = {"preemption": preemption, "max_batched_tokens": budget, "max_num_seqs": sequences}
    ran = server(policy, blocks * 16, SLOWER_WITH_LOAD, sequence_tokens=float(states), windows=windows, **rules)
    journal = Journal(prompt.tolist(), output.tolist())
    (engine,) = ran.engines(journal)
    run_pool([engine], load, journal, "round-robin", lambda done: None)
    assert sorted(journal.done) == list(range(len(sizes)))
    assert engine.tally.generated == output.sum()
    assert engine.blocks.free == engine.blocks.total == blocks
    assert engine.outstanding == engine.running == 0
    first, last, arrival = (np.array(times) for times in (journal.first_s, journal.last_s, journal.arrival_s))
    assert np.all(arrival < first)
    assert np.all(first <= last)
    if isinstance(engine, Replica) and preemption == "swap" and not journal.preempted:
        assert engine.tally.tokens == prompt.sum() + output.sum() - len(sizes)
    gaps = engine.tally.gaps  # those of a request add up to the time from its first token to its last one
    assert gaps.count == (output - 1).sum()
    assert gaps.sum_s == pytest.approx((last - first).sum())
    samples = engine.tally.samples
    assert np.all((samples[:, 3] >= 0) & (samples[:, 3] <= blocks))
    assert all(before <= after for before, after in pairwise(samples[:, 0]))


@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=6),
    steps=st.integers(1, 120),
    share=st.sampled_from([0.25, 0.5, 0.9, 1.0]),
    window=st.integers(1, 100),
)
def test_a_growing_sequence_takes_what_its_length_has(
    lengths: list[int], steps: int, share: float, window: int
) -> None:
    """Beyond its window a sequence takes the part of its blocks that the other layers keep, whoever grows beside it."""
    blocks = Blocks(1e6, 16, windows=((window, share),))
    for length in lengths:
        blocks.join(length, 5)
    step, taken = 5, 0.0
    while step < 5 + steps:
        count = blocks.even_steps(step, 5 + steps - step)
        taken += blocks.needed_in(step, count, len(lengths))
        step += count
        blocks.narrow(step)
    assert taken == sum(blocks.of(length + steps) - blocks.of(length) for length in lengths)
    for length in lengths:
        blocks.leave(length + steps, step)
    assert all(blocks.needed(step + ahead) == 0 for ahead in range(16))
    most = max(lengths)
    assert blocks.of(blocks.tokens_in(blocks.of(most))) == blocks.of(most)


@pytest.mark.parametrize("others", [0, 50])
@pytest.mark.parametrize(("prompt", "fits"), [(6500, True), (7900, False)])
def test_what_a_windowed_request_needs_is_its_own(prompt: int, others: int, fits: bool) -> None:
    """Half of the layers keep 4096 tokens: 6600 are as many as 5348 in all, and 8000 as many as 6048."""
    load = Requests(
        np.zeros(1 + others), np.array([prompt] + [100] * others), np.full(1 + others, 101)
    )  # fmt: skip
    room = server(kv_tokens=6000, windows=((4096, 0.5),))
    if fits:
        assert simulate_server(room, load).count == 1 + others
        return
    with pytest.raises(UsageError, match=f"1 request of {1 + others} never fit: .* holds 6000"):
        simulate_server(room, load)


def test_swaps_and_transfers_move_what_windows_keep() -> None:
    link = Link(bytes_per_s=1e6, latency_s=0.0, bytes_per_token=1e3, windows=((64, 1.0),))
    assert link.transfer_s(50) == pytest.approx(0.05)
    assert link.transfer_s(5000) == pytest.approx(0.064)


@dataclass(frozen=True)
class WindowedClock(HandClock):
    """Steps whose time rises with the keys of a sequence until a window of them is full."""

    window: float = 512.0

    def decode_s(self, sequences: int, context: float) -> float:
        return super().decode_s(sequences, min(context, self.window))


@pytest.mark.parametrize("policy", ["chunked-prefill", "static"])
def test_a_run_of_steps_across_a_window_takes_the_sum_of_its_steps(policy: str) -> None:
    clock = WindowedClock(0.001, 0.0, 1e-5)
    replay = simulate_server(server(policy, clock=clock), closed_loop(4, 4, 127, 4001))
    steps_s = sum(clock.decode_s(4, 128.0 + step) for step in range(4000))
    assert replay.last_s - replay.first_s == pytest.approx(np.full(4, steps_s), rel=3e-3)


@given(gap=st.floats(0, 100), first=st.floats(1e-3, 10), slope=st.floats(0, 1))
def test_steps_within_a_gap_are_the_fewest_that_reach_it(gap: float, first: float, slope: float) -> None:
    steps = steps_within(gap, first, slope)
    taken = steps * first + slope * steps * (steps - 1) / 2
    before = (steps - 1) * first + slope * (steps - 1) * (steps - 2) / 2
    assert taken >= gap * (1 - 1e-6) or steps == 1
    assert before <= gap * (1 + 1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"watermark": 1.0}, "watermark is 1"),
        ({"preemption": "swop"}, "Did you mean 'swap'"),
        ({"batch": -1}, "0 or more"),
    ],
)
def test_policies_check_their_values(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Policy("mine").changed(**values)


@pytest.mark.parametrize("more", [{"max_num_seqs": 4}, {"kv_tokens": 4 * 112}])
def test_a_batch_starts_when_no_further_request_comes_into_it(more: dict[str, int]) -> None:
    """A static batch of 64 of which four fit is a batch of four; that the cache is full, a fifth one tells."""
    load = Requests(np.arange(40.0), np.full(40, 100), np.full(40, 10))
    limited, small = (simulate_server(server("static", **one), load) for one in ({"batch": 64, **more}, {"batch": 4}))
    assert np.all(limited.ttft_s <= small.ttft_s + ("kv_tokens" in more) + 1e-9)


def test_arrays_of_other_kinds_are_whole_numbers() -> None:
    narrow = Requests(np.zeros(3), np.full(3, 200, np.uint8), np.full(3, 100.0))
    assert (narrow.prompt.dtype, narrow.output.dtype) == (np.int64, np.int64)
    assert int((narrow.prompt + narrow.output).sum()) == 900
