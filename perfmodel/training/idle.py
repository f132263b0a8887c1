"""Options of a training plan that its sizes leave without effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class IdleOption(NamedTuple):
    """An option that nothing uses unless a size of the plan has at least some value.

    Attributes
    ----------
    name, default : of the option, and what stands for leaving it out.
    neutral : values that say nothing.
    size, least : the size, and its smallest value with which the option has an effect.
    why : what the option does; ``{}`` is its value.
    """

    name: str
    default: object
    neutral: tuple[object, ...]
    size: str
    least: int
    why: str


#: schedules of a pipeline with one virtual stage a GPU
_ONE_STAGE = ("1f1b", "gpipe", "zero_bubble", "dualpipe")
_IDLE = (
    IdleOption("hsdp", False, (False,), "zero", 2, "hsdp shares out weights within a domain of NVLink"),
    IdleOption("schedule", "", ("1f1b",), "pp", 2, "schedule {} orders a pipeline"),
    IdleOption("schedule", "", _ONE_STAGE, "vp", 2, "schedule {} needs several stages a GPU"),
    IdleOption("sp", None, (None, False), "tp", 2, "sequence parallelism is among tensor parallel ranks"),
    IdleOption("tp_overlap", None, (None, False), "tp", 2, "tp_overlap hides exchanges of tensor parallel ranks"),
    IdleOption("cp_algorithm", "zigzag", ("zigzag",), "cp", 2, "cp_algorithm {} splits sequences among ranks"),
    IdleOption("lora_targets", "all", ("all",), "lora", 1, "lora_targets {} are of adapters"),
    IdleOption("frozen_dtype", "", ("",), "lora", 1, "frozen_dtype {} is of the weights beside adapters"),
    IdleOption("dispatcher", "", ("",), "ep", 2, "dispatcher {} is among expert parallel ranks"),
    IdleOption("expert_overlap", False, (False,), "ep", 2, "expert_overlap hides exchanges of expert parallel ranks"),
    IdleOption("shared_expert_overlap", False, (False,), "ep", 2, "shared_expert_overlap hides exchanges of experts"),
    IdleOption("dispatch_dtype", "", ("",), "ep", 2, "dispatch_dtype {} is of tokens among expert parallel ranks"),
    IdleOption("expert_imbalance", 1.0, (1,), "ep", 2, "expert_imbalance is among expert parallel ranks"),
)


def idle_options(plan: object, largest: Mapping[str, int] = MappingProxyType({})) -> list[IdleOption]:
    """Return the options of a plan that nothing uses, such as a schedule without a pipeline.

    Parameters
    ----------
    plan : a `TrainingPlan`.
    largest : size -> its largest value, where a search has several; otherwise the plan's own.
    """
    return [
        option
        for option in _IDLE
        if getattr(plan, option.name) not in option.neutral
        and largest.get(option.size, getattr(plan, option.size)) < option.least
    ]
