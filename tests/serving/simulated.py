"""An engine whose step times are known by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.serving.policies import find_policy
from perfmodel.serving.simulate import Server


@dataclass(frozen=True)
class HandClock:
    """start + token (decoding sequences and prompt tokens) + key (keys of decoding sequences)."""

    start_s: float = 0.01
    token_s: float = 0.0
    key_s: float = 0.0

    def decode_s(self, sequences: int, context: float) -> float:
        return self.start_s + self.token_s * sequences + self.key_s * sequences * context

    def mixed_s(self, sequences: int, context: float, prompts: Sequence[tuple[int, int]]) -> float:
        return self.decode_s(sequences, context) + self.token_s * sum(tokens for tokens, _ in prompts)


_OF_SERVER = (
    *("replicas", "routing", "kv_bytes_token", "link"),
    *("sequence_tokens", "sequence_bytes", "host_bytes_per_s", "windows"),
)


def server(policy: str = "chunked-prefill", kv_tokens: float = math.inf, clock: Any = None, **values: Any) -> Server:
    """Return one replica with a policy's values and a clock."""
    own = {key: values.pop(key) for key in list(values) if key in _OF_SERVER}
    return Server(clock or HandClock(), find_policy(policy).changed(**values), kv_tokens, **own)
