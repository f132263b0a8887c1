"""Candidates: targets by name and pattern, kinds of change, efforts."""

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.profile.candidate import KINDS, Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile, ProfileEntry

PROFILE = Profile(tuple(ProfileEntry(name, 1.0) for name in ("gemm", "gemm[1]", "copy*", "copy_a")))


def targets(*names):
    return Candidate("c", names, 2.0).resolve(PROFILE, {entry.name for entry in PROFILE.entries})


def test_a_pattern_matches_several_entries_in_the_profile_s_order():
    assert targets("copy_?", "gem*") == ("gemm", "gemm[1]", "copy_a")


def test_an_exact_name_matches_only_itself_even_with_marks_of_a_pattern():
    assert targets("copy*") == ("copy*",)
    assert targets("gemm[1]") == ("gemm[1]",)


def test_a_target_that_matches_nothing_names_the_nearest_entry():
    with pytest.raises(UsageError, match=r"target 'gem' matches no entry of the profile\. Did you mean 'gemm'"):
        targets("gem")
    with pytest.raises(UsageError, match=r"pattern 'x\*' matches no entry"):
        targets("x*")


def test_errors_of_candidates_from_a_file_are_errors_of_the_file():
    for place, kind in (("", UsageError), ("plan.toml: candidate 1", InputFileError)):
        with pytest.raises(kind, match="has both speedup and new_time"):
            Candidate("c", ("gemm",), 2.0, new_time_s=1.0, place=place)


def test_only_three_kinds_of_change_leave_the_operators_as_they_are():
    assert {kind for kind, keeps in KINDS.items() if keeps} == {"tune-kernel", "occupancy", "pin-memory"}
    assert Candidate("c", ("gemm",), 2.0).keeps_operators
    assert not Candidate("c", ("gemm",), 2.0, kind="fuse").keeps_operators


def test_efforts_by_kind_of_change():
    """A switch takes up to a day, a change of the training loop two to three, a hand-written kernel a week."""
    days = {kind: effort.dev_days for kind, effort in EFFORT.items()}
    assert {kind for kind in days if days[kind] == 0.5} == {"pin-memory", "input-pipeline"}
    a_day = {"dtype", "attention", "pad", "batch-syncs", "overlap-copies"}
    assert {kind for kind in days if days[kind] == 1.0} == a_day
    assert {kind for kind in days if days[kind] == 2.0} == {"cuda-graph", "fuse", "host-work"}
    assert {kind for kind in days if days[kind] == 3.0} == {"overlap-communication", "coalesce", "occupancy"}
    assert EFFORT["tune-kernel"] == Effort(5.0, "high")
    low = {"pin-memory", "input-pipeline", "attention", "pad", "batch-syncs", "overlap-copies"}
    assert {kind for kind, effort in EFFORT.items() if effort.risk == "low"} == low
    assert set(EFFORT) <= set(KINDS)
