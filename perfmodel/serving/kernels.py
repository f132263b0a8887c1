"""Kernels of one step on one GPU: the fused kernels of a serving engine, with their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.moe import Moe
from perfmodel.operators.sampling import ALGORITHMS, Sampling
from perfmodel.serving.attention import LayerAttention
from perfmodel.serving.cost import Array, Cost, Deviation, kernel
from perfmodel.serving.engine import Engine
from perfmodel.serving.experts import DEVIATION, experts_time
from perfmodel.serving.kernel_counts import KernelCounts
from perfmodel.serving.layer_exchanges import LayerExchanges
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.precision import SIXTEEN, Format, beside_experts, weight_format
from perfmodel.serving.products import Products
from perfmodel.serving.shard import Shard
from perfmodel.serving.stage_sends import add_sends
from perfmodel.serving.streams import laurel, predicted_streams
from perfmodel.serving.triton_blocks import ROWS, walk_s
from perfmodel.workloads.state_layer import IN_SIXTEEN_BITS, StateLayer

#: the largest logit is the token; and the ways to draw one
GREEDY = "greedy"
SAMPLINGS = (GREEDY, *ALGORITHMS)
#: size of a product that runs at the rate which products of many rows sustain
LARGE = 8192.0
#: part of the start of a layer of experts, as tables of kernels have it, that a graph of a whole step hides [s]: such
#: starts are 36 to 46 us in the tables, and 25 us in engines
HIDDEN_START_S = 20e-6
#: passes over keys and gates in fp32 that compression makes of a token: written, and read for the sum
COMPRESSOR_PASSES = 2.0


@dataclass(frozen=True)
class Kernels:
    """What runs: a GPU's part of a model, in some precision, with an engine's kernels, on a machine."""

    shard: Shard
    parallel: Parallel
    engine: Engine
    hardware: Hardware
    weights: Format
    kv: str
    sampling: str = GREEDY

    @property
    def dtype(self) -> str:
        """Dtype of activations and of products that are not quantised."""
        return "bf16" if "bf16" in self.hardware.dtypes() else "fp16"

    @property
    def products(self) -> Products:
        """The engine's matrix products."""
        return Products(self.engine, self.hardware, self.dtype)

    @property
    def exchanges(self) -> LayerExchanges:
        """What the GPUs of a layer exchange."""
        return LayerExchanges(self.shard, self.parallel, self.engine, self.hardware, self.weights, self.dtype)

    def linear(self, tokens: Array) -> Cost:
        """Return the cost of all layers of a stage without attention, for numbers of tokens of a GPU."""
        cost, shard = Cost(), self.shard
        self._attention_products(cost, tokens)
        for width, layers in shard.mlps:
            self._mlp(cost, tokens, width, layers)
        if shard.layer_embedding:
            self._layer_embeddings(cost, tokens)
        if shard.altup:
            predicted_streams(self, cost, tokens)
        if shard.laurel_rank:
            laurel(self, cost, tokens)
        if shard.cross_tokens:
            self._across(cost, tokens)
        if shard.shared_blocks:
            self._around_blocks(cost, tokens)
        if shard.moe_layers > 0:
            if shard.shared_ffn:
                self._mlp(cost, tokens, shard.shared_ffn, shard.moe_layers)
            self._experts(cost, tokens)
        self._small_kernels(cost, tokens)
        if apart := self.counts.unfused * shard.attending_layers:  # of the rotary part of queries, or less
            self.stream(cost, "kernels", tokens * shard.heads * shard.rope_dim, 1, "copy", apart)
        self.exchanges.add(cost, tokens)
        add_sends(cost, shard, self.parallel, self.hardware, tokens)
        gaps = shard.layers * self.kernels_per_layer * self.engine.gap_s
        cost.add("gaps", np.full(tokens.shape, gaps), "gaps", np.zeros(()))
        return cost

    @property
    def counts(self) -> KernelCounts:
        """How many kernels a layer launches."""
        return KernelCounts(self.shard, self.engine, self.weights.name, self.parallel.tp > 1)

    @property
    def kernels_per_layer(self) -> float:
        """Kernels of one layer in a step without prompts."""
        return self.counts.per_layer

    @property
    def prompt_kernels_per_layer(self) -> float:
        """Kernels of one layer in a step with prompts."""
        return self.counts.per_prompt_layer

    @property
    def beside(self) -> Format:
        """The format of the weights beside experts."""
        return beside_experts(self.weights, self.dtype, self.hardware) if self.shard.experts else self.weights

    @property
    def of_head(self) -> Format | None:
        """The format of the logits' weights; None for 16 bits, in which most engines keep them."""
        return weight_format(self.weights.tables) if self.weights.tables else None

    def product(self, cost: Cost, term: str, m: Array, n: int, k: int, layers: float) -> None:
        """Add one matrix product of each layer, under the load of hours of serving."""
        self._product(cost, term, (m, n, k), layers, self.beside)

    def wide_product(self, cost: Cost, term: str, m: Array, n: int, k: int, times: float = 1.0) -> None:
        """Add matrix products in 16 bits, whatever the format of the weights."""
        self._product(cost, term, (m, n, k), times, None)

    def _product(
        self, cost: Cost, term: str, sizes: tuple[Array, int, int], layers: float, form: Format | None, batch: int = 1
    ) -> None:
        m, n, k = sizes
        time, deviation = self.products.time(m, n, k, form, batch=batch)
        cost.add(term, layers * time * self.products.loaded(m) * self.engine.slower, "gemm", deviation, f"{n} {k}")

    def _attention_products(self, cost: Cost, tokens: Array) -> None:
        shard, layers = self.shard, self.shard.attending_layers
        if shard.state:
            self._state_products(cost, tokens, shard.state)
        if shard.index_layers:
            self._index_products(cost, tokens)
        self._compressors(cost, tokens)
        if not shard.is_latent:
            for part, count in shard.attentions:
                self.product(cost, "weights", tokens, part.qkv_width, part.attention_input, count)
                self._output_products(cost, tokens, part, count)
            return
        nope = shard.head_dim - shard.rope_dim
        self.product(cost, "weights", tokens, shard.made_width + shard.q_lora, shard.hidden, layers)
        width = shard.heads * shard.head_dim
        self.product(cost, "weights", tokens, width, shard.q_lora or shard.hidden, layers)
        if shard.kv_lora:
            self.product(cost, "weights", tokens, shard.heads * (nope + shard.value_dim), shard.kv_lora, layers)
        self._output_products(cost, tokens, shard, layers)

    def _output_products(self, cost: Cost, tokens: Array, part: Shard, layers: float) -> None:
        """Add the products that follow attention; groups of heads are one kernel."""
        for count, n, k in part.output_matrices:
            self._product(cost, "weights", (tokens, n, k), layers, self.beside, count)

    def _index_products(self, cost: Cost, tokens: Array) -> None:
        """Add the products of indexers, all of which each GPU computes: queries, and keys beside heads' weights.

        Those of blocks have no such weights, and their heads are shared out. Keys that are compressed come with what
        compresses tokens.
        """
        shard, layers = self.shard, self.shard.index_layers
        into = shard.q_lora or shard.hidden
        self.product(cost, "weights", tokens, shard.index_heads * shard.index_head_dim, into, layers)
        width = shard.index_heads * (not shard.block_indexer)
        width += 0 if shard.index_compressors else shard.index_head_dim
        self._product(cost, "weights", (tokens, width, shard.hidden), layers, None)

    def _compressors(self, cost: Cost, tokens: Array) -> None:
        """Add what compresses tokens, all of which each GPU computes: products in 16 bits, and sums in fp32."""
        for one, layers in self.shard.compressors:
            width = sum(matrix.n for matrix in one.matrices)
            self._product(cost, "weights", (tokens, width, one.hidden), layers, None)
            # a copy of 16 bits reads and writes 4 B of an element, and a pass moves 4 B of each key and gate
            self.stream(cost, "kernels", COMPRESSOR_PASSES * tokens * width, 1, "copy", layers)

    def _state_products(self, cost: Cost, tokens: Array, state: StateLayer) -> None:
        """Add the products around the states of layers that keep them."""
        for matrix in state.matrices():
            form = None if matrix.name in IN_SIXTEEN_BITS else self.beside
            self._product(cost, "weights", (tokens, matrix.n, matrix.k), self.shard.linear_layers, form)

    def _around_blocks(self, cost: Cost, tokens: Array) -> None:
        """Add what layers do of their own around a block that they share: adapters, and the matrix behind it.

        The residual stream is joined with the embedding, and the norm is of both.
        """
        shard, layers = self.shard, self.shard.joint_layers
        for n, k in shard.block_matrices:
            self.product(cost, "weights", tokens, n, k, layers)
        self.stream(cost, "kernels", tokens * shard.attention_input, 1, "copy", 2.0 * layers)

    def _layer_embeddings(self, cost: Cost, tokens: Array) -> None:
        """Add the embeddings that layers have of their own, which each GPU computes all of.

        Before the layers: a product from the embedding, its norm, and the sum with what the table has of the token,
        which is read. In each layer a product, whose result the embedding is multiplied into, and one back.
        """
        shard, width = self.shard, self.shard.layer_embedding
        every = shard.layers * width
        self.product(cost, "weights", tokens, round(every), shard.hidden, 1.0)
        self.stream(cost, "kernels", tokens * every, 1, "copy", 2.0)
        self.stream(cost, "kernels", tokens * every, 2, "add", 1.0)
        self.product(cost, "weights", tokens, width, shard.hidden, shard.layers)
        self.stream(cost, "kernels", tokens * width, 2, "silu_mul", shard.layers)
        self.product(cost, "weights", tokens, shard.hidden, width, shard.layers)
        if shard.altup:  # what it gives is added to all streams but the first
            self.stream(
                cost, "kernels", tokens * shard.hidden * (shard.residual_streams - 0.5), 1, "copy", shard.layers
            )
            return
        self.residuals(cost, tokens, shard.layers)

    def _across(self, cost: Cost, tokens: Array) -> None:
        """Add what attention to an encoder's tokens has for each token of the decoder: two products and a norm."""
        shard = self.shard
        self.product(cost, "weights", tokens, shard.heads * shard.head_dim, shard.hidden, shard.layers)
        self._output_products(cost, tokens, shard, shard.layers)
        self.residuals(cost, tokens, shard.layers)

    def _mlp(self, cost: Cost, tokens: Array, ffn: int, layers: float) -> None:
        hidden = self.shard.hidden
        self.product(cost, "weights", tokens, (2 if self.shard.gated else 1) * ffn, hidden, layers)
        self.product(cost, "weights", tokens, hidden, ffn, layers)

    def _experts(self, cost: Cost, tokens: Array) -> None:
        """Add the experts of all layers, and the router."""
        shard = self.shard
        sixteen = self.weights.compute in SIXTEEN and not self.weights.weight_only
        time, deviation = self._measured_experts(tokens) if sixteen else self._narrow_experts(tokens)
        cost.add("experts", shard.moe_layers * time * self.engine.slower, "experts", deviation, "experts")
        if shard.has_latent_experts:
            self.product(cost, "weights", tokens, shard.expert_hidden, shard.hidden, shard.moe_layers)
            self.product(cost, "weights", tokens, shard.hidden, shard.expert_hidden, shard.moe_layers)
        self._product(cost, "experts", (tokens, shard.scored_experts, shard.hidden), shard.moe_layers, None)

    def _measured_experts(self, tokens: Array) -> tuple[Array, Array | Deviation]:
        """Return the time of one layer's experts in 16 bits [s]: that of libraries' kernels, less what graphs hide."""
        shard, parallel = self.shard, self.parallel
        gathered = tokens * (parallel.dp if parallel.ep > 1 else 1)
        op = Moe(
            tokens=np.maximum(1.0, np.round(gathered)), hidden=shard.expert_hidden,
            inter=shard.expert_ffn * parallel.expert_parts, experts=shard.experts, top_k=shard.top_k,
            tp=parallel.expert_parts, ep=parallel.ep, gated=shard.gated, dtype=self.weights.compute, router=False,
        )  # fmt: skip
        time, deviation = kernel(op, self.hardware, self.engine.library)
        return np.maximum(time - HIDDEN_START_S, 0.5 * time), deviation

    def _narrow_experts(self, tokens: Array) -> tuple[Array, Array | Deviation]:
        """Return the time of one layer's experts in 8 or 4 bits [s], by the closed form that engines follow better."""
        shard, hardware = self.shard, self.hardware
        rate = hardware.main_memory.bandwidth_bytes_per_s or np.nan
        size = np.array([LARGE])
        gates = 2 if shard.gated else 1
        # a token is quantised once for all experts that it visits
        hidden, ffn = shard.expert_hidden, shard.expert_ffn
        up, _ = self.products.time(size, gates * ffn, hidden, self.weights, quantises=False, experts=True)
        down, _ = self.products.time(size, hidden, ffn, self.weights, quantises=False, experts=True)
        flop = 2.0 * LARGE * (gates + 1) * ffn * hidden
        peak = float((flop / (up + down) / self.products.loaded(size)).item())
        widened = (
            self.weights.weight_only and self.weights.compute in SIXTEEN and hardware.matrix_instruction == "wgmma"
        )
        start = self.engine.experts_start_on(hardware.matrix_instruction)
        time = experts_time(
            shard, self.parallel, tokens, self.weights.bytes, rate, peak, start, widened=widened,
            vectors=self.engine.vectors, vector_rate=self.products.vector_rate(), **self._tiles,
        )  # fmt: skip
        return time, np.full(time.shape, DEVIATION)

    @property
    def _tiles(self) -> dict[str, Any]:
        """Tiles of experts whose products with scales of blocks are Triton's."""
        if not self.products.by_triton(self.weights, experts=True):
            return {}
        shard, untuned = self.shard, self.hardware.name.split("-")[0] in self.engine.untuned.split(",")
        walk = walk_s(shard.expert_hidden) + walk_s(shard.expert_ffn)
        return {"fewest_rows": int(ROWS), "walk_s": walk} if untuned else {"walk_s": walk}

    def stream(self, cost: Cost, term: str, numel: Array, inputs: int, kind: str, layers: float) -> None:
        """Add one kernel that streams its tensors."""
        sizes = np.maximum(1.0, np.round(numel))
        op = Elementwise(kind=kind, numel=sizes, num_inputs=inputs, dtype=self.dtype)
        time, deviation = kernel(op, self.hardware, self.engine.library)
        cost.add(term, layers * time * self.engine.slower * self.engine.passes, "streams", deviation, kind)

    def _small_kernels(self, cost: Cost, tokens: Array) -> None:
        """Add residual addition with norm (3 reads, 1 write), rotation with the cache's write, and activation."""
        shard = self.shard
        norms = shard.layers if shard.parallel_block else 2 * shard.layers - shard.bare_layers
        self.residuals(cost, tokens, norms)
        for part, layers in shard.attentions:
            self.stream(cost, "kernels", tokens * part.heads_width, 1, "copy", layers)
            if part.qk_norm:
                heads = part.heads + part.kv_heads * (not part.borrows_keys)
                self.stream(cost, "kernels", tokens * heads * part.head_dim, 1, "copy", layers)
            if part.output_gate or part.head_gate:
                self.stream(cost, "kernels", tokens * part.heads * part.value_dim, 2, "mul", layers)
        if shard.state:  # the convolution, and the norm of the output with its gate
            if shard.state.passed_width:
                self.stream(cost, "kernels", tokens * shard.state.passed_width, 1, "copy", shard.linear_layers)
            gated, gates = tokens * shard.state.value_width, shard.state.gates
            self.stream(cost, "kernels", gated, 2, "silu_mul", gates * shard.linear_layers)
        if shard.joint_layers:  # the sum of what attention and states give, of wide ones after a norm each
            width = shard.heads * shard.value_dim if shard.joint_output else shard.hidden
            self.stream(cost, "kernels", tokens * width, 2, "add", shard.joint_layers)
            if shard.joint_output:
                self.stream(cost, "kernels", tokens * width, 1, "copy", 2.0 * shard.joint_layers)
        if shard.sparse_layers:  # mean and deviation of a gate, which its activation reads again
            self.stream(cost, "kernels", 0.5 * tokens * shard.ffn, 1, "copy", shard.sparse_layers)
        for width, layers in shard.mlps:
            self.stream(cost, "kernels", tokens * width, 2 if shard.gated else 1,
                        "silu_mul" if shard.gated else "gelu", layers)  # fmt: skip

    def residuals(self, cost: Cost, tokens: Array, norms: float) -> None:
        """Add what stands between blocks: an addition with a norm, or a hyper-connection of m residual streams.

        That reads all streams for the product that gives its weights, reads them for the sum that goes into the block
        (m reads, 1 write, the norm with it), and reads and writes them as it spreads the block's output over them
        (m + 1 reads, m writes).
        """
        m, hidden = self.shard.residual_streams, self.shard.hidden
        if not self.shard.mixes_streams:
            self.stream(cost, "kernels", tokens * hidden, 3, "add", norms)
            return
        self._product(cost, "kernels", (tokens, m * (m + 2), m * hidden), norms, None)
        self.stream(cost, "kernels", tokens * hidden, m, "add", norms)
        self.stream(cost, "kernels", tokens * hidden * (m + 0.5), 1, "copy", norms)

    def head(self, rows: Array) -> Cost:
        """Return the cost of logits and sampling for a number of rows."""
        cost, shard = Cost(), self.shard
        self._product(cost, "head", (rows, shard.vocab, shard.embedding_dim), 1.0, self.of_head)
        op = Elementwise(kind="copy", numel=np.maximum(1.0, np.round(rows * shard.vocab)), dtype="fp32")
        time, deviation = kernel(op, self.hardware, self.engine.library)
        if self.sampling == GREEDY:  # the conversion to 32 bits, and the largest logit
            cost.add("head", 2.0 * time, "streams", deviation, "sampling")
            return cost
        cost.add("head", time, "streams", deviation, "sampling")
        drawn = Sampling(
            rows=np.maximum(1.0, np.round(rows)), vocab=shard.vocab * self.parallel.tp, algorithm=self.sampling,
            dtype="fp32",
        )  # fmt: skip
        time, deviation = kernel(drawn, self.hardware, self.engine.library)
        cost.add("head", time, "sampling", deviation.whole)
        return cost

    @property
    def attention(self) -> LayerAttention:
        """Attention of the layers."""
        return LayerAttention(self.shard, self.engine, self.hardware, self.dtype, self.kv)

    def decode(self, sequences: Array, context: Array) -> tuple[Array, Array]:
        """Return the time of attention of all layers for one token of each sequence [s], and its deviation."""
        return self.attention.over_layers(batch=sequences, seq_q=1, seq_kv=context)

    def prefill(self, prompts: Array, tokens: Array, keys: Array) -> tuple[Array, Array]:
        """Return the time of attention of all layers for some prompts of ``tokens`` queries and ``keys`` keys [s]."""
        return self.attention.over_layers(batch=prompts, seq_q=tokens, seq_kv=keys)
