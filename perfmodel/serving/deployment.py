"""A model on an engine on GPUs: the time of one step, and the memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_binary
from perfmodel.core.work import Number, plain_ints
from perfmodel.errors import UsageError, expect, suggesting, unknown_name
from perfmodel.operators.routing import Dispatcher
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.topology import most_joined
from perfmodel.prediction.uncertainty import Z80
from perfmodel.serving import given
from perfmodel.serving.clock import Clock, busiest
from perfmodel.serving.cost import Array, Cost
from perfmodel.serving.engine import Engine, find_engine
from perfmodel.serving.host import Host
from perfmodel.serving.kernels import GREEDY, SAMPLINGS, Kernels
from perfmodel.serving.laboratories import Elsewhere, elsewhere_of
from perfmodel.serving.memory import Held, Memory, held_by, memory_of
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.precision import Format, kv_bytes, weight_format
from perfmodel.serving.releases import find_release
from perfmodel.serving.shard import Shard, shard
from perfmodel.serving.speculation import Speculation
from perfmodel.serving.step import Step
from perfmodel.serving.step_clock import StepClock
from perfmodel.serving.step_input import StepInput
from perfmodel.workloads.model_config import ModelConfig

#: prompts of a step: (how many, new tokens of each, keys of each with those in the cache)
Prefill = Sequence[tuple[Number, Number, Number]]


@dataclass(frozen=True)
class Deployment:
    """A model on some GPUs, served by an engine.

    Parameters
    ----------
    config : the model's shapes.
    hardware : one of the GPUs.
    tp, pp, ep, dp : tensor, pipeline, expert and data parallel GPUs, see `perfmodel.serving.parallel.Parallel`.
    engine : name of a profile, or the profile.
    engine_version : release of the engine, or a date that tells it ("2025-06"), which chooses among its profiles.
    weights, kv : formats of the weights, and of keys and values. Weights are by default as the checkpoint stores them,
        where the model's configuration says so, else bf16.
    max_num_seqs, max_batched_tokens : most sequences and tokens of a step of one copy; None: the engine's default.
    kv_tokens : tokens of keys and values that fit, as the engine prints them; None: computed.
    utilization : share of the memory for the engine; None: its default.
    graph : whether decode replays CUDA graphs; None: as the engine does.
    sampling : "greedy", or an algorithm of `perfmodel.operators.sampling.Sampling`: how a token is drawn.
    speculation : speculative decoding, None for none.
    dispatcher : how copies of the attention exchange tokens with experts that they share, see
        `perfmodel.operators.routing.Dispatcher`; "" as the engine does.
    batch_overlap : whether a step runs as two halves, the exchanges of one beside the compute of the other; they are
        those of copies that share experts.
    states : dtype of the states of linear attention and Mamba between steps: "fp32", "bf16" or "fp16"; "" is that
        which the model asks for, or else the engine's.
    laboratory : who runs it, as the sources of published runs name them; "" is anybody.
    release_known : whether an engine without a version is one of today, and not an unknown one.
    gpus_per_node : GPUs that share a host; None: as the machine's specification says.
    nic : network of one GPU in one direction, which exchanges of a layer over several hosts cross: text in bits or
        bytes ("400 Gb/s", "50 GB/s"), or a number [B/s]; None: the machine's.

    Raises
    ------
    UsageError
        When a name is unknown, the parallelism does not divide the model, the model does not fit, or GPUs exchange in
        each layer over a network that nobody gave.
    """

    config: ModelConfig
    hardware: Hardware
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    engine: str | Engine = "vllm"
    engine_version: str = ""
    weights: str = ""
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_tokens: int | None = None
    utilization: float | None = None
    graph: bool | None = None
    sampling: str = GREEDY
    speculation: Speculation | None = None
    laboratory: str = ""
    release_known: bool = True
    dispatcher: str = ""
    gpus_per_node: int | None = None
    nic: str | float | None = None
    states: str = ""
    batch_overlap: bool = False

    def __post_init__(self) -> None:
        plain_ints(self, ("tp", "pp", "ep", "dp", "max_num_seqs", "max_batched_tokens", "kv_tokens"))
        given.check_counts(
            max_num_seqs=self.max_num_seqs, max_batched_tokens=self.max_batched_tokens, kv_tokens=self.kv_tokens
        )
        given.check_texts(
            engine_version=self.engine_version, weights=self.weights, kv=self.kv, sampling=self.sampling,
            dispatcher=self.dispatcher, states=self.states, laboratory=self.laboratory,
        )  # fmt: skip
        object.__setattr__(self, "weights", self.weights or self.config.usual_weights)
        dispatcher = self.dispatcher and Dispatcher.parse(self.dispatcher, place="deployment")
        object.__setattr__(self, "dispatcher", dispatcher)
        for name in ("graph", "release_known", "batch_overlap"):
            given.check_switch(name, getattr(self, name))
        if not isinstance(self.engine, Engine):
            given.check_texts(engine=self.engine)
        object.__setattr__(self, "engine_version", find_release(self.engine_version, self.engine))
        given.check_utilization(self.utilization)
        given.check_decoder(self.config)
        given.check_encoder(self.config, self.profile.name, self.pp, self.speculation is not None)
        given.check_keys(self.config, self.kv, type(self).kv, self.kv_tokens)
        given.check_states(self.config, self.states)
        remedy = "Give perfmodel.serving.speculation.Speculation(tokens=3, acceptance=0.7)."
        expect(self.speculation, Speculation | None, "speculation", place="deployment", remedy=remedy)
        kv_bytes(self.kv)
        if self.sampling not in SAMPLINGS:
            raise unknown_name("sampling", self.sampling, SAMPLINGS, place="deployment")
        _ = self.profile, self.part, self.format, self.machine
        if self.batch_overlap:
            self._kernels.exchanges.check_halves()

    def __repr__(self) -> str:
        """Return what is served on what: all fields of model and machine would fill a page."""
        sizes = (("tp", self.tp), ("pp", self.pp), ("ep", self.ep), ("dp", self.dp))
        shared = "".join(f" {name}{size}" for name, size in sizes if size > 1)
        model = self.config.name or self.config.model_type
        gpus = f"{self.gpus} x {self.hardware.name}{shared}"
        return f"<Deployment: {model} on {gpus}, {self.profile.name}, weights {self.weights}, kv {self.kv}>"

    @cached_property
    def machine(self) -> Hardware:
        """One of the GPUs, with the hosts and the network that are given."""
        # The cluster checks that the network is known where GPUs exchange or send over it, also where the machine's is
        # meant.
        cluster = Cluster.of(self.hardware, self.exchanging * self.pp, gpus_per_node=self.gpus_per_node, nic=self.nic)
        return self.hardware if self.gpus_per_node is None and self.nic is None else cluster.machine

    @property
    def exchanging(self) -> int:
        """GPUs that exchange in each layer: of tensor parallelism, and of all copies that share experts."""
        return self.parallel.stage_gpus

    @property
    def hosts(self) -> int:
        """Nodes over which the GPUs of a layer exchange; what NVLink joins is one."""
        return math.ceil(self.exchanging / most_joined(self.machine))

    @cached_property
    def profile(self) -> Engine:
        """The engine's profile."""
        found = self.engine if isinstance(self.engine, Engine) else find_engine(self.engine, self.engine_version)
        if self.dispatcher:
            found = replace(found, dispatcher=self.dispatcher, wide_dispatcher="")
        plain = not (self.config.kv_lora or self.config.window)
        found = found.for_contexts(self.hardware, self.config.positions, plain=plain)
        return found if self.graph is None else replace(found, graph=self.graph)

    @cached_property
    def elsewhere(self) -> Elsewhere:
        """What its laboratory may differ by from those whose runs set the constants."""
        return elsewhere_of(
            self.hardware, self.profile, self.engine_version, self.laboratory, release_known=self.release_known,
            latent=self.config.kv_lora > 0, hybrid=self.config.linear_layers > 0,
            indexed=self.config.index_heads > 0 or self.config.compressed_layers > 0,
        )  # fmt: skip

    @cached_property
    def parallel(self) -> Parallel:
        """How the GPUs share the model."""
        return Parallel(self.tp, self.pp, self.ep, self.dp, halves=self.batch_overlap)

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.parallel.gpus

    @cached_property
    def part(self) -> Shard:
        """One GPU's part of the model."""
        return shard(replace(self.config, linear_state_dtype=self.state_dtype), self.parallel, self.profile.expands)

    @property
    def state_dtype(self) -> str:
        """Dtype of layers' states between steps: as asked for, as the model asks for, or as the engine has them."""
        return self.states or self.config.linear_state_dtype or self.profile.state_dtype

    @cached_property
    def format(self) -> Format:
        """How the weights are stored and multiplied."""
        return weight_format(self.weights, self.hardware).stored_as(self.profile.head, self.profile.beside)

    @property
    def verified(self) -> float:
        """Tokens of a decoding sequence that a step computes: 1, and those of a draft."""
        return 1.0 + (self.speculation.tokens if self.speculation else 0)

    @property
    def gained(self) -> float:
        """Tokens that a decoding sequence is longer by after a step, in the mean."""
        return self.speculation.gained if self.speculation else 1.0

    @property
    def slots(self) -> int:
        """Copies of the attention times the micro-batches that stages keep in flight: each has sequences of its own."""
        return self.parallel.slots

    @property
    def token_budget(self) -> int:
        """Most tokens of a step of one copy of the model, in one micro-batch."""
        return self.max_batched_tokens or self.profile.limits_on(self.hardware)[0]

    @property
    def encoded_limit(self) -> int:
        """Most prompts whose sound one step of a copy of the model encodes, one at least; 0 without an encoder.

        The tokens of encoders have the budget of a step's tokens to themselves (vLLM's ``compute_encoder_budget``).
        """
        tokens = self.config.encoder_positions
        return max(1, self.token_budget // tokens) if tokens else 0

    @property
    def sequence_limit(self) -> int:
        """Most sequences of a step, over all copies of the model; no more than a pool of states holds."""
        limit = (self.max_num_seqs or self.profile.limits_on(self.hardware)[1]) * self.dp
        if self.config.compressed_layers and self.profile.compressed_seqs and not self.max_num_seqs:
            limit = min(limit, self.profile.compressed_seqs)
        if not self.held_with_draft.state_bytes:
            return limit
        memory = self.memory()
        if memory.most_states < 1:
            raise UsageError(
                f"the pool for states has {format_binary(memory.state_pool_bytes)} on each {self.hardware.name}, and a "
                f"sequence takes {self.profile.state_copies:g} times {format_binary(memory.state_bytes)}.",
                place="deployment",
                remedy="Use more GPUs, or a larger share of the memory.",
            )
        return int(min(limit, memory.most_states))

    def memory(self) -> Memory:
        """Return what one GPU holds, and how many tokens fit.

        Raises
        ------
        UsageError
            When the model does not fit.
        """
        guessed = self.speculation.tokens if self.speculation else 0
        return memory_of(
            self.held_with_draft, self.part, self.parallel, self.profile, self.hardware, self.token_budget,
            self.kv_tokens, self.utilization, 1 + guessed,
        )  # fmt: skip

    @property
    def held_with_draft(self) -> Held:
        """What the model keeps on one GPU, and a draft model beside it."""
        draft = self.speculation.draft if self.speculation else None
        return self.held if draft is None else self.held.beside(draft.held)

    @cached_property
    def held(self) -> Held:
        """What the model keeps on one GPU."""
        return held_by(self.config, self.part, self.parallel, self.format, self.kv)

    @cached_property
    def table(self) -> Clock:
        """Times of one GPU and one stage by size."""
        return Clock(self._kernels)

    @property
    def _kernels(self) -> Kernels:
        """What runs on one GPU."""
        return Kernels(self.part, self.parallel, self.profile, self.machine, self.format, self.kv, self.sampling)

    def clock(self) -> StepClock:
        """Return quick look-ups of the time of a single step, for simulations."""
        return StepClock(self)

    @suggesting
    def step(self, decode: Number = 0, context: Number = 0, prefill: Prefill = (), rows: Number | None = None) -> Step:
        """Return the time of one step; arrays give one for each element.

        With speculative decoding a step verifies a draft's tokens, and a sequence gains `gained` tokens by it.

        Parameters
        ----------
        decode : sequences that decode one token each, over all copies of the model.
        context : mean number of keys of these sequences.
        prefill : prompts: (how many, new tokens of each, keys of each with those in the cache).
        rows : rows of logits; by default one for each sequence and prompt.

        Raises
        ------
        UsageError
            When a size is no number or negative, prompts are not three sizes each, arrays cannot be broadcast together,
            or contexts are longer than the model's positions.
        """
        held = StepInput.of(decode, context, prefill, rows)
        self.check_length(held.longest)
        prompts = sum((count for count, _, _ in held.chunks), start=np.zeros(held.shape))
        ended = prompts if held.rows is None else np.maximum(0.0, held.rows - held.sequences)
        cost = self.device(held.sequences, held.keys, held.shape, held.chunks, ended)
        return self.host.finished(cost, held.sequences + prompts)

    def device(
        self,
        sequences: Array,
        keys: Array,
        shape: tuple[int, ...] | None = None,
        chunks: Sequence[tuple[Array, ...]] = (),
        ended: Array | float = 0.0,
    ) -> Cost:
        """Return the cost of a step on the device, of one stage, and of the copy and micro-batch with most to do.

        Parameters
        ----------
        sequences, keys : decoding sequences of the deployment, and keys of each.
        shape : of the result; by default that of ``sequences``.
        chunks : prompts of the deployment: how many, new tokens of each, keys of each.
        ended : prompts that get their first token.
        """
        shape = np.shape(sequences) if shape is None else shape
        share = self.slots
        slot = busiest(sequences, share)
        rows = self.verified * slot + busiest(ended, share)
        tokens = (self.verified * sequences + sum(chunk[0] * chunk[1] for chunk in chunks)) / share
        cost = self.table.cost(
            np.broadcast_to(slot, shape), np.broadcast_to(keys, shape),
            [_broadcast((busiest(chunk[0], share), chunk[1], chunk[2]), shape) for chunk in chunks],
            np.broadcast_to(rows, shape), np.broadcast_to(tokens, shape), self.verified,
        )  # fmt: skip
        if self.speculation and self.speculation.draft:
            draft = self.speculation.draft  # its first pass fills its own cache with the keys of the prompts
            cost = cost.plus(draft.device(sequences, keys, shape, chunks, ended), 1.0)
            passes = np.where(np.asarray(sequences) > 0, self.speculation.tokens - 1.0, 0.0)
            cost = cost.plus(draft.device(sequences, keys, shape), passes)
        return cost

    @property
    def first_ends(self) -> Stretch:
        """How far the time to the first token may lie below and above what steps explain."""
        own = Z80 * self.profile.first_deviation
        return self.elsewhere.first.beside(Stretch(own, own))

    @cached_property
    def host(self) -> Host:
        """What the host adds to the device's time."""
        draft = self.speculation.draft if self.speculation else None
        layers = self.part.layers * self.pp
        return Host(
            self.profile, self.parallel, self.elsewhere, layers * self.table.kernels_per_layer,
            layers * self.table.prompt_kernels_per_layer + self.table.encoder_kernels, draft.host if draft else None,
            self.speculation.tokens if self.speculation else 0,
        )  # fmt: skip

    @property
    def copies_share(self) -> bool:
        """Whether several copies of the attention share experts."""
        return self.parallel.copies_share

    @cached_property
    def replica(self) -> Deployment:
        """One of the copies of the model, where they share nothing; else all of them."""
        copies = self.parallel.replicas
        if copies == 1:
            return self
        tokens = None if self.kv_tokens is None else max(1, self.kv_tokens // copies)
        speculation = self.speculation
        if speculation is not None and isinstance(speculation.draft, Deployment):
            speculation = replace(speculation, draft=speculation.draft.replica)
        return replace(self, dp=1, kv_tokens=tokens, speculation=speculation)

    def check_length(self, tokens: float) -> None:
        """Raise for a sequence that is longer than the model's positions.

        Raises
        ------
        UsageError
            When it is.
        """
        given.check_length(self.config, tokens)


def _broadcast(chunk: tuple[Array, ...], shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    count, new, keys = (np.broadcast_to(value, shape) for value in chunk)
    return count, new, keys
