"""One layer of a model on one GPU: its products, its attention, and what its memory-bound kernels move.

Everything here is the work of one micro batch before any constant of training is applied, so that it depends on the
model, the machine and the shard only, and is kept for all plans that share them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.training.compressed import compressed_core
from perfmodel.training.document_core import core_length, of_documents
from perfmodel.training.kernels import (
    BLOCK_SCALES,
    NO_CORE,
    Core,
    CoreTime,
    Product,
    arithmetic,
    core_time,
    product_times,
    stream_time,
)
from perfmodel.training.layer_matrices import COLUMNS, EXPERT, ROWS, Matrix, held_weights, matrices_of
from perfmodel.training.shard import Shard, key_heads
from perfmodel.training.states import state_core
from perfmodel.training.streams import chains, expert_stream_bytes, stream_bytes
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig


class Passes(NamedTuple):
    """The products of one matrix: forward, gradient of the input, gradient of the weights [s]."""

    forward_s: float
    input_s: float
    weight_s: float

    @property
    def backward_s(self) -> float:
        """Both gradients [s]."""
        return self.input_s + self.weight_s


@dataclass(frozen=True)
class LayerWork:
    """The work of one layer and micro batch on one GPU, before constants.

    Attributes
    ----------
    products : matrix ("qkv", "out", "up", "down", ...) -> its products.
    core : attention between the projections, nothing in a layer without keys.
    states : the states of a layer that keeps them, between their products.
    streams_s, streams_backward_s : memory-bound kernels as copies of the same bytes [s].
    expert_streams_s, expert_streams_backward_s : those of them inside routed experts [s].
    cast_elements, cast_backward_elements : that this GPU casts to 8 bits or fewer in each pass.
    gathered_elements : that come in 8 bits or fewer from tensor parallel ranks in the backward pass.
    flop : forward FLOP of the products of this GPU.
    accumulate_s : reading the fp32 gradients that the products of the weights' gradients add to [s].
    parameters, expert_parameters : that the GPU holds, without and in routed experts.
    token_bytes : one copy of each token that a GPU sends to experts, of the busiest GPU [B].
    kernels, kernels_backward : kernels of each pass.
    """

    products: dict[str, Passes]
    core: CoreTime
    states: CoreTime
    streams_s: float
    streams_backward_s: float
    expert_streams_s: float
    expert_streams_backward_s: float
    cast_elements: float
    cast_backward_elements: float
    gathered_elements: float
    flop: float
    accumulate_s: float
    parameters: float
    expert_parameters: float
    token_bytes: float
    kernels: int
    kernels_backward: int

    @property
    def experts(self) -> Passes:
        """The products of routed experts."""
        routed = [passes for name, passes in self.products.items() if name.startswith(EXPERT)]
        return Passes(*(sum(times) for times in zip(*routed, strict=True))) if routed else Passes(0.0, 0.0, 0.0)


@cached_per_machine
def layer_work(hardware: Hardware, config: ModelConfig, shard: Shard, kind: Kind) -> LayerWork:
    """Return the work of one layer.

    Parameters
    ----------
    hardware, config, shard, kind : machine, model, what one GPU holds of a layer, and the layer's kind.
    """
    matrices = matrices_of(config, shard, kind)
    core = _shared_core(_core_times(hardware, config, shard, kind), shard) if kind.attends else NO_CORE
    cores = kind.attends + kind.linear
    forward, backward = stream_bytes(hardware, config, shard, kind)
    of_experts = expert_stream_bytes(config, shard) if kind.moe else (0.0, 0.0)
    products = product_passes(hardware, matrices, shard)
    weights = {name: matrix.batch * matrix.n * matrix.k for name, matrix in matrices.items()}
    quantised, quantised_backward, gathered = _quantised(matrices, shard) if shard.narrow else (0.0, 0.0, 0.0)
    return LayerWork(
        products=products,
        core=core,
        states=_state_times(hardware, config, shard) if kind.linear else NO_CORE,
        streams_s=sum(stream_time(hardware, moved) for moved in (*forward, core.softmax_bytes)),
        streams_backward_s=sum(stream_time(hardware, moved) for moved in (*backward, core.softmax_backward_bytes)),
        expert_streams_s=stream_time(hardware, of_experts[0]),
        expert_streams_backward_s=stream_time(hardware, of_experts[1]),
        cast_elements=quantised,
        cast_backward_elements=quantised_backward,
        gathered_elements=gathered,
        flop=sum(2.0 * matrix.rows * weights[name] for name, matrix in matrices.items()),
        accumulate_s=_accumulation(hardware, sum(weights.values()), shard),
        parameters=held_weights(config, shard, kind) + (kind.blocks + (shard.cross_seq > 0)) * config.norm_parameters,
        expert_parameters=sum(weight for name, weight in weights.items() if name.startswith(EXPERT)),
        token_bytes=shard.imbalance * shard.outer_tokens * config.expert_width * 2.0 if kind.moe else 0.0,
        kernels=(1 + shard.narrow) * len(matrices) + len(forward) + chains(config, shard, 0, kind) + cores,
        kernels_backward=(2 + shard.narrow) * len(matrices)
        + len(backward)
        + chains(config, shard, 1, kind)
        + 2 * cores,
    )


def _quantised(matrices: dict[str, Matrix], shard: Shard) -> tuple[float, float, float]:
    """Return the elements that a GPU casts in each pass, and those that it gathers in backward.

    It casts the inputs of its products, once where several read the same, and the gradients of their outputs. What
    sequence parallel ranks gather each of them casts a share of before, where the framework does so: inputs of
    column-parallel products, and gradients of outputs of row-parallel ones. Backward gathers both, the inputs again.
    """
    inputs = {name: matrix.batch * matrix.rows * matrix.k for name, matrix in matrices.items()}
    outputs = {name: matrix.batch * matrix.rows * matrix.n for name, matrix in matrices.items()}
    shared = [names for columns in COLUMNS if (names := [name for name in columns if name in matrices])]
    whole = sum(inputs[names[0]] for names in shared)
    own = sum(inputs.values()) - sum(inputs[name] for names in shared for name in names)
    if not (shard.sp and shard.gathers_cast):
        return own + whole, sum(outputs.values()), 0.0
    whole_backward = sum(outputs[name] for name in ROWS if name in matrices)
    left = 1.0 - 1.0 / shard.tp
    return own + whole / shard.tp, sum(outputs.values()) - left * whole_backward, whole + whole_backward


def _accumulation(hardware: Hardware, weights: float, shard: Shard) -> float:
    """Return the time of reading the sum that a product of a weight's gradient adds to, in fp32 [s].

    Megatron's fused accumulation reads and writes it in the product's epilogue; the product's own time has the write.
    """
    if not shard.accumulates or shard.element_bytes != 2.0:
        return 0.0
    return stream_time(hardware, (4.0 if shard.main_gradients == "fp32" else 2.0) * weights)


def _state_times(hardware: Hardware, config: ModelConfig, shard: Shard) -> CoreTime:
    """Return the time of the states of one layer."""
    dtype = shard.sixteen if shard.sixteen != "tf32" else "fp32"
    return state_core(hardware, config, shard.sequences, shard.seq, shard.tp, dtype)


def _shared_core(core: CoreTime, shard: Shard) -> CoreTime:
    """Return a core of attention whose softmax context parallel ranks share out, as they do its rows."""
    moved = core.softmax_bytes / shard.cp, core.softmax_backward_bytes / shard.cp
    return replace(core, softmax_bytes=moved[0], softmax_backward_bytes=moved[1])


#: ends of the names of matrices whose products stay in 16 bits
_WIDE = ("router", "_compressor", "_mixing", "index_weight")
#: rows of a tile of a grouped product: the rows of each expert are padded to it
_EXPERT_TILE = 128


def product_passes(hardware: Hardware, matrices: dict[str, Matrix], shard: Shard) -> dict[str, Passes]:
    """Return the products of each matrix; those that are new to the machine are predicted together."""
    dtype, sixteen = arithmetic(shard.dtype), shard.sixteen
    main = shard.main_gradients if shard.element_bytes == 2.0 else "fp32"
    listed: dict[str, tuple[Product, Product, Product]] = {}
    for name, matrix in matrices.items():
        rows = float(-(-matrix.rows // 1))
        if matrix.batch > 1 and rows > 1:
            rows = float(-(-rows // _EXPERT_TILE) * _EXPERT_TILE)
        n, k, batch = max(1.0, round(matrix.n)), max(1.0, round(matrix.k)), max(1.0, round(matrix.batch))
        kind = sixteen if name.endswith(_WIDE) else dtype
        out = sixteen if sixteen != "tf32" else "fp32"
        libraries = shard.libraries_of(kind)
        listed[name] = (
            Product(rows, n, k, kind, out, batch, libraries),
            Product(rows, k, n, kind, out, batch, libraries),
            Product(n, k, rows, kind, main, batch, libraries),
        )
    times = product_times(hardware, (product for three in listed.values() for product in three))
    slow = BLOCK_SCALES.get(shard.dtype, 1.0)
    return {
        name: Passes(*(times[product] * (slow if product.dtype == dtype else 1.0) for product in three))
        for name, three in listed.items()
    }


def _core_times(hardware: Hardware, config: ModelConfig, shard: Shard, kind: Kind) -> CoreTime:
    """Return the time of the core of attention of one layer, with that to the encoder's tokens in a decoder."""
    if config.architecture.shared_vector:
        return compressed_core(hardware, config, shard, kind)
    own = _core(config, shard, kind.windowed)
    time = core_time(hardware, own, shard.dropout, shard.softmax_passes, shard.row_library)
    if shard.documents:
        time = of_documents(time, own, shard)
    if not shard.cross_seq:
        return time
    cross = own._replace(keys=float(shard.cross_seq), causal=False, window=0)
    other = core_time(hardware, cross, shard.dropout, shard.softmax_passes, shard.row_library)
    both = {item.name: getattr(time, item.name) + getattr(other, item.name) for item in fields(CoreTime)}
    return CoreTime(**{**both, "charted": time.charted})


def _core(config: ModelConfig, shard: Shard, windowed: bool) -> Core:
    """Return the core of attention of one GPU; of context parallel ranks, its share of the work of whole sequences.

    Of documents it is that of as many tokens in documents of one length (`perfmodel.training.documents`).
    """
    heads = config.heads / shard.tp
    keys = key_heads(config, shard.tp)
    seq = core_length(shard)
    return Core(
        batch=shard.sequences * shard.seq / seq,
        heads=heads,
        kv_heads=heads if heads % max(1.0, round(keys)) else keys,
        seq=seq,
        head_dim=config.head_dim,
        value_dim=config.value_dim,
        causal=config.architecture.causal,
        window=config.window if windowed else 0,
        kernel=shard.kernel,
        dtype=shard.sixteen if shard.sixteen != "tf32" else "fp32",
        libraries=shard.libraries_of(shard.sixteen),
        chunked=config.chunked,
    )


@dataclass(frozen=True)
class HeadWork:
    """The head of one micro batch on a GPU of the last stage, before constants.

    Attributes
    ----------
    products : of the logits.
    logits : of one GPU.
    streams_s : the final norm, both passes, as copies [s].
    flop : forward FLOP of the logits of this GPU.
    parameters : of the head on this GPU, and of the embedding on one of the first stage.
    """

    products: Passes
    logits: float
    streams_s: float
    flop: float
    parameters: float


@cached_per_machine
def head_work(hardware: Hardware, config: ModelConfig, shard: Shard) -> HeadWork:
    """Return the work of the head: logits in 16 bits, their gradients, the final norm."""
    vocab, width = config.vocab / shard.tp, config.embedding_dim
    matrix = Matrix(shard.tokens, vocab, width)
    sixteen = shard._replace(dtype=shard.sixteen)
    passes = product_passes(hardware, {"logits": matrix}, sixteen)["logits"]
    passes = passes._replace(weight_s=passes.weight_s + _accumulation(hardware, vocab * width, shard))
    return HeadWork(
        products=passes,
        logits=shard.tokens * vocab,
        streams_s=stream_time(hardware, 5 * shard.element_bytes * shard.outer_tokens * config.hidden),
        flop=2.0 * shard.tokens * vocab * width,
        parameters=config.vocab * width / shard.tp,
    )
