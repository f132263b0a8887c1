"""Layers that keep a state of a sequence, mostly in place of keys: delta rules, Mamba, RWKV, lightning attention, LFM2.

Matrices and parameters follow the classes of Hugging Face's transformers 5.24, of RWKV those of flash-linear-attention
0.6.0, states and kernels those of SGLang and vLLM.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.operators.linear_attention import LinearAttention
from perfmodel.operators.ssm_scan import SsmScan
from perfmodel.workloads.matrices import Linear, count_parameters


class Rule(StrEnum):
    """How a token changes the state of a layer.

    - GATED_DELTA : the gated delta rule (Qwen3-Next, Qwen3.5, OLMo-Hybrid), see `perfmodel.operators.gated_delta`.
    - KIMI_DELTA : the same with a decay of each column of the keys (Kimi Linear, arXiv 2510.26692).
    - MAMBA2 : a decay of each head and an outer product, see `perfmodel.operators.linear_attention`. Its states B, C
      and x are keys, queries and values, its groups the heads of keys (Nemotron-H, Granite 4, Bamba, Falcon-H1).
    - MAMBA1 : a decay of each number of a state, see `perfmodel.operators.ssm_scan`. Each channel has a state of its
      own, a head with one value: C and B are the queries and keys, which all heads share, and x the values (Mamba,
      Jamba, Falcon-Mamba).
    - PLAMO2 : the states of Mamba-2, whose steps, keys and queries are computed of the convolved values, as in Mamba of
      the first kind, with a step for each head (PLaMo 2, ``Plamo2MambaMixer`` of vLLM).
    - LIGHTNING : linear attention with fixed decays (MiniMax-Text-01, arXiv 2501.08313).
    - SHORT_CONV : no state but the tokens that a convolution reads, between two gates (LFM2).
    - RWKV6 : an outer product and a decay of each column of the keys, which small matrices compute (RWKV-6, arXiv
      2404.05892); without their rank decays are fixed, as in RWKV-5. Receptances are its queries. A token is mixed with
      the one before it, in attention and in the MLP, which a gate as wide as the residual stream multiplies.
    - RWKV7 : a generalised delta rule, S diag(w) + (S a)^T b + v^T k with a decay of each column of the keys (RWKV-7,
      arXiv 2503.14456). Small matrices compute decays, rates, the gate, and how much of the first layer's values its
      values are.
    """

    GATED_DELTA = "gated_delta"
    KIMI_DELTA = "kimi_delta"
    MAMBA2 = "mamba2"
    MAMBA1 = "mamba1"
    PLAMO2 = "plamo2"
    LIGHTNING = "lightning"
    SHORT_CONV = "short_conv"
    RWKV6 = "rwkv6"
    RWKV7 = "rwkv7"

    @property
    def is_delta(self) -> bool:
        """Whether queries and keys, or keys alone, are scaled to length 1, and a chunk solves a triangle."""
        return self in (Rule.GATED_DELTA, Rule.KIMI_DELTA, Rule.RWKV7)

    @property
    def scans_values(self) -> bool:
        """Whether only values are convolved, and steps, keys and queries are computed of them."""
        return self in (Rule.MAMBA1, Rule.PLAMO2)

    @property
    def is_rwkv(self) -> bool:
        """Whether a token is mixed with the one before it, in place of a convolution."""
        return self in (Rule.RWKV6, Rule.RWKV7)

    @property
    def taps(self) -> int:
        """Taps of the convolution before it where nothing else is stated: the classes' defaults, 0 for none."""
        return {Rule.LIGHTNING: 0, Rule.SHORT_CONV: 3, Rule.RWKV6: 0, Rule.RWKV7: 0}.get(self, 4)


#: operators that change and read states
States = GatedDelta | LinearAttention | SsmScan
#: the operator of a rule and the tokens of a chunk: flash-linear-attention's, the smaller of those that configurations
#: with Mamba-2 state (128 and 256), and that of MiniMax's; 1 for a scan, which steps through the tokens
_COMPUTED: Mapping[Rule, tuple[type[GatedDelta | LinearAttention] | type[SsmScan], int]] = MappingProxyType(
    {
        Rule.GATED_DELTA: (GatedDelta, 64),
        Rule.KIMI_DELTA: (GatedDelta, 64),
        Rule.MAMBA2: (LinearAttention, 128),
        Rule.MAMBA1: (SsmScan, 1),
        Rule.PLAMO2: (LinearAttention, 256),
        Rule.LIGHTNING: (LinearAttention, 256),
        Rule.RWKV6: (LinearAttention, 64),
        Rule.RWKV7: (GatedDelta, 64),
    }
)
#: how much longer Kimi's delta rule takes than one with a decay a head, whose operator it has here: 1.61 and 1.71 times
#: for chunks in one harness on an H800 (PaddlePaddle/flash-attention, pull request 133, in view), 1.4 to 1.8 times on a
#: GB200 (flash-linear-attention's README and inclusionAI/cuLA's tables, in view)
KIMI_SLOWER = 1.65
#: how much longer RWKV's chunks take than those of the operator that stands for them: RWKV-6 has the decay of each
#: column that Kimi's rule has, too (assumed to be as slow); general rules of RWKV-7's kind are half as fast as Kimi's
#: ("roughly 100%", arXiv 2510.26692). With it a pass forward and back on an H100 takes 19 ms where kernels for it take
#: 8, 17 and 64 ms (johanwind/wind_rwkv's table: 8 x 4096 tokens, 64 heads of 64; the second trained the published
#: models). Step by step the traffic of the state is that of the operator.
RWKV6_SLOWER, RWKV7_SLOWER = KIMI_SLOWER, 2.0 * KIMI_SLOWER
#: kernels of RWKV between its products that read two tensors and write one, or move as much, by their traffic: of
#: RWKV-7 decays, rates, the mixing of values, the scaled keys and those that replace others, the norm, and the
#: correction with its gate move 27 widths of the residual stream; of RWKV-6 decays, the norm, its gate and that of the
#: MLP 10 (`fla.layers.rwkv7`, `fla.layers.rwkv6`)
RWKV6_GATES, RWKV7_GATES = 3, 9
#: dtype of states where neither a configuration nor an engine says another one, and those that they have
USUAL_DTYPE, DTYPES = "fp32", ("fp32", "bf16", "fp16")
#: matrices that quantised checkpoints keep in 16 bits
IN_SIXTEEN_BITS = frozenset(("decay_rate",))


@dataclass(frozen=True)
class StateLayer:
    """The part of a layer that keeps a state, of the whole model or of one GPU.

    Attributes
    ----------
    rule : how a token changes the state.
    hidden : width of the residual stream.
    heads, key_heads : heads of its values, and of its queries and keys.
    head_dim, value_dim : size of a head of its queries and keys, and of its values.
    conv : taps of the convolution over neighbouring tokens before it, 0 for none.
    norm : a norm follows Mamba-2's states, beside their gate; a gate alone takes as long, but has no parameters.
    bias, conv_bias, output_bias : the matrix before Mamba's states, the convolution behind it and the matrix after
        the states have a bias; LFM2's convolution has one if the matrix before it has.
    dtype : of the states that are kept between steps.
    rank : rank of the steps of Mamba of the first kind, which a matrix brings to one step a channel; of RWKV's decays.
    rate_rank, value_rank, gate_rank : ranks of RWKV-7's rates, of the mixing of its values, and of its gate.
    mix_rank : rank of RWKV-6's mixing of neighbouring tokens.
    inner_norms : norms of its steps, keys and queries, each with a scale (Jamba).
    """

    rule: Rule
    hidden: int
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int
    conv: int
    norm: bool = True
    bias: bool = False
    conv_bias: bool = True
    output_bias: bool = False
    dtype: str = USUAL_DTYPE
    rank: int = 0
    inner_norms: bool = False
    rate_rank: int = 0
    value_rank: int = 0
    gate_rank: int = 0
    mix_rank: int = 0

    def share(self, tp: int) -> StateLayer:
        """Return the part of one of tp GPUs, with a share of the heads; fewer heads of keys than GPUs are repeated."""
        return dataclasses.replace(self, heads=max(1, self.heads // tp), key_heads=max(1, self.key_heads // tp))

    @property
    def key_width(self) -> int:
        """Width of all heads of the queries, and of the keys."""
        return self.key_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of all heads of the values."""
        return self.heads * self.value_dim

    @property
    def mixed_width(self) -> int:
        """Width of queries, keys and values together."""
        return 2 * self.key_width + self.value_width

    @property
    def summed_width(self) -> int:
        """Width of what GPUs with a share of the heads sum between its matrices: queries, keys and steps of a scan."""
        return (2 * self.key_width + self.rank) * self.rule.scans_values

    @property
    def convolved_width(self) -> int:
        """Width of what a convolution passes over: queries, keys and values, or the values alone."""
        alone = self.rule == Rule.SHORT_CONV or self.rule.scans_values
        return (self.value_width if alone else self.mixed_width) * (self.conv > 0)

    def matrices(self) -> tuple[Linear, ...]:
        """Return its matrices: the first computes queries, keys and values, the last follows the rule."""
        hidden, keys, values, mixed = self.hidden, self.key_width, self.value_width, self.mixed_width
        output = Linear("output", hidden, values)
        match self.rule:
            case Rule.GATED_DELTA:
                rates = Linear("decay_rate", 2 * self.heads, hidden)
                return (Linear("query_key_value_gate", mixed + values, hidden), rates, output)
            case Rule.KIMI_DELTA:
                return (
                    Linear("query_key_value", mixed, hidden),
                    Linear("decay_down", self.head_dim, hidden),
                    Linear("decay_up", keys, self.head_dim),
                    Linear("rate", self.heads, hidden),
                    Linear("gate_down", self.head_dim, hidden),
                    Linear("gate_up", values, self.head_dim),
                    output,
                )
            case Rule.MAMBA2:
                into = Linear("query_key_value_gate_step", mixed + values + self.heads, hidden, self.bias)
                return (into, Linear("output", hidden, values, self.output_bias))
            case Rule.MAMBA1:
                return (
                    Linear("value_gate", 2 * values, hidden, self.bias),
                    Linear("query_key_step_down", self.summed_width, values),
                    Linear("step_up", values, self.rank, True),
                    Linear("output", hidden, values, self.output_bias),
                )
            case Rule.PLAMO2:
                return (
                    Linear("value_gate", 2 * values, hidden, self.bias),
                    Linear("query_key_step_down", self.summed_width, values),
                    Linear("step_up", self.heads, self.rank),
                    Linear("output", hidden, values, self.output_bias),
                )
            case Rule.LIGHTNING:
                return (Linear("query_key_value", mixed, hidden), Linear("gate", values, hidden), output)
            case Rule.SHORT_CONV:
                into = Linear("value_and_gates", mixed, hidden, self.bias)
                return (into, Linear("output", hidden, values, self.output_bias))
            case Rule.RWKV6 | Rule.RWKV7:
                return (Linear("receptance_key_value", mixed, hidden), *self._small_matrices(), output)

    def _small_matrices(self) -> tuple[Linear, ...]:
        """Return RWKV's matrices beside receptances, keys, values and the output: to ranks and from them, and gates."""
        hidden, keys, values = self.hidden, self.key_width, self.value_width
        decays = (Linear("decay_down", self.rank, hidden), Linear("decay_up", keys, self.rank, True))
        if self.rule == Rule.RWKV6:
            five = 5 * self.mix_rank
            mixing = (Linear("mix_down", five, hidden), Linear("mix_up", hidden, five))
            gates = (Linear("gate", values, hidden), Linear("mlp_gate", values, hidden))
            return (*(mixing if five else ()), *(decays if self.rank else ()), *gates)
        return (
            *decays,
            Linear("rate_down", self.rate_rank, hidden),
            Linear("rate_up", keys, self.rate_rank, True),
            Linear("value_down", self.value_rank, hidden),
            Linear("value_up", values, self.value_rank, True),
            Linear("gate_down", self.gate_rank, hidden),
            Linear("gate_up", values, self.gate_rank),
        )

    @property
    def parameters(self) -> int:
        """Parameters of matrices, convolution, decays and norm.

        Mamba's and LFM2's convolution may have a bias. There are a decay and an offset of each head (Mamba-2: and a
        direct path; Kimi: an offset of each column of the keys; Mamba of the first kind: a decay of each number of a
        state, and a direct path). The delta rules' norm scales the columns of a head, the others' those of all heads.
        RWKV has weights of the mixing of tokens, which its MLP has, too, a bonus or three factors of each column of the
        keys, and a norm with a shift.
        """
        mamba = dict.fromkeys((Rule.MAMBA1, Rule.MAMBA2, Rule.PLAMO2), self.conv_bias)
        taps = self.conv + {**mamba, Rule.SHORT_CONV: self.bias}.get(self.rule, False)
        found = count_parameters(self.matrices()) + taps * self.convolved_width
        match self.rule:
            case Rule.GATED_DELTA:
                return found + 2 * self.heads + self.value_dim
            case Rule.KIMI_DELTA:
                return found + self.heads + self.key_width + self.value_dim
            case Rule.MAMBA2:
                return found + 3 * self.heads + self.norm * self.value_width
            case Rule.PLAMO2:
                return found + 3 * self.heads + self.inner_norms * (self.rank + 2 * self.key_width)
            case Rule.MAMBA1:
                scales = self.inner_norms * (self.rank + 2 * self.key_width)
                return found + self.heads * self.head_dim + self.heads + scales
            case Rule.LIGHTNING:
                return found + self.value_width
            case Rule.SHORT_CONV:
                return found
            case Rule.RWKV6:
                mixed, fixed = (6 if self.mix_rank else 4) + 2, not self.rank
                return found + mixed * self.hidden + (1 + fixed) * self.key_width + 2 * self.value_width
            case Rule.RWKV7:
                return found + 7 * self.hidden + 3 * self.key_width + 2 * self.value_width

    @property
    def first_lack(self) -> int:
        """Parameters that the first of such layers lacks: RWKV-7 mixes the values of all others with its own."""
        return sum(one.parameters for one in self.matrices() if one.name in ("value_down", "value_up"))

    @property
    def passed_width(self) -> float:
        """Width of what a kernel between products and states reads and writes once, or as much: a convolution.

        RWKV mixes a token with the one before it: of RWKV-7 one reads a width and writes six, and one of the MLP a
        width each; of RWKV-6 one a width each, one reads six and writes five, and one of the MLP one and two; without
        its rank one reads a width and writes four.
        """
        if not self.rule.is_rwkv:
            return self.convolved_width
        moved = 9 if self.rule == Rule.RWKV7 else 16 if self.mix_rank else 8
        return 0.5 * moved * self.hidden

    @property
    def kept_width(self) -> int:
        """Width of what training keeps of the inputs of its rule: queries, keys and values twice, and a gate.

        The delta rules also keep what they scale. RWKV-7 keeps six mixtures of tokens, what they are multiplied to,
        and decays, rates, keys and values as they enter the rule; RWKV-6 five with their weights, RWKV-5 four.
        """
        if self.rule == Rule.RWKV7:
            return 18 * self.hidden
        if self.rule == Rule.RWKV6:
            return (20 if self.mix_rank else 10) * self.hidden
        return 2 * self.mixed_width + 2 * self.key_width * self.rule.is_delta + self.value_width

    @property
    def state_bytes(self) -> float:
        """What it keeps of one sequence, however long that is [B].

        A state [head_dim, value_dim] a head, and the inputs of all but one tap of the convolution in 16 bits; of RWKV
        the last input of attention and of the MLP.
        """
        states = dtype_bytes(self.dtype) * self.heads * self.head_dim * self.value_dim * self.has_states
        last = 2 * self.hidden * self.rule.is_rwkv
        return states + 2.0 * (max(0, self.conv - 1) * self.convolved_width + last)

    def flop(self, seq: int) -> float:
        """Return the FLOP of the states of one sequence, forward, in chunks; 0 without states.

        Those of the `operator`, but for RWKV-7, whose rule has two outer products and two more triangles: with
        d = head_dim, e = value_dim and C = chunk 8 d e + 2 C (5 d + 4 e) a token and head: the products of a, r and
        each of k, b within chunks, those with the inverse, and those with states
        (fla/ops/generalized_delta_rule/dplr).
        """
        if not self.has_states:
            return 0.0
        if self.rule != Rule.RWKV7:
            return float(self.operator(seq=seq).flop())
        d, e, length = self.head_dim, self.value_dim, min(self.chunk, seq)
        return float(self.heads * seq * (8 * d * e + 2 * length * (5 * d + 4 * e)))

    @property
    def has_states(self) -> bool:
        """Whether there is more to keep than what a convolution reads."""
        return self.rule in _COMPUTED

    def slower(self, steps: bool = False) -> float:
        """Return how much longer its states take than the `operator` for them does, in chunks or step by step."""
        if self.rule == Rule.KIMI_DELTA:
            return KIMI_SLOWER
        return {Rule.RWKV6: RWKV6_SLOWER, Rule.RWKV7: RWKV7_SLOWER}.get(self.rule, 1.0) if not steps else 1.0

    @property
    def chunk(self) -> int:
        """Tokens whose states are computed at once; 0 without states."""
        return _COMPUTED[self.rule][1] if self.has_states else 0

    @property
    def gates(self) -> int:
        """Kernels that multiply by a gate, with a norm or without: one before LFM2's convolution and one after it.

        The scans of Mamba of the first kind and of PLaMo 2 do it themselves. Others of RWKV count by what they move.
        """
        others = {Rule.SHORT_CONV: 2, Rule.MAMBA1: 0, Rule.PLAMO2: 0, Rule.RWKV6: RWKV6_GATES, Rule.RWKV7: RWKV7_GATES}
        return others.get(self.rule, 1)

    @property
    def more_kernels(self) -> float:
        """Kernels of it in a serving engine beyond those of attention.

        Its convolution and its norm stand for attention's rotation and the write of its keys. More are products beyond
        one before the rule and one after it, the delta rules' decays (SGLang's and vLLM's layers), and Jamba's norms; a
        scan with its gate saves the one behind it (vLLM's ``MambaMixer``). RWKV multiplies receptances, keys and values
        apart, and has the kernels between its products, and the mixing of tokens before the MLP.
        """
        saved = self.rule.scans_values
        apart = (2 + self.gates - 1 + 1) * self.rule.is_rwkv
        return len(self.matrices()) - 2.0 + self.rule.is_delta + 3 * self.inner_norms - saved + apart

    @property
    def more_prompt_kernels(self) -> float:
        """Kernels that prompts have beyond those: of chunks in place of one, and of the delta rules' unit lengths."""
        chunks = float(self.operator(seq=self.chunk).kernels()) - 1.0 if self.has_states else 0.0
        return chunks + 2.0 * self.rule.is_delta

    def operator(self, **sizes: Any) -> States:
        """Return the operator that changes and reads the states, of a rule that has any.

        Parameters
        ----------
        sizes : ``batch``, ``seq``, ``dtype``, ``algorithm``, ``carried``, ``backward``, as the operator takes them; a
            scan has one algorithm.
        """
        kind, chunk = _COMPUTED[self.rule]
        kept = self.dtype if sizes.get("carried") else USUAL_DTYPE
        if issubclass(kind, SsmScan):
            own = {name: size for name, size in sizes.items() if name != "algorithm"}
            return kind(channels=self.heads, state=self.head_dim, gated=True, state_dtype=kept, **own)
        return kind(
            heads=self.heads, key_heads=self.key_heads, head_dim=self.head_dim, value_dim=self.value_dim, chunk=chunk,
            state_dtype=kept, **sizes,
        )  # fmt: skip
