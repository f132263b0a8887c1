"""Texts of the options of `train` and `search train` as clusters, plans and ranges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.core.lists import list_items
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster
    from perfmodel.training.plan import TrainingPlan
    from perfmodel.workloads.model_config import ModelConfig

#: longest sequence that a plan has unless it says otherwise
_LONGEST = 8192
_COUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kKMBGT]?)$")
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
#: a range of what data parallel ranks share out
_STAGES = re.compile(r"(\d)\.\.(\d)")
#: options with numbers that may be ranges
SIZES = ("tp", "cp", "pp", "vp", "ep", "micro_batch", "batch", "seq", "zero")


def sizes_of(text: str, place: str) -> tuple[int, ...]:
    """Return the whole numbers of a text: 8, a list 1/2/4, doubling 1..8 or steps 64..512+64.

    Raises
    ------
    UsageError
        When it is none of these.
    """
    from perfmodel.operators.parse import parse_sizes

    sizes = parse_sizes(text, place=place, key=place.removeprefix("--"))
    for size in sizes:
        if not float(size).is_integer():  # nor infinite, nor NaN
            raise UsageError(f"{size:g} is not a whole number.", place=place, remedy="Write 8, 1/2/4 or 1..8.")
    return tuple(int(size) for size in sizes)


def tokens_of(text: str | None) -> float | None:
    """Return the tokens of a run, which may have a scale, None without them: 15T is 15e12, 300B is 300e9.

    Raises
    ------
    UsageError
        When it is none.
    """
    if text is None:
        return None
    match = _COUNT.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a number.", place="--tokens", remedy="Write 15T, 300B or 2e12.")
    return float(match[1]) * _SCALES[match[2]]


def clusters_of(
    on: Sequence[str] | None,
    gpus: str,
    nic: str | None,
    gpus_per_node: int | None,
    bridge: bool,
    host: tuple[str | None, str | None] = (None, None),
) -> list[Cluster]:
    """Return the clusters of the options: each machine with each number of GPUs.

    ``host`` are memory and bandwidth of a host.

    Raises
    ------
    UsageError
        Without a machine, and as `Cluster.of`.
    """
    from perfmodel.cluster.cluster import LARGEST, Cluster
    from perfmodel.hardware_catalog import hardware

    if not on:
        raise UsageError("no machine is named.", place="--on", remedy="Write --on h100 --gpus 64.")
    counts = sizes_of(gpus, "--gpus")
    for count in counts:
        if not 1 <= count <= LARGEST:
            raise UsageError(
                f"{count} is not a number of GPUs from 1 to 10^7.", place="--gpus", remedy="Write 8, 8/16/64 or 8..64."
            )
    return [
        Cluster.of(
            hardware(name),
            count,
            gpus_per_node=gpus_per_node,
            nic=nic,
            bridge=bridge,
            host_memory=host[0],
            host_bandwidth=host[1],
        )
        for name in on
        for count in counts
    ]


def ranges_of(texts: Mapping[str, str | None]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the options that were given.

    Raises
    ------
    UsageError
        When one is no whole number, or below 1; ``--zero`` starts at 0, and its ranges count one by one.
    """
    given = {name: text for name, text in texts.items() if text is not None}
    if (stages := _STAGES.fullmatch(given.get("zero", ""))) and stages[1] < stages[2]:  # nothing doubles from 0 on
        given["zero"] = "/".join(map(str, range(int(stages[1]), int(stages[2]) + 1)))
    ranges = {name: sizes_of(text, f"--{name.replace('_', '-')}") for name, text in given.items()}
    for name, sizes in ranges.items():
        if min(sizes) < (name != "zero"):
            raise UsageError(
                f"{name} = {min(sizes)} is below 1.",
                place=f"--{name.replace('_', '-')}",
                remedy="Write 8, 1/2/4 or 1..8.",
            )
    return ranges


def recomputes_of(text: str | None) -> tuple[str, ...]:
    """Return the ways of recomputing of a text: one, or a list with slashes."""
    from perfmodel.training.plan import Recompute

    parts = list_items(text, "/", place="--recompute") if text else ()
    return tuple(Recompute.parse(part, place="--recompute") for part in parts)


def offloads_of(text: str | None) -> tuple[str, ...]:
    """Return what lives on the host by a text: parts joined by commas, or a list of such sets with slashes.

    Raises
    ------
    UsageError
        For a part that is none, and for no part.
    """
    from perfmodel.training.choices import parse_offload

    if text is not None and not text.strip():
        remedy = "Write none, or optimizer, parameters or activations, several with commas."
        raise UsageError(f"{text!r} names nothing that lives on the host.", place="--offload", remedy=remedy)

    sets = list_items(text, "/", place="--offload") if text else ()
    return tuple(parse_offload(one, "--offload") for one in sets)


def check_host(offloads: Sequence[str], host: tuple[str | None, str | None]) -> None:
    """Raise for a host's memory or bandwidth where nothing lives on a host.

    Raises
    ------
    UsageError
        For the first of them.
    """
    if any(parts != "none" for parts in offloads):
        return
    for name, text in zip(("--host-memory", "--host-bandwidth"), host, strict=True):
        if text is not None:
            raise UsageError(
                "nothing lives on the host.", place=name, remedy=f"Write --offload optimizer, or leave {name} out."
            )


def documents_of(text: str | None) -> tuple[int, ...]:
    """Return the lengths of documents of a text: "512", "100,300"; () for none.

    Raises
    ------
    UsageError
        When one is no whole number.
    """
    parts = list_items(text, ",", place="--documents") if text is not None else ()
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"{text!r} is no list of tokens.", place="--documents", remedy="Write 512, or 100,300,4000.")
    return tuple(map(int, parts))


def schedule_of(text: str) -> str:
    """Return the schedule of a text; "" for the usual one.

    Raises
    ------
    UsageError
        When there is no such schedule.
    """
    from perfmodel.training.plan import Schedule

    return Schedule.parse(text, place="--schedule") if text else ""


def stages_of(text: str | None) -> tuple[int, ...]:
    """Return the layers of the stages of a text: "16,16" or "16/16"; () for none.

    Raises
    ------
    UsageError
        When one is no whole number.
    """
    parts = list_items((text or "").replace("/", ","), ",", place="--stages")
    if text is not None and not all(part.isdigit() for part in parts):
        raise UsageError(f"{text!r} is no list of layers.", place="--stages", remedy="Write 17,15.")
    return () if text is None else tuple(map(int, parts))


def default_sizes(config: ModelConfig, cluster: Cluster, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a plan: those given, and for the rest what is usual.

    seq: the model's positions, at most 8192; batch: one micro batch for each data parallel rank, and 8 for each stage
    where there is a pipeline; zero: as `TrainingPlan` has it.
    """
    filled = dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "micro_batch"), 1) | dict(sizes)
    if "seq" not in filled:
        filled["seq"] = min(config.positions or _LONGEST, _LONGEST)
    if "batch" not in filled:
        ranks = max(1, cluster.gpus // math.prod(filled[name] for name in ("tp", "cp", "pp")))
        filled["batch"] = ranks * filled["micro_batch"] * (8 * filled["pp"] if filled["pp"] > 1 else 1)
    return filled


def plan_of(sizes: Mapping[str, int], fixed: Mapping[str, Any]) -> TrainingPlan:
    """Return a plan of its sizes and what else is fixed.

    Raises
    ------
    UsageError
        As `TrainingPlan`.
    """
    from perfmodel.training.plan import TrainingPlan

    return TrainingPlan(**{**fixed, **sizes})


def virtual_stages(
    config: ModelConfig, gpus: int, schedule: str, ranges: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the virtual stages of a GPU that a search tries under a schedule; () for all that may be useful.

    ``gpus`` are those of the largest cluster, ``ranges`` the sizes that were given.

    Raises
    ------
    UsageError
        When none of those given suits the schedule.
    """
    from perfmodel.training.plan import Schedule
    from perfmodel.training.space import pipeline_sizes, virtual_sizes

    given = ranges.get("vp")
    if not schedule:
        return given or ()
    several = schedule_of(schedule) == Schedule.INTERLEAVED
    usual = virtual_sizes(config, ranges.get("pp") or pipeline_sizes(config, gpus)) if several else [1]
    stages = tuple(size for size in given or usual if (size > 1) == several)
    if not stages:
        need = "several stages a GPU" if several else "one stage a GPU"
        raise UsageError(
            f"schedule {schedule} has {need}.", place="--vp", remedy="Change --vp, or leave one of them out."
        )
    return stages
