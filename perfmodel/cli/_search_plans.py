"""Plans that `search serve` tries where no option says which: experts that GPUs share, and stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.cli._serving_input import Spec

#: most GPUs that share experts where nobody says how many: those of most nodes, or as many as --gpus allows
_MOST_SHARING = 8
#: stages of a pipeline beside one: published deployments have few, since each adds a sending to the time of a token
_STAGES = (2, 4, 8, 16)
#: most GPUs of a pipeline that holds a model where nobody says how many
_MOST_GPUS = 64


def formats_of_keys(model: str) -> str:
    """Return the formats of keys and values to try where no option says which: one for a model that keeps none."""
    from perfmodel.workloads.catalog import find_model

    return "bf16/fp8" if find_model(model).attending_layers else "bf16"


def with_shared_experts(model: str, specs: Sequence[Spec], most: int | None) -> tuple[list[Spec], tuple[str, ...]]:
    """Return deployments and, of a model with experts, those whose GPUs share them, with a note.

    Engines share experts among all GPUs of a stage (vLLM's ``--enable-expert-parallel``): ep = tp x dp. Copies of the
    attention without shared experts are replicas, and are left to ``--dp``. Copies are powers of two, and ``most``
    GPUs share experts at most.
    """
    from perfmodel.workloads.catalog import find_model

    most = most or _MOST_SHARING
    experts = find_model(model).experts
    if not experts:
        return list(specs), ()
    shared = [
        replace(spec, ep=spec.tp * dp, dp=dp)
        for spec in specs
        for dp in (1 << power for power in range(most.bit_length()))
        if 1 < spec.tp * dp <= most and experts % (spec.tp * dp) == 0
    ]
    note = f"Experts were also tried on all GPUs of a stage (ep = tp x dp), up to {most}: --ep and --dp try others."
    return [*specs, *shared], (note,) if shared else ()


def with_stages(model: str, specs: Sequence[Spec], gpus: int | None) -> tuple[list[Spec], tuple[str, ...]]:
    """Return deployments of one stage and, on machines where they are of use, those of a pipeline, with notes.

    Stages are tried on machines whose nodes have fewer GPUs than ``gpus``, and on those where no plan of one stage
    holds the weights in one of their formats: then up to as many GPUs as hold them. A model with experts gets stages in
    the second case alone: in the first its copies, which share experts, take the GPUs of several nodes.

    Parameters
    ----------
    model : as `perfmodel.workloads.catalog.find_model` takes it.
    specs : deployments of one stage.
    gpus : most GPUs of a deployment; None where nobody says how many.
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.prediction.topology import most_joined
    from perfmodel.workloads.catalog import find_model

    tried, notes = list(specs), []
    experts = find_model(model).experts
    possible = _possible_stages(model)
    for machine in dict.fromkeys(spec.machine for spec in specs):
        of_machine = [spec for spec in specs if spec.machine == machine]
        node = most_joined(hardware(machine))
        needed, formats = _needed(of_machine, possible, gpus or _MOST_GPUS)
        most = gpus if gpus and gpus > node and (needed or not experts) else needed
        more = [
            replace(spec, pp=stages)
            for spec in of_machine
            for stages in possible
            if spec.parallel.gpus * stages <= most
        ]
        tried += more
        if more and needed:
            weights = " and ".join(formats)
            notes.append(
                f"No plan of one stage on {machine} holds {weights}: pipelines of up to {most} GPUs were also tried "
                "(--pp chooses)."
            )
        elif more:
            notes.append(
                f"Pipelines were also tried (--pp chooses): --gpus {most} is more than a node of {machine} has, {node}."
            )
    return tried, tuple(notes)


def _possible_stages(model: str) -> tuple[int, ...]:
    """Return the stages beside one that a model can be cut into at all."""
    from perfmodel.serving.given import check_encoder
    from perfmodel.serving.parallel import Parallel, check_parallel
    from perfmodel.workloads.catalog import find_model

    config = find_model(model)
    try:
        check_parallel(config, Parallel(pp=min(2, config.layers)))
        check_encoder(config, "", 2, speculation=False)
    except UsageError:
        return ()
    return tuple(stages for stages in _STAGES if stages <= config.layers)


def _needed(specs: Sequence[Spec], possible: Sequence[int], most: int) -> tuple[int, list[str]]:
    """Return the GPUs that hold the weights in every format that one stage does not hold, and these formats.

    0 GPUs where one stage holds every format, or no pipeline of up to ``most`` GPUs holds any other.
    """
    needed: dict[str, int] = {}
    for weights in dict.fromkeys(spec.weights for spec in specs):
        plans = [spec for spec in specs if spec.weights == weights]
        if not _least_gpus(plans, most):
            piped = (replace(spec, pp=stages) for spec in plans for stages in possible)
            needed[weights] = _least_gpus(piped, most)
    return max(needed.values(), default=0), [weights for weights, gpus in needed.items() if gpus]


def _least_gpus(specs: Iterable[Spec], most: int) -> int:
    """Return the fewest GPUs, up to ``most``, of the deployments that hold their model; 0 where none does."""
    plans = sorted((spec for spec in specs if spec.parallel.gpus <= most), key=lambda spec: spec.parallel.gpus)
    return next((spec.parallel.gpus for spec in plans if _holds(spec)), 0)


def _holds(spec: Spec) -> bool:
    """Whether a deployment can be run, and its weights leave room for keys and values."""
    from perfmodel.serving.support import objections

    try:
        deployment = spec.deployment()
        deployment.memory()
    except UsageError:
        return False
    return not objections(deployment)
