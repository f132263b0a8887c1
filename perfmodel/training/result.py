"""The result of predicting a training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import Reportable
from perfmodel.training.memory_result import Memory
from perfmodel.training.plan import TrainingPlan


@dataclass(frozen=True)
class TrainingStep(Reportable):
    """One step of training: the forward and backward passes over a batch, and the update of the weights.

    Attributes
    ----------
    cluster, plan, framework : what was asked for, with the framework's name in ``engine_specs/training``.
    model : name of the model.
    dp : data parallel ranks.
    micro_batches : micro batches of a GPU.
    time_s, low_s, high_s : expected time and its 80 % interval [s].
    own_interval_s : the same for a comparison with other steps on the machine: without what all of them share [s].
    laboratory_interval_s : the same for a comparison with steps on other machines in one laboratory [s].
    terms_s : the parts that add up to ``time_s``, of the GPU that sets the pace [s].
    stage_forward_s, stage_backward_s : of one micro batch in each GPU of the pipeline, all its stages together [s].
    stage_weights_s : of the latter, the products of weights' gradients [s].
    flop : model FLOP of the step over all GPUs: 6 a parameter and token without the embedding, and attention's products
        under the causal mask [FLOP].
    flop_full_attention : the same with the whole square of attention, as NeMo until 24.x and llm-foundry count [FLOP].
    hardware_flop : with what is computed anew in backward, causal mask [FLOP].
    peak_flop_per_s : dense datasheet peak of one GPU in the dtype of the products [FLOP/s].
    parameters : of the model.
    notes : what was assumed.
    encoder_seq : tokens of the encoder's sequence; 0 for a model of one stack.
    memory : what each GPU of the pipeline holds; None where it was not asked for.
    """

    cluster: Cluster
    plan: TrainingPlan
    framework: str
    model: str
    dp: int
    micro_batches: int
    time_s: float
    low_s: float
    high_s: float
    own_interval_s: tuple[float, float]
    laboratory_interval_s: tuple[float, float]
    terms_s: Mapping[str, float]
    stage_forward_s: tuple[float, ...]
    stage_backward_s: tuple[float, ...]
    stage_weights_s: tuple[float, ...]
    flop: float
    flop_full_attention: float
    hardware_flop: float
    peak_flop_per_s: float
    parameters: int
    notes: tuple[str, ...] = ()
    encoder_seq: int = 0
    memory: Memory | None = None

    @property
    def time_low_s(self) -> float:
        """Lower end of the 80 % interval [s], by the key of JSON."""
        return self.low_s

    @property
    def time_high_s(self) -> float:
        """Upper end of the 80 % interval [s], by the key of JSON."""
        return self.high_s

    @property
    def memory_bytes(self) -> dict[str, float]:
        """Part -> bytes of the fullest GPU at its peak; empty where memory was not asked for."""
        return dict(self.memory.peak.parts) if self.memory else {}

    @property
    def fits(self) -> bool | None:
        """Whether it fits on every GPU; None where memory was not asked for."""
        return self.memory.fits if self.memory else None

    @property
    def tokens(self) -> int:
        """Tokens of the step, those of an encoder and its decoder together."""
        return self.plan.batch * (self.plan.seq + self.encoder_seq)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all GPUs in a second."""
        return self.tokens / self.time_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens of one GPU in a second."""
        return self.tokens_per_s / self.cluster.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP with attention under its causal mask, over the time at the dense peak."""
        return self._share(self.flop)

    @property
    def mfu_full_attention(self) -> float:
        """Model FLOP with the whole square of attention, over the time at the dense peak."""
        return self._share(self.flop_full_attention)

    @property
    def hfu(self) -> float:
        """Executed FLOP, recomputation included, over the time at the dense peak; attention under its mask."""
        return self._share(self.hardware_flop)

    def _share(self, flop: float) -> float:
        return flop / (self.time_s * self.cluster.gpus * self.peak_flop_per_s)
