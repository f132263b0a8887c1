"""How a model is trained on a cluster: parallel plan, batch, precision, recomputation, and the rules that it keeps."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from perfmodel.core.vocabulary import spelt
from perfmodel.core.work import plain_ints
from perfmodel.errors import UsageError, suggesting_class, unknown_name
from perfmodel.operators.routing import Dispatcher
from perfmodel.training.choices import ATTENTION as ATTENTION
from perfmodel.training.choices import (
    CPU_OPTIMIZERS,
    CPU_OVERLAPS,
    DISPATCH_DTYPES,
    UPDATED_THERE,
    offloaded,
    parse_offload,
)
from perfmodel.training.choices import DTYPES as DTYPES
from perfmodel.training.choices import OPTIMIZERS as OPTIMIZERS
from perfmodel.training.choices import AdapterTargets as AdapterTargets
from perfmodel.training.choices import ContextAlgorithm as ContextAlgorithm
from perfmodel.training.choices import Recompute as Recompute
from perfmodel.training.choices import Schedule as Schedule
from perfmodel.training.documents import document_lengths
from perfmodel.training.framework import Framework, nearest_framework
from perfmodel.training.frozen import FROZEN as FROZEN
from perfmodel.training.idle import idle_options

PLACE = "training plan"
#: ``zero`` of a plan that does not say
USUAL_ZERO = -1
#: the largest size of anything in a plan
LARGEST = 10**9


@suggesting_class
@dataclass(frozen=True)
class TrainingPlan:
    """One way to train a model. Words that have parts take a hyphen or an underscore: "zero-bubble", "zero_bubble".

    Attributes
    ----------
    batch : sequences of a step over all GPUs.
    seq : tokens of a sequence; of an encoder with a decoder, those of the decoder.
    encoder_seq : tokens of the encoder's sequence in such a model; 0 for as many as the decoder's.
    micro_batch : sequences of a GPU that run together.
    tp, cp, pp, ep : tensor, context, pipeline and expert parallel ranks. The rest of the GPUs is data parallel; the
        expert parallel ranks are among the data, context and tensor parallel ones.
    etp : tensor parallel ranks of the experts; 0 as the framework does (`Framework.expert_tensor`).
    sp : sequence parallelism beside the tensor parallelism; None as the framework does.
    vp : stages of the pipeline on each GPU (interleaved).
    schedule : order of the pipeline; "" for 1f1b, or interleaved with ``vp`` above 1.
    stages : layers of each stage where they are unequal, pp vp numbers that sum to the layers; () for equal ones.
        Those of an encoder come before those of its decoder.
    zero : what data parallel ranks share out: 0 nothing, 1 optimizer, 2 and gradients, 3 and weights (FSDP).
        -1 as the framework does (`Framework.usual_zero`, and no more than it can beside a pipeline, or 1 under
        DualPipe), which the plan then has.
    hsdp : share out within a domain of NVLink only, and reduce the shards between these.
    dtype : of the matrix products of the layers, one of `DTYPES`.
    recompute : see `Recompute`.
    attention : kernel, one of `ATTENTION`; "" as the framework does.
    tp_overlap : tensor parallel exchanges beside the products; None as the framework does.
    cp_algorithm : see `ContextAlgorithm`; "" as the framework does, which the plan then has.
    framework : name of a file of ``engine_specs/training``, or one of its aliases.
    optimizer : one of `OPTIMIZERS`; "none" leaves the update out.
    grad_dtype : of the gradients that ranks exchange, "fp32" or "bf16"; "" as the framework does. Those that a GPU
        keeps between its micro batches stay as the framework has them.
    dropout : whether the layers drop activations; None as the framework does.
    expert_imbalance : tokens of the busiest expert parallel rank over the mean; 1 is balanced routing.
    dispatcher : how tokens reach experts of other ranks, see `perfmodel.operators.routing.Dispatcher`; "" as the
        framework does.
    expert_overlap : whether exchanges of experts run beside the passes of another micro batch, see
        `perfmodel.training.expert_overlap`.
    shared_expert_overlap : whether shared experts run beside their layer's exchanges of routed ones.
    dispatch_dtype : in which tokens go to experts of other ranks, "fp8" with a scale for 128 numbers, or "bf16"; "" for
        16 bits. What comes back has them in any case.
    lora : rank of adapters beside the matrices of the layers, which alone are trained; 0 trains every weight.
    lora_targets : which matrices have adapters, see `AdapterTargets`.
    frozen_dtype : in which the matrices beside adapters are stored, one of `FROZEN`; "" as they compute ("nf4": QLoRA).
    offload : what lives on the host, some of `OFFLOADS` joined by commas: "optimizer" (its states, and its step on the
        CPU), "parameters" (weights that are shared out, zero 3), "activations" (what forward keeps for backward);
        "none".
    offload_fraction : share of the parameters whose optimizer is on the host.
    cpu_optimizer : how the CPU updates them, "fused" or "for-loop"; "" as the framework does.
    cpu_threads : of each rank, which update its parameters; 0 as the framework's launcher has it.
    cpu_overlap : what runs beside that update: "none", its "copies", or with them the "passes" of the next step; "" as
        the framework does. See `perfmodel.training.host_update`.
    documents : lengths of the documents of which a sequence consists, each as frequent as the others, which attend to
        themselves alone; () for one document a sequence. A number stands for one length.
    length_spread : lengths of documents are uniform within this share of each of ``documents``.
    """

    batch: int
    seq: int
    micro_batch: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 0
    sp: bool | None = None
    vp: int = 1
    schedule: str = ""
    stages: tuple[int, ...] = ()
    zero: int = USUAL_ZERO
    hsdp: bool = False
    dtype: str = "bf16"
    recompute: str = Recompute.NONE
    attention: str = ""
    tp_overlap: bool | None = None
    cp_algorithm: str = ""
    framework: str = "megatron"
    optimizer: str = "adam"
    grad_dtype: str = ""
    dropout: bool | None = None
    expert_imbalance: float = 1.0
    lora: int = 0
    lora_targets: str = AdapterTargets.ALL
    frozen_dtype: str = ""
    encoder_seq: int = 0
    dispatcher: str = ""
    offload: str = "none"
    offload_fraction: float = 1.0
    documents: tuple[int, ...] = ()
    length_spread: float = 0.0
    expert_overlap: bool = False
    shared_expert_overlap: bool = False
    dispatch_dtype: str = ""
    cpu_optimizer: str = ""
    cpu_threads: int = 0
    cpu_overlap: str = ""

    def __post_init__(self) -> None:
        counts = ("batch", "seq", "micro_batch", "tp", "cp", "pp", "ep", "vp")
        counts_or_none = ("etp", "lora", "encoder_seq", "cpu_threads")
        plain_ints(self, (*counts, *counts_or_none, "zero"))
        self._check_types()
        for name in counts:
            _check_count(name, getattr(self, name))
        for name in counts_or_none:
            if getattr(self, name) != 0:
                _check_count(name, getattr(self, name))
        object.__setattr__(self, "recompute", Recompute.parse(self.recompute, place="recompute"))
        targets = AdapterTargets.parse(self.lora_targets, place="lora_targets")
        object.__setattr__(self, "lora_targets", targets)
        object.__setattr__(
            self,
            "cp_algorithm",
            ContextAlgorithm.parse(self.cp_algorithm or self._usual_algorithm(), place="cp_algorithm"),
        )
        object.__setattr__(
            self, "schedule", Schedule.parse(self.schedule or _usual_schedule(self.vp), place="schedule")
        )
        if self.dispatcher:
            object.__setattr__(self, "dispatcher", Dispatcher.parse(self.dispatcher, place="dispatcher"))
        object.__setattr__(self, "stages", tuple(self.stages))
        object.__setattr__(self, "offload", parse_offload(self.offload, "offload"))
        object.__setattr__(self, "documents", document_lengths(self.documents, self.length_spread))
        choices = {
            "dtype": DTYPES, "attention": ATTENTION, "optimizer": OPTIMIZERS, "frozen_dtype": FROZEN,
            "cpu_optimizer": CPU_OPTIMIZERS, "cpu_overlap": CPU_OVERLAPS, "dispatch_dtype": DISPATCH_DTYPES,
        }  # fmt: skip
        for name, allowed in choices.items():
            text = getattr(self, name)
            if text not in allowed:
                if (word := spelt(text, allowed)) is None:
                    raise unknown_name(name, text, [word for word in allowed if word], place=PLACE)
                object.__setattr__(self, name, word)
        if self.grad_dtype not in ("", "fp32", "bf16", "fp16"):
            raise unknown_name("grad_dtype", self.grad_dtype, ("fp32", "bf16", "fp16"), place=PLACE)
        self._settle_zero()
        if not 1 <= self.expert_imbalance <= LARGEST:
            raise UsageError(f"expert_imbalance = {self.expert_imbalance!r} is below 1.", place=PLACE)
        self._check_pipeline()
        self._check_offload()

    def _settle_zero(self) -> None:
        """Replace an unset ``zero`` by the usual one of the framework; raise for an unknown value."""
        if isinstance(self.zero, bool) or self.zero not in (USUAL_ZERO, 0, 1, 2, 3):
            raise UsageError(f"zero = {self.zero!r} is none of 0, 1, 2, 3.", place=PLACE)
        if self.zero == USUAL_ZERO:
            framework, _ = nearest_framework(self.framework)
            most = framework.pipeline_zero if self.pp > 1 else 3
            most = min(most, 1) if self.pp > 1 and self.schedule == Schedule.DUALPIPE else most
            object.__setattr__(self, "zero", most_zero(framework, min(framework.usual_zero, most)))

    def _usual_algorithm(self) -> str:
        """Return how the framework splits attention among context parallel ranks; any name without such ranks."""
        return nearest_framework(self.framework)[0].context[0] if self.cp > 1 else ContextAlgorithm.ZIGZAG

    def _check_types(self) -> None:
        """Raise for a text, a switch or a list that is none, as in a file."""
        for name in (
            "schedule",
            "dtype",
            "recompute",
            "attention",
            "cp_algorithm",
            "framework",
            "optimizer",
            "grad_dtype",
            "frozen_dtype",
            "dispatcher",
            "offload",
            "cpu_optimizer",
            "cpu_overlap",
            "dispatch_dtype",
        ):
            if not isinstance(getattr(self, name), str):
                how = 'one text with commas, as in "optimizer,activations"' if name == "offload" else "a name"
                raise UsageError(f"{name} = {getattr(self, name)!r} is no text.", place=PLACE, remedy=f"Write {how}.")
        for name in ("sp", "hsdp", "tp_overlap", "dropout", "expert_overlap", "shared_expert_overlap"):
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(f"{name} = {getattr(self, name)!r} is neither true nor false.", place=PLACE)
        for name in ("expert_imbalance", "offload_fraction", "length_spread"):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int | float):
                raise UsageError(f"{name} = {getattr(self, name)!r} is no number.", place=PLACE)
        listed = isinstance(self.stages, list | tuple)
        if not listed or any(isinstance(count, bool) or not isinstance(count, int) for count in self.stages):
            raise UsageError(
                f"stages = {self.stages!r} is no list of layers.", place=PLACE, remedy="Write stages = [17, 15]."
            )

    def _check_offload(self) -> None:
        """Raise for a share of nothing, or weights on the host that nothing brings back layer by layer."""
        if not 0 < self.offload_fraction <= 1:
            raise refused(f"offload_fraction = {self.offload_fraction:g} is not above 0 and at most 1", "Use 0.5")
        given = (name for name, unset in UPDATED_THERE.items() if getattr(self, name) != unset)
        if not self.on_host("optimizer") and (name := next(given, "")):
            raise refused(
                f"{name} = {getattr(self, name)} is of the optimizer, and offload = {self.offload}",
                f'Use offload = "optimizer", or leave {name} out',
            )
        if self.on_host("parameters") and self.zero != 3:
            raise refused(
                f"parameters on the host come back layer by layer where they are shared out, and zero = {self.zero}",
                "Use zero = 3",
            )
        if self.on_host("optimizer") and self.optimizer in ("muon", "adam-8bit", "none"):
            raise refused(f"optimizer {self.optimizer} has no step on the CPU", "Use adam, adam-bf16 or sgd")

    def on_host(self, part: str) -> bool:
        """Return whether a part of `OFFLOADS` lives on the host."""
        return part in offloaded(self.offload)

    def _check_pipeline(self) -> None:
        if self.vp > 1 and self.pp == 1:
            raise refused(f"vp = {self.vp} interleaves a pipeline, and pp = 1 is none", "Use vp = 1, or pp above 1")
        if self.schedule == Schedule.DUALPIPE and self.pp > 1 and self.pp % 2:
            raise refused(f"dualpipe folds a pipeline, and pp = {self.pp} is odd", f"Nearest: pp={self.pp + 1}")
        if self.vp > 1 and self.schedule != Schedule.INTERLEAVED:
            raise refused(f"schedule {self.schedule} has one stage a GPU, not vp = {self.vp}", "Use interleaved")
        if self.stages and (len(self.stages) != self.pp * self.vp or min(self.stages) < 0):
            raise refused(
                f"stages has {len(self.stages)} numbers", f"Give pp vp = {self.pp * self.vp} numbers of layers"
            )
        pieces = 2 if self.cp > 1 and self.cp_algorithm == ContextAlgorithm.ZIGZAG else 1
        if self.seq % (pieces * self.cp):
            near = nearest_divisor(self.seq // pieces or 1, self.cp)
            whole = self.seq % pieces == 0 or near == 1
            raise refused(
                f"seq = {self.seq} does not divide by {'2 ' * (pieces - 1)}cp = {pieces * self.cp}"
                + (", the pieces of a zigzag" if pieces > 1 else ""),
                f"Use cp = {near if whole else 1}",
            )

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one copy of the model: tp cp pp."""
        return self.tp * self.cp * self.pp

    def dp(self, gpus: int) -> int:
        """Return the data parallel ranks on some GPUs: gpus / (tp cp pp).

        Raises
        ------
        UsageError
            When the plan does not divide the GPUs.
        """
        if gpus % self.model_parallel:
            raise refused(
                f"tp cp pp = {self.tp} x {self.cp} x {self.pp} = {self.model_parallel} does not divide {gpus} GPUs",
                "Change one of them",
            )
        return gpus // self.model_parallel

    def micro_batches(self, gpus: int) -> int:
        """Return the micro batches of a GPU in a step: batch / (dp micro_batch), rounded up.

        The last one may be smaller where the framework allows it (`Framework.uneven_micro_batches`): it counts as a
        whole one in the pipeline.

        Raises
        ------
        UsageError
            When the batch has fewer sequences than data parallel ranks, or does not divide by them.
        """
        ranks = self.dp(gpus)
        if self.batch % ranks:
            near = max(1, round(self.batch / ranks)) * ranks
            raise refused(f"batch = {self.batch} does not divide by dp = {ranks} ranks", f"Nearest: batch={near}")
        return math.ceil(self.batch // ranks / self.micro_batch)

    def batch_unit(self, gpus: int) -> int:
        """Return the sequences by which a batch grows: micro batches of each rank.

        That is one, of interleaved stages pp of them, and two under DualPipe, half of whose enter at each end.

        Raises
        ------
        UsageError
            When the plan does not divide the GPUs.
        """
        two_ways = self.pp > 1 and self.schedule == Schedule.DUALPIPE
        return self.dp(gpus) * self.micro_batch * (self.pp if self.vp > 1 else 2 if two_ways else 1)

    def least_batch(self, gpus: int) -> int:
        """Return the fewest sequences of a step: a `batch_unit`, pp of them under DualPipe.

        Raises
        ------
        UsageError
            When the plan does not divide the GPUs.
        """
        return self.batch_unit(gpus) * (self.pp if self.schedule == Schedule.DUALPIPE else 1)

    def changed(self, **values: object) -> TrainingPlan:
        """Return the plan with some values changed, or without what has no effect.

        A default schedule follows ``vp``, a default ``cp_algorithm`` the framework. Options that the new sizes leave
        without effect go back to their defaults unless they are among the values: without a pipeline no schedule, with
        whole weights no hsdp. What is shared out stays as it is under another framework: ``zero=-1`` makes it what that
        one does.
        """
        if "vp" in values and "schedule" not in values and self.schedule == _usual_schedule(self.vp):
            values["schedule"] = ""
        if "cp_algorithm" not in values and self.cp_algorithm == self._usual_algorithm():
            values["cp_algorithm"] = ""
        if "offload" in values and "optimizer" not in str(values["offload"]):
            values = {**UPDATED_THERE, **values}
        if "documents" in values and not values["documents"]:
            values.setdefault("length_spread", 0.0)
        plan = dataclasses.replace(self, **values)  # type: ignore[arg-type]
        idle: dict[str, Any] = {
            option.name: option.default for option in idle_options(plan) if option.name not in values
        }
        return dataclasses.replace(plan, **idle) if idle else plan


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, the smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return sorted({*small, *(number // value for value in small)})


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of a number that is nearest to a wanted one in |log2|.

    >>> nearest_divisor(96, 7)
    8
    """
    return min(divisors(number), key=lambda value: abs(math.log2(value / wanted)))


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise UsageError(f"{name} = {value!r} is not a whole number from 1 to 10^9.", place=PLACE)


def most_zero(framework: Framework, most: int) -> int:
    """Return the most that the data parallel ranks of a framework share out, up to a stage of ZeRO; 0 for nothing."""
    return max((stage for stage in framework.zero_stages if stage <= most), default=0)


def _usual_schedule(vp: int) -> Schedule:
    return Schedule.INTERLEAVED if vp > 1 else Schedule.ONE_F_ONE_B


def refused(problem: str, remedy: str) -> UsageError:
    """Build the error of a plan that cannot run."""
    return UsageError(f"{problem}.", place=PLACE, remedy=f"{remedy}.")
