"""The machine that a profile was recorded on, and deployments in the place of profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.cli._options import only_machine
from perfmodel.cli._output import status
from perfmodel.errors import InputFileError, UsageError

if TYPE_CHECKING:
    from perfmodel.core.hardware import Hardware
    from perfmodel.investment.plan import Plan
    from perfmodel.investment.what_if import WhatIf
    from perfmodel.profile.effort import Effort
    from perfmodel.profile.profile import Profile


def profiled_machine(
    profile: Profile, on: Sequence[str] | None, *, option: str = "--on", assume: bool = False, needed: bool = False
) -> tuple[Hardware | None, str]:
    """Return the machine to compare with and the source of its name; report both on stderr.

    Raises
    ------
    UsageError
        When the named machine is another one than the profile's device, unless ``assume`` is set, or when it is
        ``needed`` and not known.
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.find import similar_machines, suggestion
    from perfmodel.hardware_catalog.match import match_device

    if named := only_machine(on, option):
        machine = hardware(named)
        if not assume:
            _check_device(profile, machine, option)
        return machine, option
    match = match_device(profile.device) if profile.device else None
    if match is None:
        advice = suggestion(profile.device) if profile.device else ""
        unknown = f"the catalog has no {profile.device!r}" if profile.device else "the profile names no device"
        unknown += f". {advice}" if advice else ""
        if needed:
            similar = similar_machines(profile.device) if profile.device else []
            name = similar[0] if len(similar) == 1 else "HW"
            raise UsageError(f"{unknown}.", place=option, remedy=f"Name the machine: {option} {name}.")
        status(f"{unknown}: pass {option} HW for bounds, predictions and fusion advice.")
        return None, ""
    status(f"comparing with {match.hardware.name}, the profile's device {profile.device!r} ({option} overrides).")
    return match.hardware, f"the profile's device, {profile.device!r}"


def check_names_machine(path: str, on: object, to: object = None) -> None:
    """Refuse options that name a machine beside a deployment, which names its own.

    Raises
    ------
    UsageError
        When there is one.
    """
    option = "--on" if on else "--to" if to else ""
    if option:
        raise UsageError(
            f"{path} describes a deployment, which names its machine.",
            place=option,
            remedy="Change hardware in the file.",
        )


def fleet_of(paths: Sequence[str], gpus: int | None, money: Sequence[float | None]) -> int | None:
    """Return the GPUs that money is counted on: those given, or those of the only file where it is a training plan.

    ``money`` are the other options about it; without any of them, and no GPUs, nothing is read and there are none.

    Raises
    ------
    UsageError
        When the GPUs given are no whole number of runs of the plan.
    """
    from perfmodel.training.case import gpus_of

    if gpus is None and all(value is None for value in money):
        return None
    own = gpus_of(paths[0]) if len(paths) == 1 else None
    if gpus is None or own is None:
        return own if gpus is None else gpus
    if gpus % own:
        raise UsageError(
            f"{gpus} GPUs are no whole number of runs of {paths[0]}, which has gpus = {own}.",
            place="--gpus",
            remedy=f"Leave it out, or give {own}, {2 * own}, ...",
        )
    if gpus != own:
        status(f"money is that of {gpus // own} runs of {paths[0]}, with {own} GPUs each.")
    return gpus


def deployment_and_plan(path: str, plan: str | None, effort: Mapping[str, Effort]) -> tuple[Profile, Plan, Hardware]:
    """Return the profile of a deployment file, its changes as candidates or a plan on its terms, and its machine.

    Raises
    ------
    InputFileError
        When a file is wrong.
    """
    from perfmodel.hardware_catalog import hardware
    from perfmodel.investment.plan import read_plan
    from perfmodel.serving.case import read_case
    from perfmodel.serving.changes import read_changes, usual_changes
    from perfmodel.serving.investments import plan_of, profile_of
    from perfmodel.training.case import is_training_file

    if is_training_file(path):
        return _training_and_plan(path, plan)
    case, items = read_case(path, hardware)
    changes = read_changes(items, str(path)) if items else usual_changes(case)
    planned = read_plan(plan) if plan else plan_of(case, changes, effort)
    return profile_of(case), planned, case.deployment.hardware


def _training_and_plan(path: str, plan: str | None) -> tuple[Profile, Plan, Hardware]:
    """Return the profile of a training plan, its changes as candidates or a plan on its terms, and its machine."""
    from perfmodel.hardware_catalog import hardware
    from perfmodel.investment.plan import read_plan
    from perfmodel.training.case import read_training_case
    from perfmodel.training.changes import candidates_of, profile_of_plan, read_plan_changes, usual_plan_changes

    case, items = read_training_case(path, hardware)
    changes = read_plan_changes(items, str(path)) if items else usual_plan_changes(case)
    planned = read_plan(plan) if plan else candidates_of(case, changes)
    return profile_of_plan(case), planned, case.cluster.hardware


def deployment_path(path: str, scenario: str) -> WhatIf:
    """Return what the steps of a scenario file make of a deployment file.

    Raises
    ------
    InputFileError
        When a file is wrong.
    """
    from perfmodel.files import read_document
    from perfmodel.hardware_catalog import hardware
    from perfmodel.serving.case import read_case
    from perfmodel.serving.changes import read_changes
    from perfmodel.serving.investments import path_of
    from perfmodel.training.case import is_training_file, read_training_case
    from perfmodel.training.changes import path_of_plan, read_plan_changes

    document = read_document(scenario)
    items = document.get("steps") if isinstance(document, dict) else None
    if not isinstance(items, list) or not items:
        raise InputFileError(
            "has no list of steps.", place=str(scenario), remedy="Write one [[steps]] table per step."
        )  # fmt: skip
    if is_training_file(path):
        return path_of_plan(read_training_case(path, hardware)[0], read_plan_changes(items, str(scenario)))
    return path_of(read_case(path, hardware)[0], read_changes(items, str(scenario)))


def _check_device(profile: Profile, machine: Hardware, option: str) -> None:
    """Refuse a machine whose chip or memory is another one than that of the profile's device."""
    from perfmodel.hardware_catalog.match import match_device

    match = match_device(profile.device) if profile.device else None
    if match is None or match.hardware.name == machine.name:
        return
    recorded = match.hardware
    pairs = (
        (recorded.architecture, machine.architecture),
        (recorded.sm_count, machine.sm_count),
        (recorded.main_memory.bandwidth_bytes_per_s, machine.main_memory.bandwidth_bytes_per_s),
    )
    if any(first and second and first != second for first, second in pairs):
        raise UsageError(
            f"{machine.name} is another machine than the profile's device {profile.device!r} ({recorded.name}).",
            place=option,
            remedy=f"Leave out {option}, or add --assume to compare with {machine.name} anyway; `perfmodel project` "
            "projects a profile to another machine.",
        )
