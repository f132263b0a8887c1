"""The sizes that a search for the best training plan combines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError, unknown_name
from perfmodel.training.checks import equal_stages
from perfmodel.training.choices import offloaded
from perfmodel.training.framework import RANK_NAMES, RANKS, Framework, listed, nearest_framework
from perfmodel.training.plan import ContextAlgorithm, Recompute, TrainingPlan
from perfmodel.training.setup import attention_kernel, idle_attention, idle_selective
from perfmodel.workloads.model_config import ModelConfig

#: sizes of a plan over which a search may range
AXES = ("batch", "micro_batch", "tp", "cp", "pp", "vp", "ep", "etp", "offload", "zero", "recompute")
#: axes whose values are words
_WORDS = ("offload", "recompute")
#: most combinations of a search
MOST_POINTS = 10_000_000
#: most sequences of a micro batch that a search tries unless it is told: small models need so many to fill a GPU
MOST_SEQUENCES = 64
#: sizes above it, which no plan has, count as it, since float64 does not hold all of them
_LARGEST = 2**53
_Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Space:
    """The sizes that a search combines; each is a tuple of values, one value holds it fixed.

    Attributes
    ----------
    least_recompute : whether sizes that fit without recomputation are not tried with it, which takes longer.
    """

    batch: tuple[int, ...]
    micro_batch: tuple[int, ...]
    tp: tuple[int, ...]
    cp: tuple[int, ...]
    pp: tuple[int, ...]
    vp: tuple[int, ...]
    ep: tuple[int, ...]
    etp: tuple[int, ...]
    zero: tuple[int, ...]
    recompute: tuple[str, ...]
    least_recompute: bool = False
    offload: tuple[str, ...] = ("none",)

    def __post_init__(self) -> None:
        for name in AXES:
            if not getattr(self, name):
                raise UsageError(f"the search has no value of {name}.", place="search")
            if name not in ("etp", "zero", *_WORDS) and min(getattr(self, name)) < 1:
                raise UsageError(f"{name} = {min(getattr(self, name))} is below 1.", place="search")
        if self.points > MOST_POINTS:
            raise UsageError(
                f"the search has {self.points:.3g} combinations; at most {MOST_POINTS:.0e} are tried.",
                place="search",
                remedy="Hold some sizes fixed.",
            )

    @property
    def points(self) -> int:
        """Combinations."""
        return math.prod(len(getattr(self, name)) for name in AXES)

    def at(self, point: int) -> dict[str, object]:
        """Return the combination of a number from 0 on: the last axis changes first."""
        sizes: dict[str, object] = {}
        for name in reversed(AXES):
            values = getattr(self, name)
            point, place = divmod(point, len(values))
            sizes[name] = values[place]
        return sizes

    def between(self, start: int, stop: int) -> dict[str, NDArray[np.float64]]:
        """Return the sizes of the combinations of a range of numbers, an array each; `_WORDS` are none."""
        points, sizes = np.arange(start, stop), {}
        for name in reversed(AXES):
            values = getattr(self, name)
            points, place = np.divmod(points, len(values))
            if name not in _WORDS:
                sizes[name] = np.array([min(value, _LARGEST) for value in values], dtype=np.float64)[place]
        return sizes


def default_space(
    config: ModelConfig, clusters: Cluster | Sequence[Cluster], plan: TrainingPlan, **given: Sequence[object]
) -> Space:
    """Return the space of a search: what is given, and for the rest what may be useful.

    Powers of two that divide the GPUs: tensor parallel within a domain of NVLink, 1 to 4 context parallel ranks, and up
    to 16 from 32768 tokens on (1 with an encoder and a decoder, layers with a state or keys compressed over tokens),
    pipelines up to 16 stages, 1 to 64 sequences of a batch in a micro batch, expert parallel ranks that divide the
    experts, each of which is shared out as the framework does and not at all; up to 8 virtual stages that are equal
    ones (`equal_stages`) in one of the pipelines; zero as is usual, 1 and 3 where the framework has them in the plan's
    dtype, 2 where it has no 1; recomputation none, and where sizes do not fit without it, selective (where the kernel
    has scores), of every second operation, of every second layer, and full. What the framework does not have is left
    out. On the host lives what the plan has there.

    Parameters
    ----------
    clusters : one cluster, or those that are compared: the most GPUs and the largest domain of NVLink of any count.
    given : axis -> its values, in place of these; a value that is named twice counts once.

    Raises
    ------
    UsageError
        For an axis that is none.
    """
    for name in given:
        if name not in AXES:
            raise unknown_name("axis of the search", name, AXES, place="search")
    compared = [clusters] if isinstance(clusters, Cluster) else clusters
    gpus = max(cluster.gpus for cluster in compared)
    domain = max(min(cluster.nvlink_domain, cluster.gpus) for cluster in compared)
    heads = [size for size in _powers(min(domain, 64)) if config.heads % size == 0]
    whole = config.encoder_layers or config.linear_layers or config.architecture.shared_vector
    context = 1 if whole else 16 if plan.seq >= 32768 else 4
    framework, _ = nearest_framework(plan.framework)
    stages = framework.stages(plan.dtype)
    largest = max((size for size in given.get("batch", ()) if isinstance(size, int)), default=plan.batch)
    scores = not idle_selective(config, attention_kernel(config, plan, framework))
    pipelines = given.get("pp") or pipeline_sizes(config, gpus)
    useful: dict[str, Sequence[object]] = {
        "batch": (plan.batch,),
        "micro_batch": _powers(min(MOST_SEQUENCES, largest)),
        "tp": heads,
        "cp": _powers(min(context, gpus)),
        "pp": pipelines,
        "vp": virtual_sizes(config, pipelines),
        "ep": [size for size in _powers(min(64, gpus)) if config.experts % size == 0] if config.experts else (1,),
        "offload": (plan.offload,),
        "etp": (plan.etp, 1) if config.experts and not plan.etp and framework.expert_tensor == "all" else (plan.etp,),
        "zero": sorted({framework.usual_zero, *((1, 3) if 1 in stages else (2, 3))} & {*stages}) or stages[:1],
        "recompute": [
            how for how in Recompute if framework.recomputation(how) and (how != Recompute.SELECTIVE or scores)
        ],
    }
    sizes = {name: tuple(dict.fromkeys(given.get(name, values))) for name, values in useful.items()}
    sizes |= {name: (1,) for name in RANKS if name not in framework.parallel and name not in given}
    return Space(**sizes, least_recompute="recompute" not in given)  # type: ignore[arg-type]


def pipeline_sizes(config: ModelConfig, gpus: int) -> list[int]:
    """Return the stages of a pipeline that a search tries: powers of two, at most 16."""
    return _powers(min(16, gpus, config.layers))


def virtual_sizes(config: ModelConfig, pipelines: Iterable[Any]) -> list[int]:
    """Return the virtual stages of a GPU that a search tries: up to 8, equal ones (`equal_stages`) in a pipeline.

    126 layers, which count as 128 with embedding and head, have 2, 4 and 8 on 16 GPUs, though none of 4 and 8 divides
    them.

    Parameters
    ----------
    pipelines : stages of the pipelines that the search tries.
    """
    if config.encoder_layers:
        return [1]
    several = [size for size in pipelines if size > 1]
    return [1, *(size for size in range(2, 9) if any(equal_stages(config.layers, pp * size) for pp in several))]


def lacking_parts(config: ModelConfig, plan: TrainingPlan, space: Space) -> tuple[str, ...]:
    """Return notes about what the framework of a plan does not have: in a space, and left out of it.

    What changes nothing with its kernels is noted, too.
    """
    framework, known = nearest_framework(plan.framework)
    notes = [framework.lacking(space.zero, plan.dtype), idle_attention(config, plan)]
    if Recompute.SELECTIVE in space.recompute:
        notes.append(idle_selective(config, attention_kernel(config, plan, framework)))
    if known:
        several = [name for name in RANKS if max(getattr(space, name)) > 1]
        usual = plan.cp_algorithm == ContextAlgorithm.ZIGZAG
        algorithm = framework.context[0] if usual else plan.cp_algorithm
        offloads = dict.fromkeys(part for parts in space.offload for part in offloaded(parts))
        notes.append(framework.lacking_parts(several, space.recompute, algorithm, offloads))
        useful = [name for name in RANKS if name != "ep" or config.experts]
        missing = [RANK_NAMES[name] for name in useful if name not in (*framework.parallel, *several)]
        notes.append(f"{framework.name} has no {listed(missing)}: not tried." if missing else "")
    return tuple(note for note in notes if note)


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def worth_trying(
    config: ModelConfig, gpus: int, sizes: Mapping[str, NDArray[np.float64]], space: Space, framework: Framework
) -> tuple[_Bools, _Bools]:
    """Return which combinations divide (`divides`), and which of these are others by a second name (`repeats`)."""
    even = divides(config, gpus, sizes, uneven=framework.uneven_micro_batches)
    if config.experts:
        even &= _experts_divide(gpus, sizes, framework)
    return even, even & repeats(config, gpus, sizes, space)


def repeats(config: ModelConfig, gpus: int, sizes: Mapping[str, NDArray[np.float64]], space: Space) -> _Bools:
    """Return which combinations are others by a second name: one rank shares out nothing, whatever ``zero`` is.

    Ranks of experts are fewer than those of the rest: ``zero`` of a mixture of experts always counts, but without
    tensor parallel ranks the experts have none either.
    """
    whole: _Bools = (sizes["tp"] == 1) & (sizes["etp"] == 1) & (0 in space.etp)
    single: _Bools = (sizes["zero"] != min(space.zero)) & (sizes["tp"] * sizes["pp"] == gpus)
    return whole if config.experts else single


def _experts_divide(gpus: int, sizes: Mapping[str, NDArray[np.float64]], framework: Framework) -> _Bools:
    """Return which combinations have ranks that the experts divide, as `check_sizes` needs it."""
    usual = sizes["tp"] if framework.expert_tensor == "all" else 1.0
    together = sizes["ep"] * np.where(sizes["etp"] > 0, sizes["etp"], usual)
    found: _Bools = (gpus // sizes["pp"]) % together == 0
    return found


def divides(
    config: ModelConfig, gpus: int, sizes: Mapping[str, NDArray[np.float64]], *, uneven: bool = False
) -> _Bools:
    """Return which combinations have sizes that divide GPUs, heads, layers and batch: before a plan is built.

    Virtual stages are equal ones (`equal_stages`).

    Parameters
    ----------
    uneven : whether the last micro batch of a GPU may be smaller than the others.
    """
    tp, cp, pp, vp = (sizes[name] for name in ("tp", "cp", "pp", "vp"))
    model, stages = tp * cp * pp, pp * vp
    ranks = np.maximum(gpus // model, 1.0)
    deep = (vp == 1) | ((pp > 1) & equal_stages(config.layers, stages))
    fits = (gpus % model == 0) & (config.heads % tp == 0) & (stages <= config.layers + 2)
    batch, together = sizes["batch"], ranks * sizes["micro_batch"]
    whole = (batch % ranks == 0) & (together <= batch) if uneven else batch % together == 0
    found: _Bools = fits & deep & whole
    return found
