"""Plans: what a file may say, and the message for each thing that it may not."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.investment.plan import Plan, parse_plan, read_plan
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import KINDS, Candidate
from perfmodel.profile.effort import EFFORT
from perfmodel.profile.profile import Profile, ProfileEntry

PROFILE = Profile(
    (
        ProfileEntry("kernel_a", 0.05),
        ProfileEntry("kernel_b", 0.03),
        ProfileEntry("gemm<int, float>[0]", 0.02),
        ProfileEntry("gemm<int, float>[1]", 0.01),
    )
)
NAMES = [entry.name for entry in PROFILE.entries]


def item(**changes):
    return {"name": "a", "targets": ["kernel_a"], "speedup": 2.0, **changes}


def parse(*items, **top):
    return parse_plan({"candidates": list(items), **top}, place="plan.toml")


def test_every_key_is_read():
    plan = parse(
        item(name="first", dev_days=1, risk="low", claimed_total_time="380 ms"),
        {"name": "second", "targets": "kernel_*", "new_time": "12 ms", "after": ["first"]},
        item(name="third", excludes=["second"], kind="dtype"),
    )
    first, second, third = plan.candidates
    assert (first.speedup, first.dev_days, first.risk, first.claimed_total_time_s) == (2.0, 1.0, "low", 0.38)
    assert (second.targets, second.new_time_s, second.after) == (("kernel_*",), 0.012, ("first",))
    assert third.excludes == ("second",)
    assert (first.kind, first.keeps_operators, third.kind, third.keeps_operators) == ("", True, "dtype", False)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "has no candidate"),
        ([item(speedup=None)], "speedup is not a number"),
        ([{"name": "a", "targets": ["kernel_a"]}], "neither speedup nor new_time"),
        ([item(new_time="1 ms")], "both speedup and new_time"),
        ([item(speedup=0)], "speedup is 0"),
        ([item(speedup=-2)], "speedup is -2"),
        ([item(speedup=math.nan)], "speedup is nan"),
        ([item(speedup=10**400)], "speedup is inf. It has to be above 0 and finite"),
        ([item(speedup=True)], "speedup is not a number"),
        ([item(dev_days=0)], "dev_days is 0"),
        ([item(dev_days="two")], "dev_days is not a number"),
        ([item(risk="hihg")], "Did you mean 'high'"),
        ([item(kind="algoritm")], "Did you mean 'algorithm'"),
        ([item(speedups=2)], "Did you mean 'speedup'"),
        ([item(targets=[])], "has no targets"),
        ([item(targets=[1])], "not a list of texts"),
        ([{"targets": ["kernel_a"], "speedup": 2}], "has no name"),
        ([item(name=" ")], "no name"),
        ([{"name": "a", "speedup": 2}], "has no targets"),
        (["a"], "is not a table"),
        ([item(), item()], "is used twice"),
        ([item(after=["b"])], "no candidate"),
        ([item(name="fuse"), item(excludes=["fuze"])], "Did you mean 'fuse'"),
        ([item(excludes=["a"])], "excludes itself"),
        ([item(after=["a"])], "'a' after 'a'"),
        ([item(after=["b"]), item(name="b", after=["c"]), item(name="c", after=["a"])], "'a' after 'b' after 'c'"),
        ([item(after=["b"], excludes=["b"]), item(name="b")], "excludes it"),
        ([item(after=["b"]), item(name="b", excludes=["a"])], "excludes it"),
        ([item(claimed_total_time="0 ms")], "claimed_total_time is 0"),
        ([item(instead_of="unfused")], "has instead_of and no algorithm"),
        ([item(operator={"op": "sort", "cols": 4096})], "has operator and no algorithm"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(items, message):
    with pytest.raises(InputFileError, match=message) as caught:
        parse(*items)
    assert str(caught.value).startswith("plan.toml")


@pytest.mark.parametrize("time", [12, "12", "12 GB", "soon", "-1 ms", "nan ms"])
def test_a_new_time_needs_a_unit_of_time(time):
    with pytest.raises(InputFileError, match="new_time"):
        parse({"name": "a", "targets": ["kernel_a"], "new_time": time})


@pytest.mark.parametrize("document", [{}, [], "text", {"candidates": 3}, {"candidates": {"name": "a"}}])
def test_a_document_without_candidates_is_an_error(document):
    with pytest.raises(InputFileError, match="no list of candidates"):
        parse_plan(document, place="plan.toml")


def test_an_unknown_key_beside_the_candidates_is_an_error():
    with pytest.raises(InputFileError, match="unknown key 'candidate'"):
        parse(item(), candidate=[])


def test_a_candidate_made_in_python_is_wrong_usage():
    with pytest.raises(UsageError, match="candidate 'a': speedup is 0"):
        Candidate("a", ("kernel_a",), 0.0)
    with pytest.raises(UsageError, match="no candidate"):
        Plan(())


def test_a_long_chain_of_candidates_is_no_cycle():
    chain = [item(name=str(n), after=[str(n - 1)] if n else []) for n in range(3000)]
    assert len(parse(*chain).candidates) == 3000


def resolve(*targets):
    return Candidate("a", targets, 2.0).resolve(PROFILE, NAMES)


def test_patterns_match_in_the_profiles_order_and_each_entry_counts_once():
    assert resolve("kernel_b", "kernel_*") == ("kernel_a", "kernel_b")
    assert resolve("gemm*") == ("gemm<int, float>[0]", "gemm<int, float>[1]")


def test_an_exact_name_is_no_pattern():
    assert resolve("gemm<int, float>[0]") == ("gemm<int, float>[0]",)


def test_an_unknown_target_names_the_nearest_entry():
    with pytest.raises(UsageError, match="Did you mean 'kernel_a'"):
        resolve("kernl_a")


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(UsageError, match=r"pattern 'conv\*' matches no entry"):
        resolve("conv*")


def test_case_counts():
    with pytest.raises(UsageError):
        resolve("KERNEL_*")


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", '[[candidates]]\nname = "a"\ntargets = ["kernel_a"]\nspeedup = 2\n'),
        (".yaml", "candidates:\n  - name: a\n    targets: [kernel_a]\n    speedup: 2\n"),
        (".json", '{"candidates": [{"name": "a", "targets": ["kernel_a"], "speedup": 2}]}'),
    ],
)
def test_all_formats_hold_the_same_plan(tmp_path, suffix, text):
    path = tmp_path / f"plan{suffix}"
    path.write_text(text)
    assert read_plan(path).candidates == (Candidate("a", ("kernel_a",), 2.0),)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["a", "b", "kernel_a", "kernel_*", "[", "12 ms", "0 ms", "low", ""]),
    st.lists(st.sampled_from(["a", "b", "kernel_a", "*", "gemm*"]), max_size=3),
)
good = {"name": st.sampled_from(["a", "b", "c"]), "targets": st.just(["kernel_a"]), "speedup": st.floats(0.001, 1e6)}
keys = st.sampled_from(["name", "targets", "speedup", "new_time", "dev_days", "risk", "after", "excludes", "kind", "x"])
drawn = st.builds(lambda base, changes: {**base, **changes}, st.fixed_dictionaries(good), st.dictionaries(keys, values))


@given(st.lists(drawn, max_size=4))
def test_no_document_gives_anything_but_a_plan_or_a_message(items):
    with contextlib.suppress(PerfModelError):
        ranking = rank_candidates(PROFILE, parse(*items))
        assert sorted(row.rank for row in ranking.rows) == list(range(1, len(items) + 1))
        ranking.report().as_json()


def test_the_kinds_that_diagnose_advises_are_known():
    assert set(EFFORT) <= set(KINDS)
