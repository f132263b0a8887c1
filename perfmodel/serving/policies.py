"""How an engine chooses what a step computes: continuous, prefill-first, estimated, reserved, static, dynamic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from perfmodel.errors import UsageError, expect_numbers, unknown_name

RECOMPUTE, SWAP = "recompute", "swap"
#: what happens to the keys and values of a sequence that is preempted
PREEMPTIONS = (RECOMPUTE, SWAP)
#: tokens of a block of the KV cache in vLLM (its ``block_size``) and most engines
BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Policy:
    """The rules of a scheduler.

    Attributes
    ----------
    name : its name in `POLICIES`.
    max_num_seqs : most sequences that run at once.
    max_batched_tokens : most tokens of a step with prefill.
    chunked : a prompt may be computed in several steps; otherwise a longer prompt has a step of its own.
    mixed : a step may hold decoding sequences and prompts; otherwise decoding waits for prompts.
    reserve : a request enters only when the cache has room for its whole prompt and answer, so that none is preempted.
    preemption : one of `PREEMPTIONS`.
    keeps_blocks : the blocks of a preempted sequence stay readable until others take them, as a prefix cache has it.
    watermark : share of the cache that stays free when a request enters.
    conservativeness : factor on the share of what sequences may still generate that stays free when a request enters,
        see `perfmodel.serving.new_tokens`; None where none of it does.
    block_tokens : tokens of a block of the cache.
    batch : requests of a static or dynamic batch; 0 for continuous batching.
    ahead : a step is scheduled while the one before it runs, so that a request that comes in that one is not in it.
    encoded : most prompts that begin in a step, since an encoder reads the sound of each; 0 for no limit.
    max_wait_s : longest time that the oldest request waits for a batch to fill [s]; infinite for static batching.

    Raises
    ------
    UsageError
        On construction, for a value out of its range.
    """

    name: str
    max_num_seqs: int = 1024
    max_batched_tokens: int = 8192
    chunked: bool = True
    mixed: bool = True
    reserve: bool = False
    preemption: str = RECOMPUTE
    keeps_blocks: bool = False
    watermark: float = 0.0
    conservativeness: float | None = None
    block_tokens: int = BLOCK_TOKENS
    batch: int = 0
    ahead: bool = False
    max_wait_s: float = math.inf
    encoded: int = 0

    def __post_init__(self) -> None:
        counts = {key: getattr(self, key) for key in ("max_num_seqs", "max_batched_tokens", "block_tokens", "batch")}
        expect_numbers(Integral, **counts)
        expect_numbers(Real, watermark=self.watermark, max_wait_s=self.max_wait_s)
        for key in ("max_num_seqs", "max_batched_tokens", "block_tokens"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key} is {getattr(self, key)}.", place=self.name, remedy="Give 1 or more.")
        if self.preemption not in PREEMPTIONS:
            raise unknown_name("preemption", self.preemption, PREEMPTIONS, place=self.name)
        if not 0 <= self.watermark < 1:
            raise UsageError(f"the watermark is {self.watermark:g}.", place=self.name, remedy="Give 0 to below 1.")
        if self.conservativeness is not None:
            expect_numbers(Real, conservativeness=self.conservativeness)
            if not 0 <= self.conservativeness < math.inf:
                raise UsageError(
                    f"the conservativeness is {self.conservativeness:g}.", place=self.name, remedy="Give 0 or more."
                )
        if self.batch < 0 or not self.max_wait_s >= 0:
            raise UsageError("batch and maximum wait are 0 or more.", place=self.name)

    def changed(self, **values: Any) -> Policy:
        """Return the policy with other values; those that are None stay as they are."""
        return replace(self, **{key: value for key, value in values.items() if value is not None})


_POLICIES = (
    Policy("chunked-prefill", keeps_blocks=True),
    Policy("chunked-recompute", watermark=0.01),
    Policy("no-evict", reserve=True),
    Policy("prefill-first", chunked=False, mixed=False, watermark=0.01),
    Policy("new-token-ratio", chunked=False, mixed=False, keeps_blocks=True, conservativeness=1.0),
    Policy("static", chunked=False, mixed=False, reserve=True, batch=32),
    Policy("dynamic", chunked=False, mixed=False, reserve=True, batch=32, max_wait_s=0.1),
)
#: name -> policy: vLLM v1 (chunked-prefill, with a prefix cache by default); TensorRT-LLM's guaranteed no evict; vLLM
#: v0 and nano-vLLM (prefill-first, watermark 0.01 as in vLLM v0's block manager; chunked-recompute where v0 reads
#: prompts in chunks, with the same block manager and no prefix cache by default); SGLang (new-token-ratio); batches of
#: equal start (static), with a longest wait (dynamic, Triton's dynamic batcher)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _POLICIES})


def find_policy(name: str) -> Policy:
    """Return the policy of a name.

    Raises
    ------
    UsageError
        When there is none.
    """
    if not isinstance(name, str) or name not in POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return POLICIES[name]
