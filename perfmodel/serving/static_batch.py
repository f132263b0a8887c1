"""A batch of prompts that starts at once and ends at once, as benchmarks of single engines run it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.serving.deployment import Deployment


@dataclass(frozen=True)
class StaticBatch:
    """Times of one batch; numbers are floats, or arrays for arrays of batches and lengths.

    Attributes
    ----------
    batch, isl, osl : sequences, and tokens of each prompt and answer.
    ttft_s, tpot_s : time until every sequence has its first token, and of each further one [s], with 80 % intervals.
    output_tokens_per_s : tokens of answers over the whole time, with its interval [1/s].
    """

    batch: Number
    isl: Number
    osl: Number
    ttft_s: Number
    ttft_low_s: Number
    ttft_high_s: Number
    tpot_s: Number
    tpot_low_s: Number
    tpot_high_s: Number
    output_tokens_per_s: Number
    output_tokens_per_s_low: Number
    output_tokens_per_s_high: Number


def static_batch(deployment: Deployment, batch: Number, isl: Number, osl: Number) -> StaticBatch:
    """Return the times of a batch: its prompts in steps of the budget of tokens, then osl - 1 steps of decode.

    t = ceil(B isl / budget) t(prompts) + (osl - 1) t(B, isl + osl / 2).

    Raises
    ------
    UsageError
        When a sequence is longer than the model's positions.
    """
    count, prompt, answer = (np.asarray(value, dtype=np.float64) for value in (batch, isl, osl))
    budget = float(deployment.token_budget * deployment.slots)
    steps = np.maximum(1.0, np.ceil(count * prompt / budget))
    each = count / steps  # prompts of a step; below 1 where a prompt takes several
    whole = np.maximum(each, 1.0)
    new = prompt * each / whole
    first = deployment.step(prefill=[(whole, new, (prompt + new) / 2.0)], rows=each)
    token = deployment.step(decode=count, context=prompt + answer / 2.0)
    ttft = steps * np.asarray(first.time_s)
    time = ttft + (answer - 1.0) * np.asarray(token.time_s)
    ends = [
        steps * np.asarray(a) + (answer - 1.0) * np.asarray(b)
        for a, b in ((first.low_s, token.low_s), (first.high_s, token.high_s))
    ]
    tokens = count * answer
    start = deployment.front_end_s
    soon, late = (start + steps * np.asarray(end) for end in (first.low_s, first.high_s))
    ttft_low, ttft_high = deployment.first_ends.widened(start + ttft, soon, late)
    return StaticBatch(
        plain(count), plain(prompt), plain(answer),
        plain(start + ttft), ttft_low, ttft_high, token.time_s, token.low_s, token.high_s,
        plain(tokens / time), plain(tokens / ends[1]), plain(tokens / ends[0]),
    )  # fmt: skip
