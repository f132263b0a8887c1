"""What a measured run says: where its time goes, what would save it, and what is worth doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.api.arguments import (
    check_candidates,
    check_economics,
    check_number,
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
    """Return where the time of a run goes and what would save it; see `perfmodel.diagnosis.diagnose.diagnose`.

    Parameters
    ----------
    profile : any profile, as `read_profile` returns it.
    hardware : the machine that it was measured on, or its name. Without it limiters follow from names and kinds of
        events, and there is no advice that needs a prediction.
    effort : kind of change -> days of development and risk (`perfmodel.profile.effort`); None for usual ones.

    Raises
    ------
    UsageError
        When the machine's name is unknown, or an argument is of a wrong type.
    """
    from perfmodel.diagnosis.diagnose import diagnose as diagnose_on

    check_profile(profile)
    return diagnose_on(profile, machine_or_none(hardware), **given(effort=effort))


@suggesting
def project(profile: Profile, source: Machine, target: Machine, *, host: float | None = None) -> Projection:
    """Return what a profile would take on another machine; see `perfmodel.diagnosis.projection.project.project`.

    Parameters
    ----------
    profile : any profile; the time line of a trace is replayed, a table of times is added up.
    source, target : the machine that it was measured on, and the other one, or their names.
    host : time of the other machine's host over this one's; None: as fast, and as unsure as hosts differ.

    Raises
    ------
    UsageError
        For a factor that is not above 0, and a machine without the figures that the profile needs.
    """
    from perfmodel.diagnosis.projection.project import project as project_on

    check_profile(profile)
    check_number(host, "host", "Give the time of the other host over this one's, as 0.8.")
    return project_on(profile, find_machine(source), find_machine(target), host=host)


@suggesting
def profile_limits(profile: Profile, hardware: Machine | None = None) -> tuple[Limit, ...]:
    """Return what limits each entry of a profile, in their order; see `perfmodel.diagnosis.limits.profile_limits`.

    Parameters
    ----------
    profile : the measured profile.
    hardware : the machine that it was measured on, or its name; without it only kinds and names of entries tell.

    Raises
    ------
    UsageError
        When the machine's name is unknown, or an argument is of a wrong type.
    """
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
    """Return the saving of fusing consecutive operators; see `perfmodel.diagnosis.fusion.fuse_operators`.

    Parameters
    ----------
    operators : two or more in the order in which they run; the output of each is an input of the next.
    hardware : the machine, or its name.
    times_s : measured time of one call of each operator [s]; empty for predicted times.
    uses : operators that read each intermediate; 2 where a residual connection reads it again.
    registers_per_thread : of each kernel, where a profile records it.

    Raises
    ------
    UsageError
        When fewer than two operators are given, or an operator does not produce an input of the next.
    """
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
    """Rank the entries of a profile by what they could be worth; see `perfmodel.investment.headroom.headroom`.

    Parameters
    ----------
    profile : the measured profile; of one with a time line, the entries of its wall time.
    local_speedup : speedup of each entry where no machine is given.
    economics : fleet and prices for the yearly saving.
    hardware : the machine that the profile was measured on, or its name: each entry is taken down to its bound there.

    Raises
    ------
    UsageError
        If the profile has no time, or the speedup is not above 0.
    """
    from perfmodel.investment.headroom import headroom as headroom_on

    check_profile(profile)
    check_economics(economics)
    check_number(local_speedup, "local_speedup", "Give the old over the new time, as 2.")
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
    """Rank candidates by return on investment; see `perfmodel.investment.ranking.rank_candidates`.

    Parameters
    ----------
    profile : the measured profile.
    candidates : a plan, or candidates made in Python, such as those of a diagnosis.
    economics : fleet and prices for yearly saving, payback and net value.
    hardware : the machine that the profile was measured on, or its name, for the bounds.
    cap : False counts claims beyond the bound as claimed; they are still flagged.
    by : "roi" (gain per day), "payback" (calendar days, needs prices), or "time" (time saved).
    days : development days to spend: the set that makes the run fastest within them is chosen.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        If the profile has no time, a plan is wrong, a target names no entry, the ranking is unknown, or a ranking by
        payback has no prices.
    """
    from perfmodel.investment.ranking import rank_candidates as rank_on

    check_profile(profile)
    check_candidates(candidates)
    check_economics(economics)
    machine = machine_or_none(hardware)
    return rank_on(profile, candidates, economics, hardware=machine, cap=cap, by=by, days=days)


@suggesting
def what_if(profile: Profile, scenario: Scenario, hardware: Machine | None = None) -> WhatIf:
    """Return a run after each step of a scenario; see `perfmodel.investment.what_if.what_if`.

    Parameters
    ----------
    profile : the measured run.
    scenario : the steps, as `read_scenario` returns them.
    hardware : the machine that the run was measured on, or its name; without it only steps that state their speedup
        work.

    Raises
    ------
    UsageError, or InputFileError for a scenario from a file
        When a step is wrong, names no entry, or needs a machine and there is none.
    """
    from perfmodel.investment.what_if import what_if as what_if_on

    check_profile(profile)
    check_scenario(scenario)
    return what_if_on(profile, scenario, machine_or_none(hardware), find=find_machine)
