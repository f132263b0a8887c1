"""Scenarios worked by hand on small profiles."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path as File

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.limits import limit
from perfmodel.diagnosis.profiled import profiled_time
from perfmodel.diagnosis.projection.project import project
from perfmodel.errors import InputFileError, UsageError
from perfmodel.formats import read_profile
from perfmodel.hardware_catalog import hardware
from perfmodel.investment.move import Trace
from perfmodel.investment.scenario import parse_scenario, read_scenario
from perfmodel.investment.wall import wall_time
from perfmodel.investment.what_if import what_if
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.memcpy import Memcpy
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import Profile, ProfileEntry

TRACE = "traces/tracelens_h100_qwen1.5-0.5b_prefill.json.gz"
EXAMPLES = File(__file__).parents[2] / "examples"
A100 = hardware("a100-sxm4-40gb")
ABC = Profile((ProfileEntry("a", 50e-3), ProfileEntry("b", 30e-3), ProfileEntry("c", 20e-3)))


def _scenario(*steps, **more):
    return parse_scenario({"steps": list(steps), **more})


def _step(kind, targets=("a",), name="step", **more):
    return {"name": name, "kind": kind, "targets": list(targets), **more}


def test_the_gpt2_scenario_of_the_examples():
    # reference case 8: 120 of 500 ms made 3x faster are 420 ms, 1.190x; 380 ms needs another 40 ms
    made = what_if(
        read_profile(EXAMPLES / "profile_gpt2.csv"), read_scenario(EXAMPLES / "gpt2_scenario.toml"), A100
    ).steps
    assert [step.total_time_s for step in made] == pytest.approx([0.42, 0.38, 0.42, 0.84])
    assert made[0].speedup == pytest.approx(500 / 420)
    assert "420 ms, not 380 ms" in made[0].flags[0]
    assert [bool(step.flags) for step in made] == [True, False, False, False]
    # attention alone: at most 500 / 380
    assert made[0].max_overall_speedup == pytest.approx(500 / 380)
    # 8 sequences in 420 ms; twice as many in twice the time are no more a second
    assert made[0].throughput_per_s == pytest.approx(8 / 0.42)
    assert made[3].throughput_per_s == pytest.approx(made[2].throughput_per_s)
    assert made[3].speedup == pytest.approx(made[2].speedup)
    assert [step.step_speedup for step in made] == pytest.approx([500 / 420, 420 / 380, 380 / 420, 1.0])


def test_steps_act_on_what_is_left():
    made = what_if(ABC, _scenario(_step("scale", speedup=2, name="1"), _step("scale", speedup=5, name="2"))).steps
    # a: 50 -> 25 -> 5 ms
    assert [step.total_time_s for step in made] == pytest.approx([75e-3, 55e-3])
    assert made[1].step_speedup == pytest.approx(75 / 55)
    assert made[1].speedup == pytest.approx(100 / 55)
    # b is left as the longest: 30 of 55 ms; without it 25 ms
    assert made[1].bottleneck == "b"
    assert made[1].max_further_speedup == pytest.approx(55 / 25)


def test_removing_and_recomputing():
    made = what_if(ABC, _scenario(_step("remove", name="1"), _step("checkpoint", ["b"], name="2", share=0.5))).steps
    assert [step.total_time_s for step in made] == pytest.approx([50e-3, 65e-3])
    assert made[1].time_saved_s == pytest.approx(-15e-3)


def test_a_batch_without_operators_takes_its_time_but_for_what_is_fixed():
    # everything but c doubles: 100 + 60 + 20 = 180 ms for twice the items: 90 ms for those of before
    scenario = _scenario({"name": "2x", "kind": "batch", "factor": 2, "fixed": ["c"]}, items=10)
    (step,) = what_if(ABC, scenario).steps
    assert step.total_time_s == pytest.approx(180e-3)
    assert step.speedup == pytest.approx(100 / 90)
    assert step.throughput_per_s == pytest.approx(20 / 0.18)


def test_a_dtype_changes_the_time_by_the_ratio_of_predictions():
    op = Gemm(m=4096, n=4096, k=4096, dtype="fp32")
    profile = Profile((ProfileEntry("linear", 80e-3, calls=10, op=op), ProfileEntry("rest", 20e-3)))
    (step,) = what_if(profile, _scenario(_step("dtype", ["linear"], dtype="bf16")), A100).steps
    times = [predict(one, A100).predicted_time_s for one in (op, Gemm(m=4096, n=4096, k=4096, dtype="bf16"))]
    assert step.total_time_s == pytest.approx(80e-3 * times[1] / times[0] + 20e-3)
    assert step.step_speedup > 2  # from 19.5 to 312 TFLOP/s


def test_a_larger_batch_leaves_the_gaps_of_launching_and_waiting_and_copies_more():
    # 8 ms of launch gaps and 2 ms of waits stay; 10 ms without a known work double; copying twice the bytes takes 2x,
    # but for the latency of a copy: 40 ms in all become 10 + 20 + nearly 40
    copied = ProfileEntry("input", 20e-3, 1, "memcpy", op=Memcpy(bytes=10**8, direction="h2d"))
    gaps = (ProfileEntry("[launch gaps]", 8e-3), ProfileEntry("[sync: aten::item]", 2e-3), ProfileEntry("a", 10e-3))
    made = what_if(Profile((copied, *gaps)), _scenario({"name": "2x", "kind": "batch", "factor": 2}), A100)
    assert made.steps[0].total_time_s == pytest.approx(70e-3, rel=0.01)


def test_an_algorithm_and_a_batch_are_predicted_too():
    shape = {"batch": 4, "heads": 16, "seq_q": 2048, "head_dim": 64, "dtype": "fp16"}
    profile = Profile((ProfileEntry("attention", 10e-3, calls=1, op=Attention(**shape, algorithm="unfused")),))
    made = what_if(
        profile,
        _scenario(
            _step("algorithm", ["attention"], name="flash", algorithm="flash"),
            _step("batch", ["attention"], name="batch", factor=4),
        ),
        A100,
    ).steps
    assert made[0].step_speedup > 1
    # four times the batch takes up to four times as long, and fills the GPU no worse
    assert 3 < made[1].total_time_s / made[0].total_time_s <= 4.001


def test_fusing_makes_one_entry():
    ops = [Elementwise(numel=2**24, kind=kind) for kind in ("add", "relu")]
    profile = Profile(tuple(ProfileEntry(op.kind, 1e-3 * n, op=op, calls=1) for op, n in zip(ops, (3, 2), strict=True)))
    # 5 accesses become 3: 5 ms become 3
    (step,) = what_if(profile, _scenario(_step("fuse", ["add", "relu"], name="fused")), A100).steps
    assert step.total_time_s == pytest.approx(3e-3)
    assert step.bottleneck == "fused"


def test_a_speedup_beyond_the_limit_is_flagged():
    op = Elementwise(numel=2**28, kind="copy")  # 2 GiB at 1555 GB/s: 1.38 ms at least
    profile = Profile((ProfileEntry("copy", 2e-3, calls=1, op=op),))
    fast, fair = (
        what_if(profile, _scenario(_step("scale", ["copy"], speedup=s)), A100).steps[0].flags for s in (2.0, 1.2)
    )
    floor_s = limit(profile.entries[0], A100).floor_time_s
    assert fast[0].startswith("beyond the limit of a100-sxm4-40gb: ")
    assert fast[0].endswith(f"for these operators, at most {2e-3 / floor_s:.2f}x")
    assert fair == ()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.2, 20)), min_size=1, max_size=6))
def test_scaling_is_the_product_entry_by_entry(drawn):
    steps = [_step("scale", [name], name=str(n), speedup=s) for n, (name, s) in enumerate(drawn)]
    made = what_if(ABC, _scenario(*steps)).steps
    left = {entry.name: entry.time_s for entry in ABC.entries}
    for name, s in drawn:
        left[name] /= s
    assert made[-1].total_time_s == pytest.approx(sum(left.values()))
    assert made[-1].speedup == pytest.approx(0.1 / sum(left.values()))
    # the scenario's own ceiling holds for every step
    assert all(step.speedup <= step.max_overall_speedup * (1 + 1e-9) for step in made)


@pytest.mark.parametrize(("claimed", "flags"), [("75 ms", 0), ("60 ms", 1), ("45 ms", 2)])
def test_a_claim_may_miss_the_profile_and_save_more_than_there_is(claimed, flags):
    """Of 100 ms the targets take 50, and 25 made twice as fast: 75 are left; 60 contradict it, 45 beyond all saving."""
    step = _step("scale", speedup=2, claimed_total_time=claimed)
    found = what_if(ABC, _scenario(step)).steps[0].flags
    assert len(found) == flags
    assert sum("its targets take 50 ms in total" in flag for flag in found) == (flags == 2)


def test_a_new_time_of_what_takes_none_is_an_error():
    gone = _step("scale", name="gone", new_time="0 ms")
    again = what_if(ABC, _scenario(gone, _step("scale", name="again", new_time="0 ms"))).steps
    assert [step.total_time_s for step in again] == pytest.approx([0.05, 0.05])
    with pytest.raises(InputFileError, match="take no time"):
        what_if(ABC, _scenario(gone, _step("scale", name="back", new_time="10 ms")))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "has no list of steps"),
        ({"steps": []}, "has no step"),
        ({"steps": [3]}, "is not a table"),
        ({"steps": [{"kind": "scale"}]}, "has no name"),
        ({"steps": [_step("scal", speedup=2)]}, "Did you mean 'scale'"),
        ({"steps": [_step("scale")]}, "needs speedup or new_time"),
        ({"steps": [_step("scale", speedup=0)]}, "It has to be above 0"),
        ({"steps": [_step("scale", speedup=-3)]}, "It has to be above 0"),
        ({"steps": [_step("scale", speedup="3x")]}, "is not a number"),
        ({"steps": [_step("scale", new_time="12")]}, "without a unit"),
        ({"steps": [_step("scale", new_time="-12 ms")]}, "0 s or longer"),
        ({"steps": [_step("scale", [], speedup=2)]}, "has no targets"),
        ({"steps": [_step("scale", speedup=2, spedup=2)]}, "Did you mean 'speedup'"),
        ({"steps": [_step("checkpoint", share=2)]}, "up to 1"),
        ({"steps": [_step("remove"), _step("remove")]}, "is used twice"),
        ({"steps": [_step("remove", after=["other"])]}, "which is no step"),
        ({"steps": [_step("remove", after=["step"])]}, "a cycle"),
        ({"steps": [_step("remove", after=["x"]), _step("remove", name="x")]}, "is listed below it"),
        ({"steps": [_step("remove", after=["x"]), _step("remove", name="x", after=["step"])]}, "a cycle"),
        ({"steps": [_step("remove")], "items": 0}, "It has to be above 0"),
        ({"steps": [_step("remove")], "thing": 0}, "unknown key 'thing'"),
        ({"steps": [_step("algorithm", operator={"op": "gemm"})]}, r"no operator of its own.*\[\[operators\]\]"),
        ({"steps": [_step("fuse", new_time="12 ms")]}, "a 'fuse' step has no use for new_time. It takes speedup."),
        ({"steps": [_step("dtype", dtype="fp16", speedup=2)]}, "has no use for speedup. It takes dtype."),
        ({"steps": [_step("scale", speedup=2, fixed=["b"])]}, "has no use for fixed. It takes speedup, new_time."),
        ({"steps": [_step("remove", speedup=2)]}, "has no use for speedup. Remove it, or choose another kind."),
        ({"steps": [_step("remove")], "operators": [{"entry": "a"}]}, "needs entry and op"),
        ({"steps": [_step("remove")], "operators": [{"entry": "a", "op": "gemm", "m": 0, "n": 1, "k": 1}]}, "below 1"),
        ({"steps": [_step("remove")], "operators": [{"entry": "a", "op": "gem", "m": 1}]}, "Did you mean 'gemm'"),
        ({"steps": [_step("remove")], "operators": [{"entry": "a", "op": "gemm", "q": 1}]}, "q"),
    ],
)
def test_a_wrong_scenario_is_one_message(document, said):
    with pytest.raises(InputFileError, match=said):
        parse_scenario(document)


@pytest.mark.parametrize(
    ("step", "machine", "said"),
    [
        (_step("scale", ["z"], speedup=2), A100, "no entry of the profile"),
        (_step("dtype", dtype="bf16"), A100, "the operator of 'a' is not known"),
        (_step("fuse", ["a", "b"]), A100, "the operator of 'a' is not known"),
    ],
)
def test_a_scenario_that_does_not_fit_the_profile_is_one_message(step, machine, said):
    with pytest.raises(InputFileError, match=said):
        what_if(ABC, _scenario(step), machine)


def test_predictions_need_a_machine_and_operators_may_come_with_the_scenario():
    given_op = {"entry": "a", "op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "fp32", "calls": 5}
    scenario = _scenario(_step("dtype", dtype="tf32"), operators=[given_op])
    with pytest.raises(InputFileError, match="needs a machine"):
        what_if(ABC, scenario)
    assert what_if(ABC, scenario, A100).steps[0].step_speedup > 1.2


def test_a_profile_without_time_is_refused():
    with pytest.raises(UsageError, match="has no time"):
        what_if(Profile(()), _scenario(_step("remove")))


def test_the_overall_ceiling_is_that_of_what_no_step_touches():
    profile = Profile((ProfileEntry("a", 1.0), ProfileEntry("b", 1e-6)))
    first, second = what_if(
        profile, _scenario(_step("scale", ["a"], name="1", speedup=2), _step("scale", ["b"], name="2", speedup=2))
    ).steps
    assert first.max_overall_speedup == pytest.approx(1.000001e6)
    assert second.max_overall_speedup == math.inf


def test_a_batch_has_the_ceiling_of_what_the_steps_before_it_leave():
    """50 ms of b and c are 100 at twice the batch, where what a run of 100 ms does would take 200."""
    steps = (_step("scale", ["a"], name="1", speedup=2), _step("batch", ["*"], name="2", factor=2))
    first, second = what_if(ABC, _scenario(*steps)).steps
    assert (first.max_overall_speedup, second.max_overall_speedup) == (pytest.approx(2.0), pytest.approx(2.0))
    (alone,) = what_if(ABC, _scenario(_step("batch", ["*"], name="1", factor=2))).steps
    assert alone.max_overall_speedup == pytest.approx(alone.speedup) == pytest.approx(1.0)


def test_a_fused_step_may_not_take_the_name_of_another_entry():
    with pytest.raises(InputFileError, match="'c' is the name of another entry"):
        what_if(ABC, _scenario(_step("fuse", ["a", "b"], name="c", speedup=2)))


def test_an_operator_for_an_entry_that_is_not_there_is_one_message():
    operator = {"entry": "a*", "op": "gemm", "m": 8, "n": 8, "k": 8}
    with pytest.raises(InputFileError, match=r"'a\*' is no entry of the profile\. Did you mean 'a'"):
        what_if(ABC, _scenario(_step("remove"), operators=[operator]))


@pytest.mark.parametrize(("calls", "message"), [(0.5, "whole number"), (0, "above 0"), ("3", "not a number")])
def test_calls_of_an_operator_are_a_whole_number(calls, message):
    operator = {"entry": "a", "op": "gemm", "m": 8, "n": 8, "k": 8, "calls": calls}
    with pytest.raises(InputFileError, match=message):
        _scenario(_step("remove"), operators=[operator])


def test_the_report_marks_doubtful_steps():
    result = what_if(read_profile(EXAMPLES / "profile_gpt2.csv"), read_scenario(EXAMPLES / "gpt2_scenario.toml"), A100)
    report = result.report()
    assert report.title == "What if: 500 ms become 840 ms: 1.190x per item after 4 steps; 1 of them doubtful"
    (check,) = (column for column in report.columns if column.heading == "check")
    assert [check.cell(row) for row in report.rows] == ["doubtful", "ok", "ok", "ok"]
    assert report.notes[0] == "Step 1, fused attention, forward: claim contradicts the profile: 420 ms, not 380 ms."


def test_a_batch_never_falls_below_one_item():
    op = Gemm(m=3, n=512, k=512)
    profile = Profile((ProfileEntry("linear", 1e-3, calls=1, op=op),))
    (step,) = what_if(profile, _scenario({"name": "less", "kind": "batch", "factor": 0.01}), A100).steps
    one, three = (profiled_time(predict(Gemm(m=m, n=512, k=512), A100), A100) for m in (1, 3))
    assert step.total_time_s == pytest.approx(1e-3 * one / three)
    assert step.throughput_per_s is None


def test_a_note_says_when_speedups_are_per_item():
    """Twice the items in less than twice the time is a gain that the time of the run does not show."""
    said = "Speedups are in time per item, since the batch changes."
    assert said in what_if(ABC, _scenario({"name": "more", "kind": "batch", "factor": 2})).notes
    assert said not in what_if(ABC, _scenario(_step("scale", speedup=2))).notes


def test_moving_to_another_machine_scales_what_runs_on_the_gpu():
    gemm = Gemm(m=4096, n=4096, k=4096, dtype="fp16")
    h100 = hardware("h100-sxm5-80gb")
    time_s = profiled_time(predict(gemm, A100), A100)
    profile = Profile(
        (ProfileEntry("g", time_s, 1, "kernel", gemm), ProfileEntry("[launch gaps]", 1e-3, 1, "host")),
    )
    scenario = _scenario({"name": "move", "kind": "hardware", "hardware": "h100-sxm5-80gb"})
    step = what_if(profile, scenario, A100, find=hardware).steps[0]
    expected_s = profiled_time(predict(gemm, h100), h100)
    assert step.total_time_s == pytest.approx(expected_s + 1e-3)
    # the interval is that of the projected kernel beside the gap, which stays
    moved = project(Profile(profile.entries[:1]), A100, h100).whole
    assert (step.total_low_s, step.total_high_s) == pytest.approx((moved.low + 1e-3, moved.high + 1e-3))
    misspelt = _scenario({"name": "move", "kind": "hardware", "hardware": "h100-smx5-80gb"})
    with pytest.raises(InputFileError, match="Did you mean 'h100-sxm5-80gb'"):
        what_if(profile, misspelt, A100, find=hardware)
    with pytest.raises((UsageError, InputFileError), match="needs the machine"):
        what_if(profile, scenario, None, find=hardware)


def _move(to, **more):
    return {"name": f"to {to}", "kind": "hardware", "hardware": to, **more}


def test_moving_a_trace_is_its_projection(data_dir):
    """Launch gaps grow where kernels become shorter than their launches, as in `perfmodel project`."""
    profile = read_profile(data_dir / TRACE)
    h100, b200 = hardware("h100-sxm5-80gb"), hardware("b200")
    whole = project(profile, h100, b200).whole
    step = what_if(profile, _scenario(_move("b200")), h100, find=hardware).steps[0]
    found = (step.total_time_s, step.total_low_s, step.total_high_s)
    assert found == pytest.approx((whole.projected_time_s, whole.low, whole.high))
    assert step.time_before_s == pytest.approx(whole.time_s)
    assert step.time_after_s == pytest.approx(whole.projected_time_s)


def test_steps_before_a_move_are_replayed_and_steps_after_it_keep_its_interval(data_dir):
    profile = read_profile(data_dir / TRACE)
    h100 = hardware("h100-sxm5-80gb")
    kernels = [entry.name for entry in diagnose(profile, h100).wall.entries if not entry.name.startswith("[")]
    slower = _step("scale", ["aten::*"], name="slower", speedup=0.1)
    first, moved, faster = what_if(
        profile,
        _scenario(slower, _move("b200"), _step("scale", ["aten::*"], name="back", speedup=2)),
        h100,
        find=hardware,
    ).steps
    assert first.total_low_s is None
    # kernels of ten times the length hide every launch behind them, so that the gaps do not limit the run there
    alone = what_if(profile, _scenario(_move("b200")), h100, find=hardware).steps[0]
    assert moved.step_speedup > 1.2 * alone.step_speedup
    assert moved.time_after_s == pytest.approx(moved.total_time_s)
    assert set(kernels) <= set(moved.targets)
    assert faster.total_low_s / faster.total_time_s == pytest.approx(moved.total_low_s / moved.total_time_s)
    assert faster.total_high_s / faster.total_time_s == pytest.approx(moved.total_high_s / moved.total_time_s)


def test_a_move_starts_from_the_operators_and_times_that_steps_have_changed(data_dir):
    profile = read_profile(data_dir / TRACE)
    wall = wall_time(profile, hardware("h100-sxm5-80gb"))
    trace = Trace.of(profile, wall)
    product = next(entry for entry in wall.entries if isinstance(entry.op, Gemm))
    changed = replace(product, op=product.op.changed(dtype="fp8"), time_s=product.time_s / 2)
    entries = {entry.name: entry for entry in wall.entries} | {product.name: changed}
    before, after = ({entry.name: entry for entry in one.entries} for one in (profile, trace.changed(entries)))
    assert after[product.name].op == changed.op
    assert after[product.name].time_s == pytest.approx(before[product.name].time_s / 2)
    others = before.keys() - {product.name}
    assert len(others) > 3
    assert all(after[name].op == before[name].op for name in others)
    assert all(after[name].time_s == pytest.approx(before[name].time_s) for name in others)


def test_gaps_that_a_step_has_removed_do_not_come_back_with_a_move(data_dir):
    profile = read_profile(data_dir / TRACE)
    h100, b200 = hardware("h100-sxm5-80gb"), hardware("b200")
    graphs = _step("remove", ["[[]launch gaps]"], name="graphs")
    moved = what_if(profile, _scenario(graphs, _move("b200")), h100, find=hardware).steps[1]
    parts = {part.name: part.projected_time_s for part in project(profile, h100, b200).parts}
    assert moved.total_time_s == pytest.approx(sum(parts.values()) - parts["[launch gaps]"])


def test_entries_that_steps_fuse_or_add_move_along(data_dir):
    profile = read_profile(data_dir / TRACE)
    h100 = hardware("h100-sxm5-80gb")
    fused = _step("fuse", ["aten::mul*", "aten::add*"], name="fused", speedup=1.5)
    again = _step("checkpoint", ["aten::mm*"], name="again")
    steps = what_if(
        profile, _scenario(fused, again, _move("b200"), _move("h100", name="home")), h100, find=hardware
    ).steps
    assert {"fused", "recomputation (again)"} <= set(steps[2].targets)
    assert steps[2].time_after_s == pytest.approx(steps[2].total_time_s)
    assert all(step.total_low_s < step.total_time_s < step.total_high_s for step in steps[2:])
    # two moves are less sure than one
    assert steps[3].total_high_s / steps[3].total_time_s > steps[2].total_high_s / steps[2].total_time_s


def test_a_move_of_some_entries_leaves_the_others(data_dir):
    profile = read_profile(data_dir / TRACE)
    h100 = hardware("h100-sxm5-80gb")
    wall = {entry.name: entry.time_s for entry in diagnose(profile, h100).wall.entries}
    products = {name: time_s for name, time_s in wall.items() if name.startswith("aten::mm")}
    step = what_if(profile, _scenario(_move("b200", targets=["aten::mm*"])), h100, find=hardware).steps[0]
    assert set(step.targets) == set(products)
    assert step.time_after_s < 0.6 * step.time_before_s
    assert step.total_time_s >= sum(wall.values()) - (step.time_before_s - step.time_after_s) - 1e-9
