"""What a measured run says: where its time goes, what would save it, and what is worth doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.api.arguments import (
    check_candidates,
    check_economics,
    check_profile,
    check_scenario,
    operator_list,
)
from perfmodel.api.machines import Machine, find_machine, given, machine_or_none
from perfmodel.errors import suggesting

if TYPE_CHECKING:
    from perfmodel.diagnosis.fusion import Fusion
    from perfmodel.diagnosis.limits import Limit
    from perfmodel.diagnosis.projection.project import Projection
    from perfmodel.diagnosis.result import Diagnosis
    from perfmodel.investment.economics import Economics
    from perfmodel.investment.plan import Plan
    from perfmodel.investment.ranking import Ranking
    from perfmodel.investment.scenario import Scenario
    from perfmodel.investment.what_if import WhatIf
    from perfmodel.operators import Operator
    from perfmodel.profile.candidate import Candidate
    from perfmodel.profile.effort import Effort
    from perfmodel.profile.profile import Profile


@suggesting
def diagnose(
    profile: Profile, hardware: Machine | None = None, *, effort: Mapping[str, Effort] | None = None
) -> Diagnosis:
    """Return where the time of a run goes and what would save it; see `perfmodel.diagnosis.diagnose.diagnose`."""
    from perfmodel.diagnosis.diagnose import diagnose as diagnose_on

    check_profile(profile)
    return diagnose_on(profile, machine_or_none(hardware), **given(effort=effort))


@suggesting
def project(profile: Profile, source: Machine, target: Machine, *, host: float | None = None) -> Projection:
    """Return what a profile would take on another machine; see `perfmodel.diagnosis.projection.project.project`."""
    from perfmodel.diagnosis.projection.project import project as project_on

    check_profile(profile)
    return project_on(profile, find_machine(source), find_machine(target), host=host)


@suggesting
def profile_limits(profile: Profile, hardware: Machine | None = None) -> tuple[Limit, ...]:
    """Return what limits each entry of a profile; see `perfmodel.diagnosis.limits.profile_limits`."""
    from perfmodel.diagnosis.limits import profile_limits as limits_on

    check_profile(profile)
    return limits_on(profile, machine_or_none(hardware))


@suggesting
def fuse_operators(
    operators: Sequence[Operator],
    hardware: Machine,
    *,
    times_s: Sequence[float] = (),
    uses: int = 1,
    registers_per_thread: Sequence[float] = (),
) -> Fusion:
    """Return the saving of fusing consecutive operators; see `perfmodel.diagnosis.fusion.fuse_operators`."""
    from perfmodel.diagnosis.fusion import fuse_operators as fuse_on

    listed, machine = operator_list(operators), find_machine(hardware)
    return fuse_on(listed, machine, times_s=times_s, uses=uses, registers_per_thread=registers_per_thread)


@suggesting
def headroom(
    profile: Profile,
    *,
    local_speedup: float = 2.0,
    economics: Economics | None = None,
    hardware: Machine | None = None,
) -> Ranking:
    """Rank the entries of a profile by what they could be worth; see `perfmodel.investment.headroom.headroom`."""
    from perfmodel.investment.headroom import headroom as headroom_on

    check_profile(profile)
    check_economics(economics)
    machine = machine_or_none(hardware)
    return headroom_on(profile, local_speedup=local_speedup, economics=economics, hardware=machine)


@suggesting
def rank_candidates(
    profile: Profile,
    candidates: Plan | Sequence[Candidate],
    economics: Economics | None = None,
    *,
    hardware: Machine | None = None,
    cap: bool = True,
    by: str = "roi",
    days: float | None = None,
) -> Ranking:
    """Rank candidates by return on investment; see `perfmodel.investment.ranking.rank_candidates`."""
    from perfmodel.investment.ranking import rank_candidates as rank_on

    check_profile(profile)
    check_candidates(candidates)
    check_economics(economics)
    machine = machine_or_none(hardware)
    return rank_on(profile, candidates, economics, hardware=machine, cap=cap, by=by, days=days)


@suggesting
def what_if(profile: Profile, scenario: Scenario, hardware: Machine | None = None) -> WhatIf:
    """Return a run after each step of a scenario; see `perfmodel.investment.what_if.what_if`."""
    from perfmodel.investment.what_if import what_if as what_if_on

    check_profile(profile)
    check_scenario(scenario)
    return what_if_on(profile, scenario, machine_or_none(hardware), find=find_machine)
