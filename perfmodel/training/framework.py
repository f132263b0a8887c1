"""How a training framework runs a model: which kernels it fuses, its precisions, what it overlaps.

A framework is a file in ``engine_specs/training``; see `perfmodel.training.constants` for what frameworks share.
"""

from __future__ import annotations

import fnmatch
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from perfmodel.errors import InputFileError, nearest, unknown_name
from perfmodel.files import DOCUMENT_SUFFIXES, read_document, shipped_folder
from perfmodel.training.choices import DTYPES, OFFLOADS, Part, Recompute
from perfmodel.training.framework_words import framework_by_words
from perfmodel.training.host_facts import HostFacts
from perfmodel.training.kernel_bytes import WIDTHS, KernelBytes
from perfmodel.training.memory_facts import MemoryFacts

#: bytes that a cast of its own moves for a 16-bit element. fp8 with a scale from earlier steps: 2 read and 1 written,
#: and 2 more where the tensor at hand is searched for its largest element first; mxfp8: copies along both axes, 2 + 1 +
#: 1; nvfp4: both copies, and the search, 2 + 2 + 1/2 + 1/2, and Hadamard transforms beside (NVIDIA/TransformerEngine,
#: docs on low precision training). What casts add to the products of a layer on a B300 is 2.34 ms with fp8 and a search
#: (5 B), 1.82 with mxfp8 (4 B) and 2.69 with nvfp4 (docs/examples/gemm_profiling @ 8f2e6357, autocast less
#: pre-quantized): 5.1, 4 and 5.9 B
CASTS = {"fp8": 3.0, "mxfp8": 4.0, "nvfp4": 5.9}
#: of these, what the copy along the other axis takes: 1 B; for nvfp4 1/2, and the Hadamard transforms with 0.9:
#: what the named parts leave of the measured 5.9
SECOND_COPY = {"mxfp8": 1.0, "nvfp4": 1.4}

#: ranks of a plan beside data parallel ones -> what they are, for people
RANK_NAMES = {
    "tp": "tensor parallel ranks",
    "cp": "context parallel ranks",
    "pp": "pipeline",
    "vp": "virtual stages",
    "ep": "expert parallel ranks",
}
RANKS: tuple[Literal["tp", "cp", "pp", "vp", "ep"], ...] = ("tp", "cp", "pp", "vp", "ep")

_WIDTHS = ("bf16", "fp8")


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training framework, as its file says.

    Attributes
    ----------
    name, title : its name, and that for people.
    aliases : shell patterns of names under which tables and plans know it.
    sources : where each fact comes from, by key.
    streams : class of its memory-bound kernels, a key of ``memory_bound`` of the constants: "counted", where the bytes
        of its kernels are counted one by one, or "fsdp1".
    libraries : "bf16" for matrix products in 16 bits and "fp8" for those in fewer -> libraries, as measurement tables
        name them, that call the same kernels: products take their mean, or without names that of all libraries.
    sharded_dtypes : dtypes in which its data parallel ranks can share out weights; () for all.
    attention : kernel of attention unless a plan names one.
    attention_on : architecture of GPUs -> kernel of attention there, in its place.
    wide_attention : the same in fp32 and tf32, in which kernels other than PyTorch's "efficient" have none.
    switched_off : kernels of attention that its own launcher switches off: a published run that names one had the usual
        one of the framework.
    softmax_passes : times that unfused attention reads and writes its scores for scale, mask and softmax.
    wide_scores : whether these passes are in fp32 with activations in 16 bits, too: autocast runs softmax in fp32.
    dropout : which models it trains with dropout: "never", "always", or those with learned positions, as GPT-3.
    fused_dropout : whether a dropout of the hidden state runs in the kernel of the residual's addition.
    shards_layers : whether ZeRO 2 shares out weights, too, and gathers them layer by layer (FSDP): elsewhere each rank
        keeps all of them, reduces the gradients of every micro batch and gathers new weights once a step.
    parallel : ranks that it has beside data parallel ones, of `RANKS`; what a file does not say is there.
    expert_tensor : over how many tensor parallel ranks it shares out each expert unless it is told: all that share out
        the rest of a layer, or "one".
    dispatcher : how tokens reach experts of other ranks unless it is told, see
        `perfmodel.operators.routing.Dispatcher`.
    recomputes : which activations it can compute anew, as ``recompute`` of a plan; () for all ways.
    context : how it can split attention among context parallel ranks, as ``cp_algorithm`` of a plan; the usual way
        first.
    zero_stages : what its data parallel ranks can share out, as ``zero`` of a plan.
    pipeline_zero : most that they can share out beside a pipeline.
    default_zero : what they share out unless they are told; None for what `usual_zero` makes of the rest.
    uneven_micro_batches : whether the last micro batch of a GPU may be smaller than the others; most frameworks refuse
        a batch that micro batches do not divide.
    bias : whether the matrices of models with LayerNorm have a bias.
    main_gradients : dtype in which weight gradients are added up, and in which their product is written.
    adds_gradients : whether that product adds to the gradients of earlier micro batches.
    gradient_dtype : dtype of the gradients that data parallel ranks reduce.
    norm_bytes, rotary_bytes, gate_bytes : what the kernels of a norm, of the rotary positions and of a gated activation
        read and write for an element of their output, forward and backward, with activations in 16 bits [B].
    rms_norm_bytes : the same of an RMSNorm, where its kernels are others than those of a LayerNorm.
    square_bytes, gelu_new_bytes : the same of a squared ReLU, and of GPT-2's GELU, which transformers composes.
    routed_bytes : what it moves to sort tokens for experts, to weigh what these give and to add it up, for an element
        of the hidden state of each of a token's copies, forward and backward, with activations in 16 bits [B].
    unmixed : "bf16" for weights in 16 bits, without autocast over fp32, and "fp32" -> the same of kernels that move
        other than these bytes then, or twice them in fp32: casts between the two widths are gone.
    row_library : library whose fused norms and softmax its own are like: kernels that read a row once ("triton"), or
        those of PyTorch.
    split_bytes : what its kernels move in backward to join the gradients of queries, keys and values, or to add up
        those of their common input, for an element of the hidden state [B].
    copies_queries : whether queries and values of models with rotary positions are copied out of the projection's
        output, and their gradients joined again.
    shard_bytes : what it copies in a micro batch for a parameter that is shared out, gathers and reductions aside [B].
    weight_cast_bytes : what autocast to 16 bits moves in a pass for a parameter: its weight is cast forward, and the
        gradient of it backward [B].
    loss_bytes : the same of the loss, for a logit [B].
    recomputes_logits : whether the backward pass of the loss computes the logits again, of which none is kept.
    vocab_multiple : the vocabulary of a tensor parallel rank is padded to a multiple of it.
    optimizer_bytes : bytes that Adam moves for a parameter of a GPU.
    packing_bytes : what it moves for a gradient in 16 bits to pack it for a reduction, to divide and to unpack it [B].
    reduces_whole : whether ranks that share out gradients all-reduce them, in place of a reduce-scatter.
    overlaps_data_parallel : whether gradients are reduced beside the backward pass.
    contention : share of a hidden exchange that the compute beside it loses, see `exposed`; "" for ``sm_share``.
    sequence_parallel : whether tensor parallel ranks share out norms and residuals.
    overlaps_tensor_parallel : whether tensor parallel exchanges run beside products.
    overlaps_input_gradients : whether, without sequence parallelism, the all-reduce of an input's gradient runs beside
        the product of the weight's gradient.
    overlaps_pipeline : whether sends of the pipeline run beside the micro batches.
    scatter_gather : whether a send of the pipeline is split over the tensor parallel ranks.
    host_parts : what it, or a library that is usual beside it, can keep on the host.
    overlaps_activation_copies : whether activations that live on the host go and come beside compute.
    pipelines_activation_copies : whether they can live there beside a pipeline.
    gathers_cast : whether sequence parallel ranks cast to 8 bits or fewer before they gather.
    reduces_maxima : whether ranks that gather a tensor in fp8 first reduce its largest element.
    gathers_once : whether weights shared out stay gathered over the micro batches of a pipeline.
    cast_passes : dtype of 8 bits or fewer -> bytes that the cast of one 16-bit element reads and writes, see `CASTS`.
    unfused_sinks : whether attention without a window and with a learned logit in its softmax (gpt-oss) has no fused
        kernel.
    dispatch : share of ``dispatch_s`` of the constants that the host takes to launch a kernel: less where compiled code
        launches them.
    joins_adapters : whether the matrices of queries, keys and values have one adapter, and those of gate and up.
    dispatch_deviation : standard deviation of ln of the time of a launch between hosts and releases, in place of that
        of the constants, which is that of any code; 0 for it.
    module_dispatch : what the host takes for a kernel of the framework's own modules over one of torch.nn.
    host_share : architecture of GPUs -> share of both ``host_s`` of the constants, for which a pass of a layer with
        experts waits, and the dispatch there: 0 where whole iterations are CUDA graphs, 1 where nothing is said.
    first_machines, last_machines : compute capabilities of the first and the last NVIDIA machines for which it is
        built.
    older, newer : names of the frameworks that stand for it on machines before the first and after the last ones.
    memory : what it keeps in memory, see `perfmodel.training.memory_facts`.
    host : how it updates what lives on the host, see `perfmodel.training.host_facts`.
    """

    name: str
    title: str
    sources: dict[str, str]
    aliases: tuple[str, ...] = ()
    streams: str = "counted"
    libraries: dict[str, tuple[str, ...]] = {}
    sharded_dtypes: tuple[str, ...] = ()
    attention: str = "fa2"
    attention_on: dict[str, str] = {}
    wide_attention: Literal["efficient", "eager-unfused"] = "eager-unfused"
    switched_off: tuple[str, ...] = ()
    softmax_passes: int = 1
    wide_scores: bool = False
    dropout: Literal["never", "always", "learned_positions"] = "never"
    fused_dropout: bool = True
    shards_layers: bool = False
    parallel: tuple[Literal["tp", "cp", "pp", "vp", "ep"], ...] = RANKS
    expert_tensor: Literal["all", "one"] = "all"
    dispatcher: Literal["alltoall", "deepep", "allgather"] = "alltoall"
    recomputes: tuple[Literal["selective", "selective_op", "selective_layer", "full"], ...] = ()
    context: tuple[Literal["zigzag", "ring", "ulysses"], ...] = ("zigzag", "ring", "ulysses")
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    pipeline_zero: int = 3
    default_zero: int | None = None
    uneven_micro_batches: bool = False
    bias: bool = True
    main_gradients: Literal["fp32", "bf16"] = "fp32"
    adds_gradients: bool = False
    gradient_dtype: Literal["fp32", "bf16"] = "fp32"
    norm_bytes: tuple[float, float] = (4.0, 6.0)
    rotary_bytes: tuple[float, float] = (4.0, 4.0)
    gate_bytes: tuple[float, float] = (6.0, 10.0)
    rms_norm_bytes: tuple[float, float] | None = None
    square_bytes: tuple[float, float] = (4.0, 6.0)
    gelu_new_bytes: tuple[float, float] = (4.0, 6.0)
    routed_bytes: tuple[float, float] = (8.0, 8.0)
    unmixed: dict[str, KernelBytes] = {}
    row_library: str = "triton"
    split_bytes: float = 0.0
    copies_queries: bool = False
    shard_bytes: float = 0.0
    weight_cast_bytes: float = 0.0
    loss_bytes: float = 48.0
    recomputes_logits: bool = False
    vocab_multiple: int = 1
    optimizer_bytes: float = 34.0
    packing_bytes: float = 0.0
    reduces_whole: bool = False
    overlaps_data_parallel: bool = True
    contention: str = ""
    sequence_parallel: bool = True
    overlaps_tensor_parallel: bool = False
    overlaps_input_gradients: bool = False
    overlaps_pipeline: bool = True
    scatter_gather: bool = False
    host_parts: tuple[Part, ...] = OFFLOADS
    overlaps_activation_copies: bool = True
    pipelines_activation_copies: bool = True
    gathers_once: bool = False
    gathers_cast: bool = False
    reduces_maxima: bool = False
    cast_passes: dict[str, float] = {}
    unfused_sinks: bool = False
    dispatch: float = 1.0
    dispatch_deviation: float = 0.0
    module_dispatch: float = 1.0
    joins_adapters: bool = False
    host_share: dict[str, float] = {}
    first_machines: float = 0.0
    last_machines: float = math.inf
    older: str = ""
    newer: str = ""
    memory: MemoryFacts = MemoryFacts()
    host: HostFacts = HostFacts()

    def __post_init__(self) -> None:
        for dtype in self.cast_passes:
            if dtype not in CASTS:
                raise unknown_name("dtype", dtype, CASTS, place=f"{self.name}: cast_passes", kind=InputFileError)
        for width in self.libraries:
            if width not in _WIDTHS:
                raise unknown_name("width", width, _WIDTHS, place=f"{self.name}: libraries", kind=InputFileError)
        for width in self.unmixed:
            if width not in WIDTHS:
                raise unknown_name("width", width, WIDTHS, place=f"{self.name}: unmixed", kind=InputFileError)
        for dtype in self.sharded_dtypes:
            if dtype not in DTYPES:
                raise unknown_name("dtype", dtype, DTYPES, place=f"{self.name}: sharded_dtypes", kind=InputFileError)

    @property
    def usual_zero(self) -> int:
        """What plans share out unless they say: weights where how it does that is described, else the optimizer."""
        if self.default_zero is not None:
            return self.default_zero
        return 3 if self.shard_bytes else 1 if 1 in self.zero_stages else self.zero_stages[0]

    def stages(self, dtype: str) -> tuple[int, ...]:
        """Return what its data parallel ranks can share out in a dtype, as ``zero`` of a plan."""
        whole = self.sharded_dtypes and dtype not in self.sharded_dtypes
        gathers = 2 if self.shards_layers else 3
        return tuple(stage for stage in self.zero_stages if stage < gathers) if whole else self.zero_stages

    def lacking(self, zeros: Iterable[int], dtype: str) -> str:
        """Return a note about stages of ZeRO that it lacks in a dtype, "" where it has them all."""
        lacking = [str(zero) for zero in zeros if zero not in self.stages(dtype)]
        where = f" in {dtype}" if self.stages(dtype) != self.zero_stages else ""
        text = f"{self.title} has no zero = {' or '.join(lacking)}{where}: it is predicted as if it had."
        return text if lacking else ""

    def expert_tensor_ranks(self, tp: int, etp: int) -> int:
        """Return the tensor parallel ranks of the experts: ``etp`` of a plan, or with 0 what is usual."""
        return etp or (tp if self.expert_tensor == "all" else 1)

    def recomputation(self, how: str) -> bool:
        """Return whether it can compute activations anew in a way of `Recompute`."""
        return how == Recompute.NONE or not self.recomputes or how in self.recomputes

    def lacking_parts(
        self, names: Iterable[str], recomputes: Iterable[str], algorithm: str, offloads: Iterable[str] = ()
    ) -> str:
        """Return a note about what it lacks, "" where it has all: ranks of `RANKS`, and ways to do something.

        Parameters
        ----------
        names : of the ranks.
        recomputes : ways of recomputing.
        algorithm : ``cp_algorithm`` of a plan, which counts where there are context parallel ranks.
        offloads : what lives on the host, of `OFFLOADS`.
        """
        names = list(names)
        lacking = [RANK_NAMES[name] for name in names if name not in self.parallel]
        lacking += [f"recompute = {how}" for how in recomputes if not self.recomputation(how)]
        lacking += [f"cp_algorithm = {algorithm}"] if "cp" in names and algorithm not in self.context else []
        offloads = list(offloads)
        lacking += [f"offload = {part}" for part in offloads if part not in self.host_parts]
        if "pp" in names and "activations" in {*offloads} & {*self.host_parts} and not self.pipelines_activation_copies:
            lacking.append("offload = activations beside a pipeline")
        return f"{self.name} has no {listed(lacking)}: this is predicted as if it had." if lacking else ""

    def cast_bytes(self, dtype: str, frozen: bool = False) -> float:
        """Return the bytes that the cast of one 16-bit element to a dtype of 8 bits or fewer moves; 0 for others.

        Parameters
        ----------
        frozen : whether the weights have no gradients, whose products alone read a second copy.
        """
        both = self.cast_passes.get(dtype, CASTS.get(dtype, 0.0))
        return both - SECOND_COPY.get(dtype, 0.0) if frozen else both


def listed(words: Sequence[str]) -> str:
    """Return words joined by commas and "or", as a sentence about what is missing needs them.

    >>> listed(["pipeline"]), listed(["tp", "pp", "vp"])
    ('pipeline', 'tp, pp or vp')
    """
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def framework_folder() -> Path:
    """Return the folder of the shipped frameworks."""
    return Path(shipped_folder("engine_specs")) / "training"


@functools.cache
def frameworks() -> Mapping[str, Framework]:
    """Return every shipped framework by its name."""
    found = (read_framework(path) for path in sorted(framework_folder().glob("*.toml")))
    return {framework.name: framework for framework in found}


def read_framework(path: str | Path) -> Framework:
    """Return the framework that a file describes.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key is unknown, missing or of the wrong type.
    """
    try:
        return msgspec.convert(read_document(path), Framework)
    except msgspec.ValidationError as error:
        raise _explained(error, path) from None


def _explained(error: msgspec.ValidationError, path: str | Path) -> InputFileError:
    """Return the error about a framework's file, with the nearest key for a misspelt one."""
    text = str(error).replace("Object ", "")
    wrong = re.search(r"unknown field `(.*?)`", text)
    if not wrong:
        return InputFileError(f"{text[0].lower()}{text[1:]}.", place=str(path))
    allowed = [name for facts in (Framework, MemoryFacts, HostFacts) for name in facts.__struct_fields__]
    remedy = nearest(wrong[1], allowed) or "Keys are those of the files in engine_specs/training."
    return InputFileError(f"unknown key {wrong[1]!r}.", place=str(path), remedy=remedy)


@functools.cache
def find_framework(name: str) -> Framework:
    """Return the framework of a name, an alias or the path of a file.

    Raises
    ------
    UsageError
        When none is called so; the message names the nearest.
    """
    if name.endswith(DOCUMENT_SUFFIXES):
        return read_framework(name)
    found = _lookup(name)
    if found is None:
        aliases = (alias for item in frameworks().values() for alias in item.aliases if not re.search(r"[*?\[]", alias))
        raise unknown_name("framework", name, {*frameworks(), *aliases}, place="framework")
    return found


@functools.cache
def _lookup(name: str) -> Framework | None:
    known, key = frameworks(), _key(name)
    if key in known:
        return known[key]
    patterns = [(pattern, item) for item in known.values() for pattern in (f"{item.name}*", *item.aliases)]
    matches = [(pattern, item) for pattern, item in patterns if fnmatch.fnmatch(key, pattern)]
    return max(matches, key=lambda match: _precision(match[0]))[1] if matches else None


def _precision(pattern: str) -> tuple[bool, int]:
    """Return how closely a pattern describes what it fits: how a name begins says more than what it contains."""
    return not pattern.startswith("*"), len(pattern)


def _key(name: str) -> str:
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


def nearest_framework(name: str, *, shards: bool = False) -> tuple[Framework, bool]:
    """Return the framework of a name, or for an unknown one the nearest by rule, and whether the name was known.

    Words in the name decide; without any, or where these say no more than eager PyTorch, a plan that shares out its
    weights is FSDP1's. Any other name without such words is Megatron's.
    """
    found = find_framework(name) if name.endswith(DOCUMENT_SUFFIXES) else _lookup(name)
    if found is not None:
        return found, True
    nearest = framework_by_words(name)
    if shards and nearest in ("", "ddp-eager"):
        nearest = "fsdp1-eager"
    return frameworks()[nearest or "megatron-te"], False


def says_nothing(name: str) -> bool:
    """Return whether no described framework has a name, and no word of it says which one it resembles."""
    return not name.endswith(DOCUMENT_SUFFIXES) and _lookup(name) is None and not framework_by_words(name)
