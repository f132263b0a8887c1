"""One forward pass of a transformer as a list of operators, each with the number of times that it runs.

The list follows the kernels of the Hugging Face implementation in PyTorch's eager mode (transformers 4.36 to 4.40,
torch 2.1), in evaluation mode: dropout and views run no kernel; a copy runs wherever a permuted tensor has to become
contiguous. Sizes, slices and other work of the host alone are left out, and so are kernels on one element.
"""

from __future__ import annotations

import os
from numbers import Integral

from perfmodel.errors import UsageError, suggesting, unknown_name
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax
from perfmodel.workloads.catalog import find_model
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.operator_list import OperatorList

ATTENTION = ("unfused", "flash")
HEADS = ("lm", "classifier", "none")
#: model types whose eager kernels are listed here
COUNTED = ("bert", "gpt2", "llama", "mistral", "opt", "qwen2", "qwen3")
#: labels of a classifier's head, the default of Hugging Face
LABELS = 2
#: largest mask [seq, seq], in elements, that stays in a cache until the next head needs it; a larger one is read for
#: each head
_CACHED_MASK = 2**20


@suggesting
def forward_pass(
    config: str | os.PathLike[str] | ModelConfig,
    batch: int,
    seq: int,
    dtype: str = "fp32",
    attention: str = "unfused",
    head: str = "lm",
) -> list[Operator]:
    """Return the operators of one forward pass over ``batch`` sequences of ``seq`` tokens, with names and counts.

    The matrix products sum to 2 FLOP per weight and token, without the embedding, and attention to
    4 layers batch heads seq^2 head_dim FLOP, which unfused attention does not halve for causal masks.

    Parameters
    ----------
    config : the shapes of the model, or what `perfmodel.find_model` takes: a config.json, a shape, a name ("gpt2").
    batch, seq : sequences, and tokens of each.
    dtype : of weights and activations.
    attention : "unfused": two batched products, with masks, softmax and copies as kernels of their own; or "flash":
        one kernel that reads the heads in place. Everything else is unfused in both; engines that fuse norms, rotary
        positions or activations run fewer kernels.
    head : "lm": logits over the vocabulary for every token; "classifier": BERT's pooler and two classes for the first
        token of each sequence; or "none": hidden states.

    Raises
    ------
    UsageError
        For a name that no model has, a model whose kernels are not listed (other types than `COUNTED`, experts, latent
        attention, windows on some layers, an encoder with a decoder), another attention or head, a classifier's head
        for a model other than BERT, a batch or sequence below 1, and a sequence longer than the model's table of
        positions.
    """
    config = find_model(config)
    _check(config, batch, seq, attention, head)
    ops = OperatorList(config, batch, seq, dtype)
    _embedding(ops, attention)
    ops.prefix, ops.count = "layer.", config.layers
    _attention(ops, attention)
    _mlp(ops)
    ops.prefix, ops.count = "", 1
    _head(ops, head)
    return ops.operators


def _check_counted(config: ModelConfig) -> None:
    """Raise for a model whose eager kernels are not listed."""
    has = {
        "experts": config.experts,
        "latent attention (MLA)": config.latent_attention,
        "layers with a state": config.linear_layers,
        "layers without an MLP": config.bare_layers,
        "an indexer": config.index_heads,
        "an encoder with a decoder": config.encoder_layers,
        "layers that share keys and values": config.kv_shared_layers,
        "parallel attention and MLP": config.parallel_block,
        "a window on some of its layers": 0 < config.window_layers < config.layers,
        f"the kernels of {config.model_type}": config.model_type not in COUNTED,
    }
    reasons = [name for name, present in has.items() if present]
    if reasons:
        raise UsageError(
            f"the model has {' and '.join(reasons)}, which this list of eager kernels does not count.",
            place="forward_pass",
            remedy=f"Counted: dense {', '.join(COUNTED)}.",
        )


def _check(config: ModelConfig, batch: int, seq: int, attention: str, head: str) -> None:
    _check_counted(config)
    sizes: dict[str, object] = {"batch": batch, "seq": seq}
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise UsageError(f"{name}={value!r} is not a whole number above 0.", place="forward_pass")
    if attention not in ATTENTION:
        raise unknown_name("attention", attention, ATTENTION)
    if head not in HEADS:
        raise unknown_name("head", head, HEADS)
    if head == "classifier" and config.model_type != "bert":
        raise UsageError(f"head='classifier' needs BERT, not {config.model_type}.", remedy="Use 'lm' or 'none'.")
    if config.architecture.learned_positions and seq > config.positions:
        raise UsageError(
            f"seq={seq} is longer than the model's {config.positions} positions.", remedy="Use a shorter sequence."
        )


def _embedding(ops: OperatorList, attention: str) -> None:
    config, kind = ops.config, ops.config.architecture
    if attention == "unfused":
        _mask(ops)
    ops.add(Embedding, "embedding.tokens", tokens=ops.tokens, vocab=config.vocab, dim=config.embedding_dim)
    for linear in config.projections()[:1]:
        ops.linear("embedding.", linear)
    if config.token_types:
        ops.add(Embedding, "embedding.types", tokens=ops.tokens, vocab=config.token_types, dim=config.hidden)
        ops.elementwise("embedding.add_types", "add", ops.hidden)
    if kind.learned_positions:
        # GPT-2 and BERT look up the positions of one sequence, and the sum repeats them; OPT looks up all of them.
        rows = ops.tokens if kind.extra_positions else ops.seq
        table = config.positions + kind.extra_positions
        ops.add(Embedding, "embedding.positions", tokens=rows, vocab=table, dim=config.hidden)
        if kind.extra_positions:
            ops.elementwise("embedding.add_positions", "add", ops.hidden)
        else:
            ops.broadcast("embedding.add_positions", "add", ops.hidden, 1)
    if config.model_type == "bert":
        ops.norm("embedding.norm")


def _mask(ops: OperatorList) -> None:
    """Add the kernels that make the mask: none for GPT-2, which stores it; one row per sequence for BERT."""
    kind = ops.config.model_type
    if kind == "gpt2":
        return
    if kind == "bert":
        ops.elementwise("mask.invert", "sub", ops.tokens, 1)
        ops.elementwise("mask.scale", "mul", ops.tokens, 1)
        return
    ops.elementwise("mask.fill", "copy", ops.seq**2)
    ops.elementwise("mask.triangle", "where", ops.seq**2, 1)
    if kind != "opt":
        return
    # OPT combines it with a padding mask [batch, seq, seq]: each is cast to boolean, cloned and filled.
    numel = ops.batch * ops.seq**2
    ops.elementwise("mask.expand", "copy", numel)
    ops.elementwise("mask.invert", "sub", numel, 1)
    for part in ("padding", "causal"):
        ops.elementwise(f"mask.{part}_boolean", "cast", numel)
        ops.elementwise(f"mask.{part}_clone", "copy", numel)
        ops.elementwise(f"mask.{part}_fill", "where", numel, 1)


def _attention(ops: OperatorList, attention: str) -> None:
    config, kind = ops.config, ops.config.architecture
    width = ops.tokens * config.heads * config.head_dim
    if not config.norm_after:
        ops.norm("attention.norm")
    for linear in config.attention_linears():
        ops.linear("attention.", linear)
        if config.model_type == "opt" and linear.name == "query":
            ops.elementwise("attention.scale_query", "mul", width, 1)
    if kind.qk_norm:
        ops.norm("attention.query_norm", ops.tokens * config.heads, config.head_dim)
        ops.norm("attention.key_norm", ops.tokens * config.kv_heads, config.head_dim)
    if not kind.learned_positions:
        _rotary(ops, "attention.query_rotary", config.heads)
        _rotary(ops, "attention.key_rotary", config.kv_heads)
    if attention == "flash":
        ops.add(
            Attention, "attention.core", batch=ops.batch, heads=config.heads, kv_heads=config.kv_heads,
            seq_q=ops.seq, head_dim=config.head_dim, causal=kind.causal, window=config.window,
        )  # fmt: skip
    else:
        _unfused(ops)
    for linear in config.output_linears():
        ops.linear("attention.", linear)
    ops.elementwise("attention.residual", "add", ops.hidden)
    if config.norm_after:
        ops.norm("attention.norm")


def _rotary(ops: OperatorList, name: str, heads: int) -> None:
    """Add x cos + (the halves of x swapped, one negated) sin; cos and sin repeat over the heads."""
    numel = ops.tokens * heads * ops.config.head_dim
    ops.broadcast(f"{name}.1_cos", "mul", numel, 1)
    ops.broadcast(f"{name}.2_negate", "neg", numel // 2)
    ops.broadcast(f"{name}.3_swap", "copy", numel)
    ops.broadcast(f"{name}.4_sin", "mul", numel, 1)
    ops.broadcast(f"{name}.5_add", "add", numel)


def _unfused(ops: OperatorList) -> None:
    """Add attention as separate kernels: products, scale, mask, softmax, and copies between the layouts."""
    config = ops.config
    groups, products = config.heads // config.kv_heads, ops.batch * config.heads
    scores = products * ops.seq**2
    opt = config.model_type == "opt"
    if groups > 1:
        ops.swap_heads("attention.repeat_key", config.kv_heads, groups)
        ops.swap_heads("attention.repeat_value", config.kv_heads, groups)
    # The product of one sequence accepts strided heads; that of several needs one stride, and so copies. OPT always
    # copies, and keeps the copies as its keys and values.
    copies = ops.batch > 1 or opt
    if copies:
        ops.swap_heads("attention.copy_query", config.heads)
        if groups == 1:
            ops.swap_heads("attention.copy_key", config.heads)
    size = {"batch": products, "m": ops.seq}
    ops.add(Gemm, "attention.scores", n=ops.seq, k=config.head_dim, **size)
    if config.model_type == "gpt2":
        # The divisor is a tensor of one element on the device, which torch broadcasts; a number on the host is not one.
        ops.broadcast("attention.scale", "div", scores, 1)
        ops.broadcast("attention.mask", "where", scores, 1)
    else:
        if not opt:
            ops.elementwise("attention.scale", "div", scores, 1)
        square = config.architecture.causal and ops.seq**2 > _CACHED_MASK
        ops.broadcast("attention.mask", "add", scores, 2 if square else 1)
    if opt:
        ops.broadcast("attention.clamp", "maximum", scores, 1)
    # Newer models compute the softmax in fp32, and cast its result back.
    upcast = config.architecture.rms_norm and ops.dtype != "fp32"
    dtype = "fp32" if upcast else ops.dtype
    ops.add(Softmax, "attention.softmax", rows=products * ops.seq, cols=ops.seq, dtype=dtype)
    if upcast:
        ops.elementwise("attention.narrow", "cast", scores, dtype="fp32", out_dtype=ops.dtype)
    if copies and groups == 1:
        ops.swap_heads("attention.copy_value", config.heads)
    ops.add(Gemm, "attention.values", n=config.head_dim, k=ops.seq, **size)
    ops.swap_heads("attention.merge_heads", config.heads)


def _mlp(ops: OperatorList) -> None:
    config = ops.config
    inside = ops.tokens * config.ffn
    if not config.norm_after:
        ops.norm("mlp.norm")
    *into, down = config.mlp_linears()
    for linear in into:
        ops.linear("mlp.", linear)
    ops.activation("mlp.activation", inside)
    if config.architecture.gated:
        ops.elementwise("mlp.multiply", "mul", inside)
    ops.linear("mlp.", down)
    ops.elementwise("mlp.residual", "add", ops.hidden)
    if config.norm_after:
        ops.norm("mlp.norm")


def _head(ops: OperatorList, head: str) -> None:
    config = ops.config
    if not config.norm_after:
        ops.norm("head.norm")
    if head == "classifier":
        ops.linear("head.", Linear("pooler", config.hidden, config.hidden, True), ops.batch)
        ops.elementwise("head.tanh", "tanh", ops.batch * config.hidden)
        ops.linear("head.", Linear("classes", LABELS, config.hidden, True), ops.batch)
    if head != "lm":
        return
    for linear in config.head_linears():
        ops.linear("head.", linear)
        if linear.name == "transform":
            ops.activation("head.activation", ops.hidden)
            ops.norm("head.norm")
