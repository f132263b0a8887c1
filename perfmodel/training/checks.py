"""What a plan needs of a model and a cluster, each with one message that names the nearest size that works."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.work import Number
from perfmodel.errors import UsageError
from perfmodel.operators.routing import Dispatcher
from perfmodel.training.expert_overlap import overlaps
from perfmodel.training.framework import nearest_framework
from perfmodel.training.host_rates import host_rates
from perfmodel.training.idle import idle_options
from perfmodel.training.kernels import arithmetic
from perfmodel.training.plan import PLACE, Schedule, TrainingPlan, most_zero, nearest_divisor, refused
from perfmodel.training.stages import encoder_stages
from perfmodel.workloads.model_config import ModelConfig


def check_idle(plan: TrainingPlan, largest: Mapping[str, int] = MappingProxyType({})) -> None:
    """Raise for an option that nothing uses; see `idle_options`.

    Raises
    ------
    UsageError
        For the first of them; the message says what would use it.
    """
    for idle in idle_options(plan, largest):
        found = largest.get(idle.size, getattr(plan, idle.size))
        raise refused(
            f"{idle.why.format(getattr(plan, idle.name))}, and {idle.size} = {found}",
            f"Use {idle.size} = {idle.least} or more, or leave {idle.name} out",
        )


def uneven(plan: TrainingPlan) -> bool:
    """Return whether the last micro batch of a GPU may be smaller than the others."""
    return nearest_framework(plan.framework, shards=plan.zero == 3)[0].uneven_micro_batches


def check_sizes(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> None:
    """Raise for a plan that this model cannot run on this cluster.

    Raises
    ------
    UsageError
        When sizes do not divide, the sequence is longer than the model's table of positions, or the batch is too small
        for the ranks or the pipeline.
    """
    _check_encoder(config, plan)
    plan.micro_batches(cluster.gpus)
    _divides("tp", plan.tp, "heads", config.heads)
    _divides("tp", plan.tp, "ffn", config.ffn or config.expert_ffn)
    _check_attention(config, plan)
    _check_experts(config, cluster, plan)
    _check_overlap(plan)
    check_dispatch(config, plan)
    check_pipelined_zero(plan)
    check_dualpipe(config, plan)
    _check_pipeline(config, cluster, plan)
    if config.learned_positions and plan.seq > config.positions:
        raise refused(
            f"seq = {plan.seq} is beyond the model's {config.positions} positions", f"Use seq={config.positions}"
        )
    share = plan.batch // plan.dp(cluster.gpus)
    if plan.micro_batch > share:
        raise refused(
            f"micro_batch = {plan.micro_batch} is more than the {share} sequences of a data parallel rank",
            f"Use micro_batch={share}",
        )
    if share % plan.micro_batch and not uneven(plan):
        unit = plan.micro_batch * plan.dp(cluster.gpus)
        raise refused(
            f"micro_batch = {plan.micro_batch} does not divide the {share} sequences of a data parallel rank",
            f"Nearest: batch={max(1, round(plan.batch / unit)) * unit}, or "
            f"micro_batch={nearest_divisor(share, plan.micro_batch)}",
        )
    _check_dtype(cluster, plan)
    if plan.dtype == "mxfp8" and cluster.hardware.find_peak("fp4", "tensor") is None:
        raise refused(
            f"{cluster.hardware.name} has no products of operands with scales (mxfp8), which came with fp4",
            "Use fp8 or bf16",
        )
    if plan.lora > config.hidden:
        raise refused(f"lora = {plan.lora} is more than the {config.hidden} of the matrices", "Use lora=16")
    if plan.frozen_dtype and plan.dtype not in ("bf16", "fp16"):
        frozen = f"weights frozen in {plan.frozen_dtype}"
        raise refused(f"{frozen} are written out in 16 bits, not in {plan.dtype}", "Use bf16")
    _check_host(cluster, plan)
    _check_documents(config, plan)
    if plan.attention == "fa3" and cluster.hardware.matrix_instruction != "wgmma":
        raise refused(f"attention fa3 runs on Hopper, not on {cluster.hardware.name}", "Use fa2 or cudnn")
    if plan.cp_algorithm == "ulysses":
        _divides("cp tp", plan.cp * plan.tp, "heads", config.heads)
        if config.window_layers:
            _divides("cp tp", plan.cp * plan.tp, "heads of layers with a window", config.windowed.heads)


def _check_host(cluster: Cluster, plan: TrainingPlan) -> None:
    """Check that a machine has a host for what a plan keeps there."""
    if plan.offload != "none":
        host_rates(cluster)


def _check_documents(config: ModelConfig, plan: TrainingPlan) -> None:
    """Check that attention of a model can keep to documents."""
    if not plan.documents:
        return
    what = "an encoder and a decoder" if config.encoder_layers else ""
    what = "keys that are compressed over tokens" if config.architecture.shared_vector else what
    if what:
        raise refused(f"documents of a sequence with {what} are not modelled", "Leave documents out")


def _check_dtype(cluster: Cluster, plan: TrainingPlan) -> None:
    """Check that the optimizer has weights in the dtype and the machine products, and name one that it has else."""
    if plan.optimizer == "adam-bf16" and plan.dtype in ("fp32", "tf32"):
        kept = "adam-bf16 keeps weights, gradients and moments in 16 bits"
        raise refused(f"{kept}, not in {plan.dtype}", "Use adam, or bf16")
    try:
        cluster.hardware.native_peak(arithmetic(plan.dtype))
    except UsageError as problem:
        has = cluster.hardware.dtypes()
        near = next((dtype for dtype in ("bf16", "fp16", "fp32") if dtype in has), "")
        raise UsageError(
            problem.message, place=PLACE, remedy=f"Use --dtype {near}. {problem.remedy}" if near else problem.remedy
        ) from None


#: what no framework has for an encoder with a decoder, and why: NVIDIA/Megatron-LM, get_model of megatron/training
#: ("Interleaved schedule not supported for model with both encoder and decoder") and get_batch of pretrain_t5.py
_NO_ENCODER = (
    ("vp", "Megatron-LM interleaves the stages of one stack only"),
    ("cp", "Megatron-LM does not split the sequences of both over context parallel ranks"),
)


def _check_cut(config: ModelConfig, plan: TrainingPlan) -> None:
    """Check that stages end where the encoder does."""
    sums = list(itertools.accumulate(plan.stages))
    if plan.stages and plan.pp > 1 and config.encoder_layers not in sums:
        raise refused(
            f"stages = {list(plan.stages)}: none ends with the {config.encoder_layers} layers of the encoder",
            f"Give those of the encoder first, {config.encoder_layers} layers, then those of the decoder",
        )


def _check_encoder(config: ModelConfig, plan: TrainingPlan) -> None:
    """Check what an encoder with a decoder allows."""
    if not config.encoder_layers:
        if plan.encoder_seq:
            raise refused(f"encoder_seq = {plan.encoder_seq}, and the model has no encoder", "Leave encoder_seq out")
        return
    for name, why in _NO_ENCODER:
        if getattr(plan, name) > 1:
            raise refused(f"{name} = {getattr(plan, name)} with an encoder and a decoder: {why}", f"Use {name}=1")
    _check_cut(config, plan)
    first = encoder_stages(config, plan)
    if (not plan.stages and first > config.encoder_layers) or plan.pp - first > config.layers:
        raise refused(
            f"pp = {plan.pp} stages are more than the {config.encoder_layers} + {config.layers} layers of both stacks",
            f"Nearest: pp={nearest_divisor(config.encoder_layers + config.layers, plan.pp)}",
        )
    _divides("tp", plan.tp, "encoder_ffn", config.encoder_ffn)
    seq = plan.encoder_seq or plan.seq
    if config.encoder_positions and plan.encoder_seq not in (0, config.encoder_positions):
        raise refused(
            f"encoder_seq = {seq}, and an encoder of sound always has {config.encoder_positions} tokens",
            "Leave encoder_seq out",
        )
    if config.learned_positions and not config.encoder_positions and seq > config.positions:
        near = f"Use encoder_seq={config.positions}"
        raise refused(f"encoder_seq = {seq} is beyond the model's {config.positions} positions", near)


def _divides(name: str, value: int, of: str, total: int) -> None:
    if total and total % value:
        near = nearest_divisor(total, value)
        raise refused(f"{name} = {value} does not divide the {total} {of}", f"Nearest: {name}={near}")


def _check_attention(config: ModelConfig, plan: TrainingPlan) -> None:
    """Check what kinds of attention allow: of an indexer compressed keys; whole sequences of these and of states."""
    if config.index_heads and config.index_ratio == 1:
        raise UsageError(
            "the model has an indexer that chooses keys (sparse attention), whose training is not modelled.",
            place=PLACE,
            remedy="Serving of it is: perfmodel serve.",
        )
    what = ["layers that share keys and values"] * (config.kv_shared_layers > 0)
    what += ["embeddings of layers"] * (config.layer_embedding > 0)
    beside = config.architecture.altup or config.laurel_rank > 0 or config.sparse_layers > 0
    what += ["residual streams, second residuals or sparse MLPs of Gemma 3n"] * beside
    what += ["blocks that layers share"] * (config.shared_blocks > 0)
    what += ["one output matrix behind attention and a state"] * config.architecture.joint_output
    if what:
        raise UsageError(
            f"the model has {' and '.join(what)}, whose training is not modelled.",
            place=PLACE,
            remedy="Serving of it is: perfmodel serve.",
        )
    if config.window_layers:
        _divides("tp", plan.tp, "heads of layers with a window", config.windowed.heads)
    _divides("tp", plan.tp, "groups of heads of the output", config.output_groups)
    if config.architecture.shared_vector and plan.cp > 1:
        raise refused(
            f"cp = {plan.cp} with keys that are compressed over tokens, which would lie on several ranks: it is not "
            "modelled",
            "Use cp=1",
        )
    if not config.linear_layers:
        return
    if config.state_layer.summed_width and plan.tp > 1:
        raise refused(
            f"tp = {plan.tp} with a selective scan (Mamba of the first kind, PLaMo 2), whose steps its ranks would "
            "have to sum before it: it is not modelled",
            "Use tp=1",
        )
    if config.state_layer.rule.is_rwkv and plan.tp > 1:
        raise refused(
            f"tp = {plan.tp} with RWKV, whose small matrices no framework shares out among ranks: it is not modelled",
            "Use tp=1",
        )
    _divides("tp", plan.tp, "key heads of layers with a state", config.linear_key_heads)
    if plan.cp > 1:
        raise refused(
            f"cp = {plan.cp} with layers with a state, whose states would go from rank to rank: it is not modelled",
            "Use cp=1",
        )


def _check_experts(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> None:
    if not config.experts:
        if plan.ep == 1 and plan.etp <= 1:
            return
        name = "ep" if plan.ep > 1 else "etp"
        raise refused(f"{name} = {getattr(plan, name)}, and the model has no experts", f"Use {name}=1")
    _divides("ep", plan.ep, "experts", config.experts)
    etp = nearest_framework(plan.framework)[0].expert_tensor_ranks(plan.tp, plan.etp)
    _divides("etp", etp, "expert_ffn", config.expert_ffn)
    ranks = plan.dp(cluster.gpus) * plan.cp * plan.tp
    if ranks % etp:
        near = nearest_divisor(math.gcd(ranks, config.expert_ffn), etp)
        raise refused(f"etp = {etp} does not divide dp cp tp = {ranks} ranks", f"Nearest: etp={near}")
    if ranks % (plan.ep * etp):
        near = nearest_divisor(math.gcd(ranks // etp, config.experts), plan.ep)
        raise refused(
            f"ep etp = {plan.ep} x {etp} does not divide dp cp tp = {ranks} ranks",
            f"Nearest: ep={near}" + ("" if plan.etp else ", or etp=1"),
        )


def check_dispatch(config: ModelConfig, plan: TrainingPlan) -> None:
    """Check what tokens in 8 bits on their way to experts need, and shared experts beside them.

    NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py and moe/moe_layer.py: moe_shared_expert_overlap
    works with the alltoall dispatcher only, without overlap_moe_expert_parallel_comm and without latent projections.

    Raises
    ------
    UsageError
        When something of it is missing.
    """
    if plan.dispatch_dtype == "fp8" and plan.dtype not in ("fp8", "mxfp8"):
        raise refused(
            f"dispatch_dtype = fp8 sends what products of 8 bits read, and dtype = {plan.dtype}",
            "Use dtype = fp8, or leave dispatch_dtype out",
        )
    if not plan.shared_expert_overlap:
        return
    dispatcher = plan.dispatcher or nearest_framework(plan.framework)[0].dispatcher
    needs = (
        ("a model with shared experts", not config.shared_ffn, "Leave shared_expert_overlap out"),
        ("experts as wide as the model", bool(config.latent_linears()), "Leave shared_expert_overlap out"),
        (f"the dispatcher alltoall, not {dispatcher}", dispatcher != Dispatcher.ALLTOALL, "Use dispatcher = alltoall"),
        ("no other passes beside the exchanges", overlaps(plan), "Leave it or expert_overlap, or dualpipe, out"),
    )
    for what, lacking, remedy in needs:
        if lacking:
            raise refused(f"shared_expert_overlap needs {what}", remedy)


def _check_overlap(plan: TrainingPlan) -> None:
    """Check what exchanges of experts beside other passes need (`perfmodel.training.expert_overlap`)."""
    if not overlaps(plan):
        return
    if plan.pp > 1 and plan.vp == 1 and plan.schedule != Schedule.DUALPIPE:
        raise refused(
            f"expert_overlap pairs the passes of an interleaved pipeline, and pp = {plan.pp} has vp = 1",
            "Use vp = 2 or more, pp = 1, or schedule = dualpipe",
        )
    if (plan.dispatcher or nearest_framework(plan.framework)[0].dispatcher) == Dispatcher.ALLGATHER:
        raise refused(
            "exchanges of the dispatchers alltoall and deepep run beside other passes, those of allgather do not",
            "Use dispatcher = alltoall or deepep",
        )


def check_pipelined_zero(plan: TrainingPlan) -> None:
    """Raise for a pipeline whose stages share out more than its framework shares out there.

    Raises
    ------
    UsageError
        When they do.
    """
    framework, known = nearest_framework(plan.framework)
    if known and plan.pp > 1 and plan.zero > framework.pipeline_zero:
        raise refused(
            f"{framework.name} has no pipeline with zero = {plan.zero}", f"Use zero={framework.pipeline_zero} or pp=1"
        )


def check_dualpipe(config: ModelConfig, plan: TrainingPlan) -> None:
    """Raise for what DualPipe cannot share out, and for models whose stages are no pairs.

    Raises
    ------
    UsageError
        For weights or gradients that are shared out, and for an encoder with a decoder.
    """
    if plan.schedule != Schedule.DUALPIPE:
        return
    if config.encoder_layers:
        # deepseek-ai/DualPipe @ bb214e82: overlapped_forward_backward, comm.set_p2p_tensor_shapes
        raise refused(
            "dualpipe pairs the passes of two stages of one class, and sends tensors of one shape between all of them; "
            "of an encoder and a decoder a GPU would hold a stage of each",
            "Use schedule = 1f1b",
        )
    if plan.zero > 1:
        # deepseek-ai/DualPipe @ bb214e82, WeightGradStore; DeepSeek-AI 2024, section 3.2: "ZeRO-1 data parallelism"
        framework, _ = nearest_framework(plan.framework, shards=plan.zero == 3)
        raise refused(
            f"dualpipe keeps whole weights and gradients of both stages of a GPU, not zero = {plan.zero}: gradients of "
            "weights come after the backward pass, where no hook reduces them, and DeepSeek trains with zero = 1",
            f"Use zero={most_zero(framework, 1)}, or schedule = 1f1b with zero = {plan.zero}",
        )


def _check_pipeline(config: ModelConfig, cluster: Cluster, plan: TrainingPlan) -> None:
    chunks, layers = plan.pp * plan.vp, config.layers + config.encoder_layers
    if chunks > layers + 2:
        near = nearest_divisor(config.layers, plan.pp)
        raise refused(
            f"pp vp = {plan.pp} x {plan.vp} stages are more than the {config.layers} layers", f"Nearest: pp={near} vp=1"
        )
    if plan.stages and sum(plan.stages) != layers:
        raise refused(f"stages sum to {sum(plan.stages)} layers, the model has {layers}", "Correct the stages")
    if plan.vp > 1 and plan.pp > 1 and not plan.stages and not equal_stages(config.layers, chunks):
        raise refused(
            f"interleaved stages are equal ones, and pp vp = {plan.pp} x {plan.vp} do not divide {layers} layers",
            "Use vp=1",
        )
    count = plan.micro_batches(cluster.gpus)
    if plan.schedule == Schedule.DUALPIPE and (count % 2 or count < 2 * plan.pp):
        near = max(plan.pp, round(count / 2)) * 2
        raise refused(
            f"{count} micro batches: dualpipe needs an even number of them, and at least 2 pp = {2 * plan.pp}",
            f"Nearest: batch={near * plan.micro_batch * plan.dp(cluster.gpus)}",
        )
    if plan.schedule == Schedule.INTERLEAVED and plan.vp > 1 and count % plan.pp and count > plan.pp:
        near = max(1, round(count / plan.pp)) * plan.pp
        raise refused(
            f"{count} micro batches do not divide by pp = {plan.pp}, as the interleaved schedule needs",
            f"Nearest: batch={near * plan.micro_batch * plan.dp(cluster.gpus)}",
        )
    if count < plan.pp and plan.pp > 1 and plan.vp > 1:
        raise refused(
            f"{count} micro batches are fewer than the {plan.pp} stages of the interleaved pipeline",
            f"Nearest: batch={plan.pp * plan.micro_batch * plan.dp(cluster.gpus)}, or vp=1",
        )


def equal_stages(layers: Number, stages: Number) -> Any:
    """Return whether stages hold equally many layers, if need be with the embedding and the head as a layer each.

    Megatron-LM refuses other interleaved pipelines (megatron/training/arguments.py,
    ``account_for_embedding_in_pipeline_split``).
    """
    return (layers % stages == 0) | ((layers + 2) % stages == 0)
