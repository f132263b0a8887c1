"""A model, a cluster and a plan, with the framework and the constants that they are predicted with."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import msgspec

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group
from perfmodel.core.hardware import Hardware
from perfmodel.operators.routing import Dispatcher
from perfmodel.training.activations import UNFUSED
from perfmodel.training.adapters import layer_adapters
from perfmodel.training.choices import EFFICIENT
from perfmodel.training.constants import Constants, constants
from perfmodel.training.documents import spread_lengths
from perfmodel.training.exchange import Groups
from perfmodel.training.framework import Framework, frameworks, nearest_framework
from perfmodel.training.frozen import FROZEN_BYTES
from perfmodel.training.kernel_bytes import KernelBytes
from perfmodel.training.plan import ContextAlgorithm, Schedule, TrainingPlan, divisors
from perfmodel.training.shard import Shard
from perfmodel.workloads.layer_kinds import Kind
from perfmodel.workloads.model_config import ModelConfig


def encoder_tokens(config: ModelConfig, plan: TrainingPlan) -> int:
    """Return the tokens of the encoder's sequence; 0 for a model of one stack. One of sound has its own number."""
    return (config.encoder_positions or plan.encoder_seq or plan.seq) if config.encoder_layers else 0


def attention_kernel(config: ModelConfig, plan: TrainingPlan, framework: Framework) -> str:
    """Return the kernel of attention.

    Relative positions (T5) are a bias of the scores, which flash kernels do not add: their attention is unfused
    (``T5Attention`` of Hugging Face's transformers) unless the plan names a kernel. Flash kernels and cuDNN's have 16
    bits only: in fp32 another one of the framework's runs.
    """
    kernel = wanted_attention(config, plan, framework)
    if plan.dtype in ("fp32", "tf32") and kernel not in (*UNFUSED, EFFICIENT):
        return framework.wide_attention
    return kernel


def wanted_attention(config: ModelConfig, plan: TrainingPlan, framework: Framework) -> str:
    """Return the kernel of attention of a plan, or that of its framework, whether or not it has one for the dtype."""
    return plan.attention or ("unfused" if config.position_buckets else framework.attention)


def idle_attention(config: ModelConfig, plan: TrainingPlan) -> str:
    """Return why the kernel of attention that a plan names changes nothing; "" where it does, or names none."""
    why = ""
    if not config.attending_layers:
        why = "no layer of the model has softmax attention"
    elif config.architecture.shared_vector:
        why = "a kernel of their own gathers compressed keys"
    return f"attention {plan.attention} changes nothing: {why}." if plan.attention and why else ""


def idle_selective(config: ModelConfig, kernel: str) -> str:
    """Return why selective recomputation changes nothing with a kernel of attention; "" where it does."""
    if not config.attending_layers:
        return "Selective recomputation changes nothing: no layer of the model has softmax attention."
    if kernel in UNFUSED:
        return ""
    return f"Selective recomputation changes nothing: attention {kernel} keeps no scores."


@dataclass(frozen=True)
class Setup:
    """A model, a cluster and a plan, with the framework and the constants that they are predicted with."""

    config: ModelConfig
    cluster: Cluster
    plan: TrainingPlan
    framework: Framework
    constants: Constants

    @functools.cached_property
    def padded(self) -> ModelConfig:
        """The model as the framework lays it out: with rows of embedding and head that no token has."""
        whole = self.framework.vocab_multiple * self.plan.tp
        short = -self.config.vocab % whole if self.framework.vocab_multiple > 1 else 0
        return dataclasses.replace(self.config, vocab=self.config.vocab + short) if short else self.config

    @property
    def hardware(self) -> Hardware:
        """One GPU."""
        return self.cluster.hardware

    @functools.cached_property
    def dp(self) -> int:
        """Data parallel ranks."""
        return self.plan.dp(self.cluster.gpus)

    @functools.cached_property
    def groups(self) -> Groups:
        """The ranks that exchange."""
        return Groups(self.cluster, self.plan, self.dp, self.etp)

    @property
    def etp(self) -> int:
        """Tensor parallel ranks of the experts."""
        return self.framework.expert_tensor_ranks(self.plan.tp, self.plan.etp)

    @property
    def dispatcher(self) -> Dispatcher:
        """How tokens reach experts of other ranks."""
        return Dispatcher(self.plan.dispatcher or self.framework.dispatcher)

    @property
    def micro_batches(self) -> float:
        """Micro batches of a GPU; a smaller last one counts as its share unless a pipeline waits for it."""
        share = self.plan.batch / self.dp / self.plan.micro_batch
        return float(-(-share // 1)) if self.plan.pp > 1 else max(share, 1.0)

    @property
    def copies(self) -> int:
        """GPUs of one pipeline that hold each stage: two under DualPipe, which share out the optimizer as others do."""
        return 2 if self.plan.schedule == Schedule.DUALPIPE else 1

    @property
    def contention(self) -> float:
        """Share of a hidden exchange of weights that compute loses."""
        return self.constants.fsdp_share if self.framework.contention == "fsdp_share" else self.constants.sm_share

    @property
    def overlaps_tensor(self) -> bool:
        """Whether tensor parallel exchanges run beside products."""
        wanted = self.plan.tp_overlap
        return self.framework.overlaps_tensor_parallel if wanted is None else wanted

    @property
    def maxima(self) -> int:
        """Tensors whose largest element tensor parallel ranks reduce in a pass of a layer: both that they gather."""
        return 2 if self.framework.reduces_maxima and self.shard.sp and self.plan.dtype == "fp8" else 0

    @property
    def kernel(self) -> str:
        """The kernel of attention."""
        return attention_kernel(self.config, self.plan, self.framework)

    @functools.cached_property
    def shard(self) -> Shard:
        """What one GPU runs of a layer."""
        plan, framework = self.plan, self.framework
        sp = framework.sequence_parallel if plan.sp is None else plan.sp
        narrow = plan.dtype not in ("fp32", "tf32")
        return Shard(
            tokens=plan.micro_batch * plan.seq / plan.cp,
            sequences=plan.micro_batch,
            seq=plan.seq,
            tp=plan.tp,
            ep=plan.ep,
            etp=self.etp,
            cp=plan.cp,
            sp=sp and plan.tp > 1,
            dtype=plan.dtype,
            kernel=self.kernel,
            softmax_passes=framework.softmax_passes * (2 if framework.wide_scores and narrow else 1),
            dropout=self.dropout,
            fused_dropout=framework.fused_dropout,
            bias=framework.bias,
            main_gradients=framework.main_gradients,
            norm_bytes=self._norm_bytes,
            rotary_bytes=self._counted("rotary_bytes") or framework.rotary_bytes,
            gate_bytes=framework.gate_bytes,
            square_bytes=framework.square_bytes,
            gelu_new_bytes=self._counted("gelu_new_bytes") or framework.gelu_new_bytes,
            routed_bytes=framework.routed_bytes,
            row_library=framework.row_library,
            split_bytes=framework.split_bytes,
            copies_queries=framework.copies_queries,
            ulysses=plan.cp_algorithm == ContextAlgorithm.ULYSSES,
            imbalance=plan.expert_imbalance if plan.ep > 1 else 1.0,
            cross_seq=self.encoder_seq,
            gathers_cast=framework.gathers_cast,
            accumulates=framework.adds_gradients,
            libraries=framework.libraries.get("bf16", ()),
            narrow_libraries=framework.libraries.get("fp8", ()),
            documents=() if self.kernel in UNFUSED else self.documents,
        )

    @functools.cached_property
    def documents(self) -> tuple[float, ...]:
        """Equally frequent lengths of the documents of a sequence; () for whole sequences."""
        return spread_lengths(self.plan.documents, self.plan.length_spread, self.plan.seq)

    @property
    def _norm_bytes(self) -> tuple[float, float]:
        """What the kernels of a norm of this model move for an element in 16 bits, forward and backward [B]."""
        framework, counted = self.framework, self._counted("norm_bytes")
        if self.config.architecture.rms_norm:
            counted = self._counted("rms_norm_bytes") or framework.rms_norm_bytes or counted
        return counted or framework.norm_bytes

    def _counted(self, kernels: str) -> tuple[float, float] | None:
        """Return what some kernels move in the dtype of both weights and activations, if they have one [B].

        Of fp32 it is half, as what a shard says is for elements of 16 bits.
        """
        found: tuple[float, float] | None = getattr(self._unmixed, kernels, None)
        return (found[0] / 2.0, found[1] / 2.0) if found and self._wide else found

    @property
    def _wide(self) -> bool:
        return self.plan.dtype in ("fp32", "tf32")

    @property
    def _unmixed(self) -> KernelBytes | None:
        """What kernels move in the dtype of both weights and activations, if they have one and it says so."""
        return self.framework.unmixed.get("fp32" if self._wide else "bf16" if self.narrow_weights else "")

    @property
    def loss_bytes(self) -> float:
        """What the loss moves for a logit [B]."""
        own = self._unmixed.loss_bytes if self._unmixed else None
        return self.framework.loss_bytes if own is None else own

    @property
    def narrow_weights(self) -> bool:
        """Whether weights are in 16 bits between the steps, with no others in fp32 that autocast would cast."""
        return self.plan.optimizer == "adam-bf16" or self.plan.lora > 0

    @property
    def layer_weight_bytes(self) -> float:
        """Bytes of a weight of the layers as it is stored and gathered in 16 or 32 bits, or frozen in fewer [B]."""
        return FROZEN_BYTES.get(self.plan.frozen_dtype, self.wide_bytes)

    @property
    def wide_bytes(self) -> float:
        """Bytes of a weight as it is gathered where it is not frozen in fewer [B]."""
        return 2.0 if self.shard.element_bytes == 2.0 else 4.0

    @property
    def encoder_seq(self) -> int:
        """Tokens of the encoder's sequence; 0 for a model of one stack."""
        return encoder_tokens(self.config, self.plan)

    @property
    def encoder_shard(self) -> Shard:
        """What one GPU runs of a layer of the encoder."""
        seq = self.encoder_seq
        return self.shard._replace(tokens=float(self.plan.micro_batch * seq), seq=seq, cross_seq=0)

    @property
    def dropout(self) -> bool:
        """Whether activations are dropped."""
        if self.plan.dropout is not None:
            return self.plan.dropout
        usual = self.framework.dropout
        return usual == "always" or (usual == "learned_positions" and self.config.learned_positions)

    @property
    def sharded(self) -> bool:
        """Whether each layer's weights are gathered and its gradients reduced in every micro batch."""
        return self.plan.zero == 3 or (self.plan.zero == 2 and self.framework.shards_layers)

    def sharing(self, group: Group) -> Group:
        """Return which ranks of those with the same weights share them out: all, or with HSDP some of one domain.

        Shards are equal: with HSDP they are as many as divide the ranks and share a domain.
        """
        if not (self.plan.hsdp and self.sharded):
            return group
        ranks = max(size for size in divisors(group.ranks) if size <= group.inside)
        return Group(group.cluster, ranks, group.stride)

    def trained(self, parameters: float, kind: Kind | None = None) -> float:
        """Return how many parameters of one GPU have gradients: all of them, or the adapters beside frozen ones.

        Tensor parallel ranks share out both matrices of an adapter (``ParallelLinearAdapter`` of NVIDIA NeMo). Expert
        parallel ranks, which have other experts, have the same adapters: no expert has one.

        Parameters
        ----------
        parameters : of a layer on the GPU; or of embedding, head or routed experts.
        kind : the layer's kind; None for what has no adapter.
        """
        if not self.plan.lora:
            return parameters
        return layer_adapters(self.config, kind, self.plan.lora, self.plan.lora_targets) / self.plan.tp if kind else 0.0

    @property
    def host_s(self) -> float:
        """Time that each pass of a layer with experts waits for the host [s]."""
        return self.constants.host_s * self._host_share

    @property
    def dispatch_s(self) -> float:
        """Time of the host to launch a kernel [s]; 0 where iterations are CUDA graphs."""
        return self.constants.dispatch_s * self.framework.dispatch * self._host_share

    @property
    def dispatch_deviation(self) -> float:
        """Standard deviation of ln of that time between hosts and codes."""
        return self.framework.dispatch_deviation or self.constants.dispatch_deviation

    @property
    def _host_share(self) -> float:
        return self.framework.host_share.get(self.hardware.architecture.lower(), 1.0)

    @property
    def gradient_bytes(self) -> float:
        """Bytes of a gradient that data parallel ranks exchange."""
        return 4.0 if (self.plan.grad_dtype or self.framework.gradient_dtype) == "fp32" else 2.0


def framework_on(framework: Framework, hardware: Hardware) -> Framework:
    """Return a framework, or what stands for it on a machine for which it is not built, with its attention there."""
    found = _built_for(framework, hardware)
    kernel = found.attention_on.get(hardware.architecture.lower())
    return msgspec.structs.replace(found, attention=kernel) if kernel else found


def _built_for(framework: Framework, hardware: Hardware) -> Framework:
    try:
        capability = float(hardware.compute_capability)
    except ValueError:  # of another vendor, whose designs are not numbered so
        return framework
    name = framework.older if capability < framework.first_machines else ""
    name = framework.newer if capability > framework.last_machines else name
    return frameworks()[name] if name else framework


def setup_of(config: ModelConfig, cluster: Cluster, plan: TrainingPlan, fitted: Constants | None = None) -> Setup:
    """Return what a plan is predicted with: its framework, or the nearest one, and the shipped constants or others."""
    framework, _ = nearest_framework(plan.framework, shards=plan.zero == 3)
    return Setup(config, cluster, plan, framework_on(framework, cluster.hardware), fitted or constants())
