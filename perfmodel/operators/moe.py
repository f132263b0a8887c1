"""A layer of a mixture of experts: each token goes through the k experts that a router chooses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, anywhere, minimum, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.base import Operator, choice, dtype_of, flag, number, scale_of, size
from perfmodel.operators.checks import check_groups, first_point
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.moe_calls import GROUPED, one_by_one, widened
from perfmodel.operators.routing import LoadFeatures, expected_touched, expected_visits, loads_of
from perfmodel.operators.scales import check_divides, expand_format, format_name, scale_tensors, weight_bytes

#: FLOP of the activation for each number of the hidden layer: those of `silu_mul`, and of a plain one
ACTIVATION_FLOP = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Moe(Operator):
    """y[t] = sum over the k experts e of token t of p[t, e] (act(x[t] G_e) * (x[t] U_e)) D_e, for one rank.

    With T tokens, h = hidden, f' = inter / tp, E experts, and S slots, the rows that the rank's experts compute
    (T k / ep where the tokens spread evenly):

    - FLOP = 2 S h f' (2 + gated) products + 5 S f' activation + 2 S h for the weighted sum, and for the router
      T / ep (2 h E + E), a product and a scan for the largest;
    - traffic: the weights of the experts that any token takes, with their scales, and the tokens that visit the rank,
      read and written once in 16 bits. The router's weights are read where it is part of the call. What goes through
      memory between the kernels (`glue_bytes`) is no compulsory traffic.

    Tokens that take any k of the E experts touch E / ep (1 - (1 - k / E)^T) of a rank's. Where they prefer some, loads
    follow a power law, and counts are those of the busiest rank (`perfmodel.operators.routing.loads`). Exchanges
    between ranks are operators of their own: `dispatch` and `combine`.

    Parameters
    ----------
    tokens : tokens of all ranks that share the experts.
    hidden, inter : size of a token, and of an expert's hidden layer before tp splits it.
    experts, top_k : experts of all ranks, and those of a token.
    tp, ep : ranks that share each expert, and ranks that share the experts.
    gated : whether an expert has a gate beside its first product.
    weight_dtype, scale : of the experts' weights, as in `Gemm`.
    out_dtype : dtype of the tokens between the kernels; by default ``dtype``, or bf16 for 8- and 4-bit inputs.
    routing : "random", each token takes any k experts; or "balanced", they take them in turn.
    skew : exponent of the power law of the experts' rows; 0 is even.
    slots : rows that the rank computes; 0 for those of its own experts. Kernels that do not skip the slots of other
        ranks compute up to tokens x top_k.
    router : whether the router's product is part of the call.

    Raises
    ------
    UsageError
        When ep does not divide the experts, tp the hidden layer or a group of the scale a row of the weights, when
        there are fewer experts than top_k or than ep, or with skew in balanced routing.
    """

    op: ClassVar[str] = "moe"
    #: engines and frameworks have fused kernels; PyTorch's loop over the experts checks them
    eager_by_default: ClassVar[bool] = False
    preferred_engine: ClassVar[str] = "tensor"

    tokens: Number = size(doc="tokens of all ranks that share the experts")
    hidden: Number = size(doc="size of a token")
    inter: Number = size(doc="size of an expert's hidden layer, before tp splits it")
    experts: Number = size(doc="experts of all ranks")
    top_k: Number = size(doc="experts of a token")
    tp: Number = size(1, doc="ranks that share each expert")
    ep: Number = size(1, doc="ranks that share the experts")
    gated: bool = flag(True, doc="experts have a gate")
    weight_dtype: str = dtype_of(doc="dtype of the experts' weights; default: dtype")
    scale: str = scale_of(doc="scales of quantised operands: none, column, group:128, block:128x128")
    out_dtype: str = dtype_of(doc="dtype of tokens between kernels; default: dtype, or bf16 for 8- and 4-bit inputs")
    routing: str = choice("random", ("random", "balanced"), doc="tokens take any experts, or take them in turn")
    skew: float = number(0.0, doc="exponent of the power law of the experts' rows; 0 is even")
    slots: Number = size(0, minimum=0, doc="rows that the rank computes; 0: those of its own experts")
    router: bool = flag(True, doc="the router's product is part of the call")

    def __post_init__(self) -> None:
        expand_format(self)
        super().__post_init__()

    def check(self) -> None:
        """Derive the other dtypes; check that ranks and groups divide what they split."""
        narrow = dtype_bytes(self.dtype) < 2
        self.derive(out_dtype="bf16" if narrow else self.dtype, weight_dtype=self.dtype, scale="none")
        self._at_most("top_k", "experts", "Each token takes different experts.")
        self._at_most("ep", "experts", "Each rank has at least one expert.")
        check_groups(self.op, "Each rank has as many experts.", experts=self.experts, ep=self.ep)
        check_groups(self.op, "Each rank has as much of an expert's hidden layer.", inter=self.inter, tp=self.tp)
        check_divides(self.op, self.scale, hidden=self.hidden, **{"inter / tp": self.inter_of_rank})
        if self.skew and self.routing == "balanced":
            raise UsageError(
                f"skew={self.skew:g} contradicts routing=balanced.",
                place=self.op,
                remedy="Tokens that take the experts in turn load them evenly; leave one of the two out.",
            )
        if np.any((np.asarray(self.slots) > 0) & np.less(self.slots, self.own_slots)):
            raise UsageError(
                "slots is below the rows of the rank's own experts.",
                place=self.op,
                remedy="It is for kernels that compute other ranks' slots, too; leave it out otherwise.",
            )

    def _at_most(self, name: str, other: str, reason: str) -> None:
        values = getattr(self, name), getattr(self, other)
        if anywhere(above := values[0] > values[1]):
            value, most = first_point(above, *values)
            raise UsageError(f"{name}={value} is above {other}={most}.", place=self.op, remedy=reason)

    @property
    def kernel_dtype(self) -> str:
        """The dtype of the weights, on which the kernel depends more than on that of the activations."""
        return self.weight_dtype

    @property
    def number_format(self) -> str:
        """The dtype, or both dtypes and the scale where the operands differ or have scales: "fp16 int4 group:128"."""
        return format_name(self.dtype, self.weight_dtype, self.scale)

    @property
    def inter_of_rank(self) -> Number:
        """Size of an expert's hidden layer on one rank, inter / tp."""
        return self.inter / self.tp

    @property
    def experts_of_rank(self) -> Number:
        """Experts of one rank, experts / ep."""
        return self.experts / self.ep

    @property
    def weight_bytes(self) -> float:
        """Size of a weight with its share of the scales [B]."""
        return weight_bytes(self.weight_dtype, self.scale)

    @cached_property
    def _loads(self) -> LoadFeatures:
        """The loads of each point."""
        return loads_of(self.tokens, self.experts, self.top_k, self.ep, self.skew, balanced=self.routing == "balanced")

    def blocks(self, tile_rows: int) -> Number:
        """Return the tiles of so many rows that all experts of the rank need, the last of each filled up.

        Slots of other ranks are one expert's. What was counted is kept: a fit asks for it many times.
        """
        if tile_rows not in self._blocks:
            others = np.ceil((self.computed_slots - self.own_slots) / tile_rows)
            self._blocks[tile_rows] = plain(self._loads.blocks(tile_rows) + others)
        return self._blocks[tile_rows]

    @cached_property
    def _blocks(self) -> dict[int, Number]:
        """The tiles by the rows of a tile, as far as they were counted."""
        return {}

    @cached_property
    def own_slots(self) -> Number:
        """Rows of the rank's own experts: tokens top_k / ep, or those of the busiest rank where loads are skewed."""
        return self._loads.slots if self.skew else 1.0 * self.tokens * self.top_k / self.ep

    @cached_property
    def computed_slots(self) -> Number:
        """Rows that the rank computes: ``slots``, or else those of its own experts."""
        return plain(where(np.greater(self.slots, 0), self.slots, self.own_slots))

    @cached_property
    def touched(self) -> Number:
        """Experts of the rank that any token takes."""
        if self.skew:
            return self._loads.touched
        if self.routing == "balanced":
            return minimum(1.0 * self.experts, 1.0 * self.tokens * self.top_k) / self.ep
        return expected_touched(self.tokens, 1.0 * self.experts, self.top_k) / self.ep

    @cached_property
    def visits(self) -> Number:
        """Ranks that a token visits, of ep; as many as there can be, min(k, ep), where tokens take experts in turn.

        Routers that take a token's experts from some groups of them reach fewer (`perfmodel.operators.routing.Router`).

        Kernels that compute all slots of the tokens that visit a rank show it: with 8 of 256 experts and ep = 8 they
        take 1.5 times as long as for tokens with any experts (aiconfigurator @ 095f58a51c4c, 5,275 rows in turn).
        """
        if self.routing == "balanced":
            return minimum(1.0 * self.top_k, 1.0 * self.ep)
        return expected_visits(1.0 * self.experts, self.top_k, self.ep)

    @cached_property
    def visiting_slots(self) -> Number:
        """All k slots of the tokens that a rank computes any part of, those of other ranks' experts, too."""
        every = np.maximum(np.ceil(self.own_slots), np.round(self.visiting_tokens() * self.top_k))
        return plain(where(np.greater(self.ep, 1), every, self.own_slots))

    def visiting_tokens(self) -> Number:
        """Return the tokens that a rank computes any part of.

        They are T visits / ep. Where loads are skewed, a token's choice is the rank's with its share S / (T k) of all
        slots: T (1 - (1 - S / (T k))^k).
        """
        if not self.skew:
            return self.tokens * self.visits / self.ep
        share = self.own_slots / (1.0 * self.tokens * self.top_k)
        return self.tokens * (1.0 - (1.0 - minimum(share, 1.0)) ** self.top_k)

    def with_remote_slots(self) -> Moe:
        """Return the layer as kernels compute it that do not skip the slots of other ranks.

        They compute all k slots of each token that reaches the rank (`visiting_slots`).
        """
        slots = plain(where(np.greater(self.ep, 1), np.ceil(self.visiting_slots), 0.0))
        return self.changed(slots=slots)

    def product_flop(self) -> Number:
        """Return the FLOP of the experts' products: 2 S h f' (2 + gated) [FLOP]."""
        return 2.0 * self.computed_slots * self.hidden * self.inter_of_rank * (2.0 + self.gated)

    def composition_in(self, library: str) -> tuple[Operator, ...]:
        """Return the router's product and the layer without it, where it is part of the call.

        PyTorch multiplies weights of some dtypes in groups: its calls of such a layer hold the router, and are
        predicted together. Of others it runs expert by expert, after it has widened narrow ones (`moe_calls`).
        """
        if library == "torch":
            if self.weight_dtype in GROUPED and self.dtype in GROUPED:
                return ()
            return one_by_one(self) if self.number_format == self.dtype else widened(self)
        if not self.router:
            return ()
        routed = np.ceil(self.tokens / self.ep)
        router = Gemm(m=plain(routed), n=self.experts, k=self.hidden, dtype=self.out_dtype, name="router")
        return (router, self.changed(router=False))

    def flop(self) -> Number:
        """Return the FLOP of products, activation, weighted sum and router [FLOP]."""
        slots = self.computed_slots
        rest = ACTIVATION_FLOP * slots * self.inter_of_rank + 2.0 * slots * self.hidden
        router = self.router * self.tokens / self.ep * (2.0 * self.hidden + 1.0) * self.experts
        return self.product_flop() + rest + router

    def tensors(self) -> tuple[Tensor, ...]:
        """Return tokens, weights of the router and of the touched experts, their scales, and the result."""
        inter, visiting, found = self.inter_of_rank, self.visiting_tokens(), self.touched
        up = (1.0 + self.gated) * inter
        inputs = [
            Tensor.input("x", (visiting, self.hidden), self.out_dtype),
            Tensor.input("w_up", (found, self.hidden, up), self.weight_dtype),
            Tensor.input("w_down", (found, inter, self.hidden), self.weight_dtype),
        ]
        for name, n, k in (("up_", up, self.hidden), ("down_", self.hidden, inter)):
            scales = scale_tensors(self.dtype, self.weight_dtype, self.scale, 1.0, n, k, found, name)
            inputs += [tensor for tensor in scales if tensor.name.endswith("b_scale")]
        if self.router:
            inputs.append(Tensor.input("router", (self.hidden, self.experts), self.out_dtype))
        return (*inputs, Tensor.output("y", (visiting, self.hidden), self.out_dtype))

    def glue_bytes(self, skipped: Number = 0.0) -> Number:
        """Return the bytes that permutation, activation and weighted sum move between the products [B].

        s (2 S h + (gated + 1) S f' + 2 T h), s = 2 B: rows sorted by expert, hidden layers, tokens in and out. The S
        slots are those that are computed, and ``skipped`` ones that pass through the kernels as zeros.
        """
        slots = self.computed_slots + skipped
        rows = 2.0 * slots * self.hidden + (self.gated + 1.0) * slots * self.inter_of_rank
        return dtype_bytes(self.out_dtype) * (rows + 2.0 * self.visiting_tokens() * self.hidden)

    def dispatch(self) -> Alltoall:
        """Return the exchange that brings the tokens to their experts: T / ep tokens of a rank to `visits` ranks each.

        Tokens travel in ``dtype``, with a scale in fp32 for 128 numbers where it has 8 bits or fewer.
        """
        narrow = dtype_bytes(self.dtype) < 2
        return self._exchange("dispatch", dtype_bytes(self.dtype) + (4.0 / 128.0 if narrow else 0.0))

    def combine(self) -> Alltoall:
        """Return the exchange that brings the results back, in ``out_dtype``."""
        return self._exchange("combine", dtype_bytes(self.out_dtype))

    def _exchange(self, name: str, element_bytes: float) -> Alltoall:
        sent = np.ceil(self.tokens / self.ep * self.visits * self.hidden * element_bytes)
        return Alltoall(bytes=sent, num_gpus=self.ep, dtype=self.out_dtype, name=name)
