"""One forward pass of a transformer as the list of operators that runs, each with the times that it runs.

The lists follow the kernels of the Hugging Face implementation in PyTorch's eager mode (transformers 4.36 to 4.40,
torch 2.1), in evaluation: dropout runs nothing, views run nothing, and a copy runs wherever a permuted tensor has to
become a plain one. Sizes, slices and other work of the host alone are left out, and so are kernels of one element.
"""

from __future__ import annotations

from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax
from perfmodel.workloads._pass import Pass
from perfmodel.workloads.config import Linear, ModelConfig

ATTENTION = ("unfused", "flash")
HEADS = ("lm", "classifier", "none")
#: labels of a classifier's head, the default of Hugging Face
LABELS = 2
#: elements of a mask [seq, seq] that a cache keeps until the next head needs them; a larger one is read for each head
_KEPT = 2**20


def forward_pass(
    config: ModelConfig,
    batch: int,
    seq: int,
    dtype: str = "fp32",
    attention: str = "unfused",
    head: str = "lm",
) -> list[Operator]:
    """Return the operators of one forward pass over ``batch`` sequences of ``seq`` tokens, with names and counts.

    Matrix products sum to 2 FLOP a weight and token, the embedding left out, and attention to
    4 layers batch heads seq^2 head_dim FLOP, not halved for causal masks when unfused.

    Parameters
    ----------
    config : the shapes of the model.
    batch, seq : sequences, and tokens of each.
    dtype : of weights and activations.
    attention : "unfused", two batched products with masks, softmax and copies as kernels of their own; or "flash",
        one kernel that takes the heads as they lie. All else is unfused in both: engines that fuse norms, rotary
        positions or activations run fewer kernels.
    head : "lm", logits over the vocabulary for every token; "classifier", BERT's pooler and two classes for the first
        token of each sequence; or "none", hidden states.

    Raises
    ------
    UsageError
        For another attention or head, a classifier's head of another model than BERT, a batch or sequence below 1,
        and a sequence longer than the model's table of positions.
    """
    _check(config, batch, seq, attention, head)
    run = Pass(config, batch, seq, dtype)
    _embedding(run, attention)
    run.prefix, run.count = "layer.", config.layers
    _attention(run, attention)
    _mlp(run)
    run.prefix, run.count = "", 1
    _head(run, head)
    return run.made


def _check(config: ModelConfig, batch: int, seq: int, attention: str, head: str) -> None:
    for name, value in {"batch": batch, "seq": seq}.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}={value!r} is not a whole number above 0.", place="forward_pass")
    if attention not in ATTENTION:
        raise unknown_name("attention", attention, ATTENTION)
    if head not in HEADS:
        raise unknown_name("head", head, HEADS)
    if head == "classifier" and config.model_type != "bert":
        raise UsageError(f"head='classifier' is BERT's; this is {config.model_type}.", remedy="Take 'lm' or 'none'.")
    if config.architecture.learned_positions and seq > config.positions:
        raise UsageError(
            f"seq={seq} is longer than the model's {config.positions} positions.", remedy="Take a shorter sequence."
        )


def _embedding(run: Pass, attention: str) -> None:
    config, kind = run.config, run.config.architecture
    if attention == "unfused":
        _mask(run)
    run.put(Embedding, "embedding.tokens", tokens=run.tokens, vocab=config.vocab, dim=config.embedding_dim)
    for linear in config.projections()[:1]:
        run.linear("embedding.", linear)
    if config.token_types:
        run.put(Embedding, "embedding.types", tokens=run.tokens, vocab=config.token_types, dim=config.hidden)
        run.each("embedding.add_types", "add", run.hidden)
    if kind.learned_positions:
        # GPT-2 and BERT look positions up for one sequence, and the sum repeats them; OPT looks all of them up.
        rows = run.tokens if kind.extra_positions else run.seq
        table = config.positions + kind.extra_positions
        run.put(Embedding, "embedding.positions", tokens=rows, vocab=table, dim=config.hidden)
        if kind.extra_positions:
            run.each("embedding.add_positions", "add", run.hidden)
        else:
            run.broadcast("embedding.add_positions", "add", run.hidden, 1)
    if config.model_type == "bert":
        run.norm("embedding.norm")


def _mask(run: Pass) -> None:
    """Add what makes the mask: nothing for GPT-2, which keeps it, and one row a sequence for BERT."""
    kind = run.config.model_type
    if kind == "gpt2":
        return
    if kind == "bert":
        run.each("mask.invert", "sub", run.tokens, 1)
        run.each("mask.scale", "mul", run.tokens, 1)
        return
    run.each("mask.fill", "copy", run.seq**2)
    run.each("mask.triangle", "where", run.seq**2, 1)
    if kind != "opt":
        return
    # OPT joins it with a mask of padding [batch, seq, seq]: each is made boolean, cloned and filled.
    numel = run.batch * run.seq**2
    run.each("mask.expand", "copy", numel)
    run.each("mask.invert", "sub", numel, 1)
    for part in ("padding", "causal"):
        run.each(f"mask.{part}_boolean", "cast", numel)
        run.each(f"mask.{part}_clone", "copy", numel)
        run.each(f"mask.{part}_fill", "where", numel, 1)


def _attention(run: Pass, attention: str) -> None:
    config, kind = run.config, run.config.architecture
    width = run.tokens * config.heads * config.head_dim
    if not config.norm_after:
        run.norm("attention.norm")
    for linear in config.attention_linears():
        run.linear("attention.", linear)
        if config.model_type == "opt" and linear.name == "query":
            run.each("attention.scale_query", "mul", width, 1)
    if kind.qk_norm:
        run.norm("attention.query_norm", run.tokens * config.heads, config.head_dim)
        run.norm("attention.key_norm", run.tokens * config.kv_heads, config.head_dim)
    if not kind.learned_positions:
        _rotary(run, "attention.query_rotary", config.heads)
        _rotary(run, "attention.key_rotary", config.kv_heads)
    if attention == "flash":
        run.put(
            Attention, "attention.core", batch=run.batch, heads=config.heads, kv_heads=config.kv_heads,
            seq_q=run.seq, head_dim=config.head_dim, causal=kind.causal, window=config.window,
        )  # fmt: skip
    else:
        _unfused(run)
    run.linear("attention.", config.output_linear())
    run.each("attention.residual", "add", run.hidden)
    if config.norm_after:
        run.norm("attention.norm")


def _rotary(run: Pass, name: str, heads: int) -> None:
    """Add x cos + (the halves of x swapped, one negated) sin; cos and sin repeat over the heads."""
    numel = run.tokens * heads * run.config.head_dim
    run.broadcast(f"{name}.1_cos", "mul", numel, 1)
    run.broadcast(f"{name}.2_negate", "neg", numel // 2)
    run.broadcast(f"{name}.3_swap", "copy", numel)
    run.broadcast(f"{name}.4_sin", "mul", numel, 1)
    run.broadcast(f"{name}.5_add", "add", numel)


def _unfused(run: Pass) -> None:
    """Add attention as kernels of its own: products, scale, mask, softmax, and copies between the layouts."""
    config = run.config
    groups, products = config.heads // config.kv_heads, run.batch * config.heads
    scores = products * run.seq**2
    opt = config.model_type == "opt"
    if groups > 1:
        run.regroup("attention.repeat_key", config.kv_heads, groups)
        run.regroup("attention.repeat_value", config.kv_heads, groups)
    # A product of one sequence takes strided heads as they are; of several it needs one stride, and copies. OPT
    # always copies, and keeps the copies as its keys and values.
    copies = run.batch > 1 or opt
    if copies:
        run.regroup("attention.copy_query", config.heads)
        if groups == 1:
            run.regroup("attention.copy_key", config.heads)
    size = {"batch": products, "m": run.seq}
    run.put(Gemm, "attention.scores", n=run.seq, k=config.head_dim, **size)
    if config.model_type == "gpt2":
        # The divisor is a tensor of one element on the device, which torch repeats; a number of the host is not.
        run.broadcast("attention.scale", "div", scores, 1)
        run.broadcast("attention.mask", "where", scores, 1)
    else:
        if not opt:
            run.each("attention.scale", "div", scores, 1)
        square = config.architecture.causal and run.seq**2 > _KEPT
        run.broadcast("attention.mask", "add", scores, 2 if square else 1)
    if opt:
        run.broadcast("attention.clamp", "maximum", scores, 1)
    # The younger models take the softmax in fp32, and its result is made narrow again.
    upcast = config.architecture.rms_norm and run.dtype != "fp32"
    dtype = "fp32" if upcast else run.dtype
    run.put(Softmax, "attention.softmax", rows=products * run.seq, cols=run.seq, dtype=dtype)
    if upcast:
        run.each("attention.narrow", "cast", scores, dtype="fp32", out_dtype=run.dtype)
    if copies and groups == 1:
        run.regroup("attention.copy_value", config.heads)
    run.put(Gemm, "attention.values", n=config.head_dim, k=run.seq, **size)
    run.regroup("attention.merge_heads", config.heads)


def _mlp(run: Pass) -> None:
    config = run.config
    inside = run.tokens * config.ffn
    if not config.norm_after:
        run.norm("mlp.norm")
    *into, down = config.mlp_linears()
    for linear in into:
        run.linear("mlp.", linear)
    run.activation("mlp.activation", inside)
    if config.architecture.gated:
        run.each("mlp.multiply", "mul", inside)
    run.linear("mlp.", down)
    run.each("mlp.residual", "add", run.hidden)
    if config.norm_after:
        run.norm("mlp.norm")


def _head(run: Pass, head: str) -> None:
    config = run.config
    if not config.norm_after:
        run.norm("head.norm")
    if head == "classifier":
        run.linear("head.", Linear("pooler", config.hidden, config.hidden, True), run.batch)
        run.each("head.tanh", "tanh", run.batch * config.hidden)
        run.linear("head.", Linear("classes", LABELS, config.hidden, True), run.batch)
    if head != "lm":
        return
    for linear in config.head_linears():
        run.linear("head.", linear)
        if linear.name == "transform":
            run.activation("head.activation", run.hidden)
            run.norm("head.norm")
