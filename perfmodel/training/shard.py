"""What one GPU holds and runs of a layer in one micro batch."""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.training.kernels import arithmetic
from perfmodel.workloads.model_config import ModelConfig

#: dtypes of 8 bits or fewer in which products run
NARROW = ("fp8", "fp4")


def expert_tokens(tokens: float, tp: int, etp: int, sp: bool) -> float:
    """Return the different tokens of ``etp`` ranks that share out each expert, of ``tp`` that share out a micro batch.

    With sequence parallelism each rank has tokens / tp; without, all tp ranks have the same ones.
    """
    return tokens * (etp / tp if sp else max(1.0, etp / tp))


class Shard(NamedTuple):
    """What one GPU holds and runs of a layer in one micro batch.

    Attributes
    ----------
    tokens : micro batch times sequence over the context parallel ranks.
    sequences : of the micro batch.
    seq : tokens of a sequence, over all context parallel ranks.
    tp, ep, etp, cp : ranks that share out a layer, see `TrainingPlan`.
    sp : sequence parallelism.
    dtype : of the products of layers.
    kernel : of attention.
    softmax_passes : times that unfused attention reads and writes its scores for scale, mask and softmax.
    dropout, fused_dropout : whether activations are dropped, and in the kernel of the residual's addition.
    bias : whether the matrices of models with LayerNorm have a bias.
    main_gradients : dtype in which weight gradients are added up, "fp32" or "bf16".
    norm_bytes, rotary_bytes, gate_bytes, square_bytes, gelu_new_bytes : what the kernels of a norm, of the rotary
        positions, of a gated activation, of a squared ReLU and of GPT-2's GELU move for an element of their output,
        forward and backward [B].
    routed_bytes : what sorting tokens for experts, weighing what these give and adding it up move for an element of the
        hidden state of each of a token's copies, forward and backward [B].
    row_library : library whose fused norms and softmax its own are like.
    split_bytes : what joining the gradients of queries, keys and values moves for an element of the hidden state [B].
    copies_queries : whether queries and values are copied out of the projection's output.
    ulysses : whether attention has whole sequences and a share of the heads.
    imbalance : tokens of the busiest expert parallel rank over the mean.
    libraries, narrow_libraries : that run the kernels of products in 16 bits, and in 8 bits or fewer.
    cross_seq : tokens of the encoder's sequence that a decoder's layers attend to as well; 0 without an encoder.
    accumulates : whether the products of weight gradients add to those of earlier micro batches.
    gathers_cast : whether sequence parallel ranks cast to 8 bits or fewer before they gather.
    documents : equally frequent lengths of the documents of a sequence, to which attention keeps; () for whole ones.
    """

    tokens: float
    sequences: float
    seq: int
    tp: int
    ep: int
    etp: int
    cp: int
    sp: bool
    dtype: str
    kernel: str
    softmax_passes: int
    dropout: bool
    bias: bool
    main_gradients: str
    norm_bytes: tuple[float, float]
    rotary_bytes: tuple[float, float]
    gate_bytes: tuple[float, float]
    square_bytes: tuple[float, float] = (4.0, 6.0)
    gelu_new_bytes: tuple[float, float] = (4.0, 6.0)
    routed_bytes: tuple[float, float] = (8.0, 8.0)
    row_library: str = "triton"
    fused_dropout: bool = True
    split_bytes: float = 0.0
    copies_queries: bool = False
    ulysses: bool = False
    imbalance: float = 1.0
    cross_seq: int = 0
    accumulates: bool = False
    gathers_cast: bool = False
    libraries: tuple[str, ...] = ()
    narrow_libraries: tuple[str, ...] = ()
    documents: tuple[float, ...] = ()

    @property
    def cross_tokens(self) -> float:
        """Tokens of the encoder in a micro batch that the layers of a decoder attend to."""
        return self.sequences * self.cross_seq

    @property
    def expert_tokens(self) -> float:
        """Tokens of the ranks that share out each expert: they compute its part for all of these."""
        return expert_tokens(self.tokens, self.tp, self.etp, self.sp)

    @property
    def outer_tokens(self) -> float:
        """Tokens that norms, residuals and routers of one GPU work on."""
        return self.tokens / self.tp if self.sp else self.tokens

    @property
    def element_bytes(self) -> float:
        """Bytes of an element of an activation."""
        return 4.0 if self.dtype in ("fp32", "tf32") else 2.0

    @property
    def sixteen(self) -> str:
        """The dtype of what is not in 8 bits: head and attention."""
        return self.dtype if self.dtype in ("fp32", "tf32", "fp16") else "bf16"

    def libraries_of(self, dtype: str) -> tuple[str, ...]:
        """Return which libraries run the kernels of products in a dtype; () for wide ones, whose tables have one."""
        if dtype in ("fp32", "tf32"):
            return ()
        return self.narrow_libraries if arithmetic(dtype) in NARROW else self.libraries

    @property
    def narrow(self) -> bool:
        """Whether the products of layers are in 8 bits or fewer."""
        return arithmetic(self.dtype) in NARROW


def key_heads(config: ModelConfig, tp: int) -> float:
    """Return the heads of keys and values of one of tp GPUs: ranks beyond the key heads hold copies."""
    return max(config.kv_heads / tp, 1.0)


def key_width(config: ModelConfig, tp: int) -> float:
    """Return the width of the keys of one of tp GPUs, in elements a token."""
    return key_heads(config, tp) * config.head_dim


def key_value_width(config: ModelConfig, tp: int) -> float:
    """Return the width of the keys and the values of one of tp GPUs, whose heads may be unequal, or one vector."""
    return key_heads(config, tp) * (config.head_dim + (0 if config.architecture.shared_vector else config.value_dim))
