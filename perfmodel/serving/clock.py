"""The time of a step from tables: of the linear part over tokens, of attention over sequences and keys."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from perfmodel.cluster.dispatch import exposed
from perfmodel.core.work import Number, maximum, minimum
from perfmodel.serving.cost import Array, Cost
from perfmodel.serving.grid import Curve, Surface
from perfmodel.serving.kernels import Kernels
from perfmodel.serving.sound import TERM, encoded, encoder_kernels

#: tokens of a GPU at which the linear part is computed: finely where the tiles of products end, at 64, 128 and 256
_EDGES = np.array(
    [16.0, 32.0, 48.0, 64.0, 80.0, 96.0, 112.0, 128.0, 160.0, 192.0, 224.0, 256.0, 320.0, 384.0, 448.0, 512.0]
)
TOKENS = np.unique(
    np.concatenate([np.arange(1.0, 9.0), [12.0, 24.0, 40.0], _EDGES, _EDGES + 1.0, np.arange(576.0, 2049.0, 64.0),
                    np.round(np.geomspace(2048.0, 65536.0, 30))])
)  # fmt: skip
#: sequences and keys at which attention in decode is computed
SEQUENCES = np.unique(np.concatenate([np.arange(1.0, 5.0), np.round(np.geomspace(6.0, 8192.0, 26))]))
CONTEXTS = np.unique(np.round(np.geomspace(16.0, 262144.0, 25)))
#: prompts of a step, their new tokens, and the keys before those, at which attention in prefill is computed
PROMPTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0])
_PROMPTS = PROMPTS.tolist()
QUERIES = np.unique(np.concatenate([[1.0, 8.0], np.round(np.geomspace(16.0, 131072.0, 40))]))
#: prompts that were read alone of which the time is kept
_KEPT = 65536
#: requests whose sound a step encodes
ENCODED = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 16.0, 32.0, 64.0])
BEFORE = np.unique(np.concatenate([[0.0], np.round(np.geomspace(64.0, 262144.0, 13))]))
#: tokens of a step from which on it may run as two halves
_FEWEST_HALVED = 2.0
#: standard deviation of what halves hide, as a share of it: assumed, so that the interval holds SGLang's prompts on 32
#: H100 and its decode on 72, 50,302 to 57,674 and 22,282 tokens/s a node (lmsys.org, 2025-05-05, "large-scale EP")
_HIDDEN_DEVIATION = 0.3


_Times = TypeVar("_Times")
#: times that several deployments share, see `_shared`; and how many are kept, 60 kB each at most
_TIMES: dict[object, tuple[Any, object]] = {}
_MOST_TIMES = 1024


class Chunk(NamedTuple):
    """Prompts of a step that are alike: how many, new tokens of each, and keys of each with the cached ones."""

    prompts: float
    tokens: float
    keys: float


@overload
def busiest(number: float, share: int) -> float: ...
@overload
def busiest(number: Array, share: int) -> Array: ...
def busiest(number: Number, share: int) -> Number:
    """Return how many of some sequences the one of ``share`` copies and micro-batches has that has most of them.

    They are dealt out evenly, and none is divided; of less than one, a mean over steps, the busiest has all.

    >>> busiest(16.0, 4), busiest(3.0, 4), busiest(0.5, 4)
    (4.0, 1.0, 0.5)
    """
    if share == 1:
        return number
    if isinstance(number, np.ndarray):
        return maximum(number / share, minimum(number, 1.0))
    return max(number / share, min(number, 1.0))  # which a simulation asks for in every step


class Clock:
    """How long a step takes on one GPU of a stage.

    Each method takes numbers of one GPU and one micro-batch, those that have most to do: `busiest` divides the
    sequences of the deployment among them. Experts that copies of the attention share work on the tokens of all copies,
    so that the mean of these counts.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.kernels_per_layer = kernels.kernels_per_layer
        self.prompt_kernels_per_layer = kernels.prompt_kernels_per_layer
        layers = kernels.parallel, kernels.weights, kernels.sampling
        linear = _shared("linear", kernels, layers, lambda: kernels.linear(TOKENS))
        head = _shared("head", kernels, layers, lambda: kernels.head(TOKENS))
        self.linear = {term: _over_tokens(time) for term, time in linear.times.items()}
        self.head = Curve(TOKENS, head.total_s)
        self.spread = {family: _over_tokens(value) for family, value in linear.spread.items()}
        sequences, contexts = SEQUENCES[:, None], CONTEXTS[None, :]
        time, deviation = _shared("decode", kernels, (kernels.kv,), lambda: kernels.decode(sequences, contexts))
        self.decode, self.decode_spread = (
            Surface(SEQUENCES, CONTEXTS, time),
            Surface(SEQUENCES, CONTEXTS, time * deviation),
        )
        self.prefill, self.prefill_spread = self._prefill(kernels)
        #: (new tokens, keys) of a prompt that is read alone -> time of its attention [s]
        self._alone_s: dict[tuple[float, float], float] = {}
        self._guessed_s = kernels.attention.guessed_s
        self.encoder_kernels = encoder_kernels(kernels)
        self.encoder, self.encoder_spread = _encoder(kernels)
        parallel = kernels.parallel
        self._common = {"experts"} if parallel.copies_share else set()
        self._halves, self._contention = parallel.halves, kernels.exchanges.contention
        beside = {"exchange"} if self._halves else set()
        own, common = (
            sum((time for term, time in linear.times.items() if term not in beside and (term in self._common) == one),
                np.zeros(()))
            for one in (False, True)
        )  # fmt: skip
        self._own = _over_tokens(own)
        self._of_experts = _over_tokens(common) if self._common else None

    def _prefill(self, kernels: Kernels) -> tuple[list[Surface], list[Surface]]:
        """Return for each number of prompts the time of attention of one of them, and its spread."""
        queries, before = QUERIES[None, :, None], BEFORE[None, None, :]
        prompts = PROMPTS[:, None, None]
        time, deviation = _shared(
            "prefill", kernels, (kernels.kv,), lambda: kernels.prefill(prompts, queries, queries + before)
        )
        each = time / prompts
        spread = each * deviation
        return ([Surface(QUERIES, BEFORE, part) for part in each], [Surface(QUERIES, BEFORE, part) for part in spread])

    def cost(
        self,
        sequences: Array,
        context: Array,
        chunks: Sequence[tuple[Array, Array, Array]],
        rows: Array,
        mean_tokens: Array,
        each: float = 1.0,
    ) -> Cost:
        """Return the terms of the device's time for arrays of steps.

        Parameters
        ----------
        sequences, context : decoding sequences, and their mean number of keys.
        chunks : prompts, their new tokens, and their keys; arrays of the same shape.
        rows : rows of logits.
        mean_tokens : mean over all copies and micro-batches.
        each : tokens of a decoding sequence; more than one where a draft's are verified.
        """
        tokens = np.asarray(each * sequences + sum(count * new for count, new, _ in chunks))
        parts = np.where(tokens >= _FEWEST_HALVED, 2.0, 1.0) if self._halves else 1.0

        def of(term: str) -> Array:
            return np.asarray((mean_tokens if term.partition(" ")[0] in self._common else tokens) / parts)

        cost = Cost(
            {term: parts * curve(of(term)) for term, curve in self.linear.items()},
            {family: parts * curve(of(family)) for family, curve in self.spread.items()},
        )
        busy = sequences > 0
        some = np.maximum(sequences / parts, 1e-9)
        time = np.where(busy, parts * self.decode(some, context), 0.0)
        spread = np.where(busy, parts * self.decode_spread(some, context), 0.0)
        guessed = (each - 1.0) * sequences * self._guessed_s
        cost.add("kv", time + guessed, "decode", spread / np.maximum(time, 1e-30))
        for count, new, keys in chunks:
            index = np.clip(np.searchsorted(PROMPTS, count, side="right") - 1, 0, len(PROMPTS) - 1)
            before, new = np.maximum(keys - new, 0.0), np.maximum(new, 1e-9)
            alone = np.choose(index, [surface(new, before) for surface in self.prefill])
            wide = np.choose(index, [surface(new, before) for surface in self.prefill_spread])
            some = np.where(count > 0, count, 0.0)
            cost.add("prefill", some * alone, "prefill", wide / np.maximum(alone, 1e-30))
        if self._halves:
            exchange_s, computed_s = cost.times["exchange"], cost.total_s - cost.times["exchange"]
            left = exposed(exchange_s, computed_s, self._contention)
            cost.times["exchange"] = np.where(tokens >= _FEWEST_HALVED, left, exchange_s)
            cost.spread["overlap"] = _HIDDEN_DEVIATION * (exchange_s - cost.times["exchange"])
        cost.add("head", self.head(rows), "head", np.full(np.shape(rows), 0.1))
        if self.encoder is None:
            return cost
        # what is computed of a prompt for the first time has the keys that it computes
        began = np.asarray(sum(np.where(keys < new + 0.5, count, 0.0) for count, new, keys in chunks) + 0.0 * sequences)
        own = {family: curve(began) for family, curve in self.encoder_spread.items()}
        return cost.plus(Cost({TERM: self.encoder(began)}, own), 1.0)

    def decode_s(self, sequences: float, context: float, mean: float, each: float = 1.0, stages: float = 1.0) -> float:
        """Return the device's time of a step in which every sequence decodes, ``each`` tokens of it [s].

        ``mean`` is the number of sequences in the mean over copies and micro-batches. A step passes all ``stages``, of
        which the last has the logits.
        """
        tokens = each * sequences
        if self._halves and tokens >= _FEWEST_HALVED:
            layers_s = self._halved_s(tokens, each * mean, self._decoded_s(0.5 * sequences, context, each))
        else:
            layers_s = self._linear_s(tokens, each * mean) + self._decoded_s(sequences, context, each)
        return stages * layers_s + self.head.at(tokens)

    def _decoded_s(self, sequences: float, context: float, each: float) -> float:
        """Return the time of attention and states of decoding sequences [s]."""
        return self.decode.at(sequences, context) + (each - 1.0) * sequences * self._guessed_s

    def _linear_s(self, tokens: float, mean_tokens: float) -> float:
        """Return the time of all but attention and logits [s]."""
        own = self._own.at(tokens)
        if self._halves:
            own += self.linear["exchange"].at(tokens)
        return own if self._of_experts is None else own + self._of_experts.at(mean_tokens)

    def _halved_s(self, tokens: float, mean_tokens: float, attention_s: float) -> float:
        """Return the time of a step's layers as two halves, of which each hides the exchanges of the other [s].

        2 (c + `exposed` (e, c)): c computes half of the tokens, whose exchanges take e. Both halves read the weights.

        Parameters
        ----------
        tokens, mean_tokens : of both halves.
        attention_s : of one half [s].
        """
        exchange_s = self.linear["exchange"].at(0.5 * tokens)
        computed_s = self._linear_s(0.5 * tokens, 0.5 * mean_tokens) - exchange_s + attention_s
        return 2.0 * (computed_s + exposed(exchange_s, computed_s, self._contention))

    def mixed_s(
        self,
        sequences: float,
        context: float,
        mean: float,
        prompts: Sequence[tuple[float, float]],
        share: int = 1,
        ended: float | None = None,
        each: float = 1.0,
        stages: float = 1.0,
    ) -> float:
        """Return the device's time of a step with prompts [s].

        Parameters
        ----------
        sequences, context, mean, each, stages : as in `decode_s`.
        prompts : (new tokens, keys) of each prompt of the deployment.
        share : copies and micro-batches that share the prompts; none of these is divided, so that one has the longest.
        ended : prompts of the deployment that end in the step; None: all.
        """
        decoded = each * sequences
        if len(prompts) == 1:
            prompt = prompts[0]
            mean_read, read = prompt[0] / share, prompt[0]
            attention = self._alone_s.get(prompt) or self._read_alone(*prompt)
        else:
            mean_read, read, attention = self._read(prompts, share)
        mean_tokens, tokens = each * mean + mean_read, decoded + read
        ends = len(prompts) if ended is None else ended
        logits = decoded + (ends if share == 1 else busiest(ends, share))
        encoder_s = self._encoded_s(prompts, share) if self.encoder else 0.0
        if self._halves and tokens >= _FEWEST_HALVED:
            decode_s = self._decoded_s(0.5 * sequences, context, each) if sequences else 0.0
            layers_s = self._halved_s(tokens, mean_tokens, 0.5 * attention + decode_s)
        else:
            attention += self._decoded_s(sequences, context, each) if sequences else 0.0
            layers_s = self._linear_s(tokens, mean_tokens) + attention
        return stages * layers_s + self.head.at(logits) + encoder_s

    def _read(self, prompts: Sequence[tuple[float, float]], share: int) -> tuple[float, float, float]:
        """Return the tokens of prompts in the mean, those of the part that has most, and its time of attention [s]."""
        surface = self.prefill[_index(math.ceil(len(prompts) / share))]
        tokens = most = attention = longest = 0.0
        for new, keys in prompts:
            time = surface.at(new, keys - new)
            tokens += new
            attention += time
            most, longest = max(most, new), max(longest, time)
        tokens /= share
        return tokens, max(tokens, most), max(attention / share, longest)

    def _read_alone(self, new: float, keys: float) -> float:
        """Return the time of attention of a prompt that is read alone [s], which is kept."""
        if len(self._alone_s) >= _KEPT:
            self._alone_s.clear()
        time = self._alone_s[new, keys] = self.prefill[0].at(new, keys - new)
        return time

    def _encoded_s(self, prompts: Sequence[tuple[float, float]], share: int) -> float:
        """Return the time to encode the sound of the prompts that begin in a step [s]."""
        began = sum(keys < new + 0.5 for new, keys in prompts)
        return self.encoder.at(busiest(float(began), share)) if self.encoder and began else 0.0


def _shared(name: str, kernels: Kernels, others: tuple[object, ...], of: Callable[[], _Times]) -> _Times:
    """Return times that depend on a part of a model, an engine, a machine, and ``others``; computed once.

    Deployments that differ in nothing else share them: attention those of all formats of weights, products those of all
    formats of keys. Engine and machine have no hash, and count as the same where they are one object.
    """
    same = kernels.engine, kernels.hardware
    key = name, kernels.shard, others, *map(id, same)
    found = _TIMES.get(key)
    if found is None:
        if len(_TIMES) >= _MOST_TIMES:
            _TIMES.clear()
        found = _TIMES[key] = of(), same  # which keeps engine and machine, and so their identities
    times: _Times = found[0]
    return times


def _encoder(kernels: Kernels) -> tuple[Curve | None, dict[str, Curve]]:
    """Return the time to encode the sound of some requests, and what each family adds to its spread; None without."""
    if kernels.shard.encoder is None:
        return None, {}
    cost = encoded(kernels, ENCODED[1:])

    def from_none(value: Array) -> Curve:
        return Curve(ENCODED, np.append(0.0, np.broadcast_to(value, ENCODED[1:].shape)))

    return from_none(cost.total_s), {family: from_none(value) for family, value in cost.spread.items()}


def _index(prompts: int) -> int:
    return max(0, bisect_right(_PROMPTS, prompts) - 1)


def _over_tokens(value: Array) -> Curve:
    return Curve(TOKENS, np.broadcast_to(np.asarray(value, dtype=np.float64), TOKENS.shape))
