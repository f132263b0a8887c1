"""Which rows of two records are one measurement, and which differ in what may not differ."""

from __future__ import annotations

import pytest

from perfmodel.comparison.noise import Centre
from perfmodel.comparison.pairing import BenchRow, BenchRun, differing_facts, pair_rows
from perfmodel.errors import InputFileError, UsageError

CENTRE = Centre(1e-3, 0.001, 50.0, 51, "samples")


def row(op="gemm", status="ok", **identity):
    told = {"op": op, "name": op, "dtype": "fp16", "cache": "cold", "timing": "kernel", "device": "GPU"} | identity
    return BenchRow(told, CENTRE if status == "ok" else None, status, "why" if status != "ok" else "")


def run(*rows, **more):
    return BenchRun("record.json", rows, **more)


def names(rows):
    return [row.identity["op"] for row in rows]


def test_rows_are_paired_by_what_they_are_and_the_others_are_listed():
    found = pair_rows([run(row("a"), row("b"))], [run(row("c"), row("b"))])
    assert names(pair.before for pair in found.pairs) == ["b"]
    assert (names(found.only_before), names(found.only_after)) == (["a"], ["c"])


@pytest.mark.parametrize("key", ["dimensions", "kernel", "name"])
def test_another_shape_kernel_or_name_is_another_row(key):
    found = pair_rows([run(row(), row(**{key: "x"}))], [run(row(), row(**{key: "y"}))])
    assert len(found.pairs) == len(found.only_before) == len(found.only_after) == 1


@pytest.mark.parametrize("key", ["device", "dtype", "cache", "timing"])
def test_what_differs_in_a_setting_is_refused_unless_asked_for(key):
    sides = [run(row(**{key: "one"}))], [run(row(**{key: "two"}))]
    with pytest.raises(UsageError, match=f"{key}: one and two.*--across {key}"):
        pair_rows(*sides)
    assert len(pair_rows(*sides, (key,)).pairs) == 1


def test_everything_that_differs_is_said_at_once():
    with pytest.raises(UsageError, match=r"device: A and B; dtype: fp16 and fp8.*--across device --across dtype"):
        pair_rows([run(row(device="A"))], [run(row(device="B", dtype="fp8"))])


def test_a_dtype_that_only_one_side_has_besides_is_no_difference():
    found = pair_rows([run(row(), row(dtype="fp32"))], [run(row())])
    assert len(found.pairs) == len(found.only_before) == 1


def test_across_all_pairs_each_kernel_with_itself_on_another_device():
    kernels = ("torch.matmul", "naive")
    before, after = (run(*(row(device=device, kernel=kernel) for kernel in kernels)) for device in "AB")
    made = pair_rows([before], [after], ("device", "dtype", "cache", "timing", "kernel"))
    assert [pair.before.identity["kernel"] for pair in made.pairs] == list(kernels)
    assert [pair.after.identity["kernel"] for pair in made.pairs] == list(kernels)


def test_a_remedy_names_no_setting_that_may_differ_anyway():
    before, after = (run(row(device=device), free=frozenset({"timing"})) for device in "AB")
    with pytest.raises(UsageError, match=r"compare them anyway with --across device\."):
        pair_rows([before], [after])


def test_kernels_are_paired_across_where_there_is_one_on_each_side():
    assert len(pair_rows([run(row(kernel="a"))], [run(row(kernel="b"))], ("kernel",)).pairs) == 1
    with pytest.raises(InputFileError, match="the records have no row in common"):
        pair_rows([run(row(kernel="a"), row(kernel="c"))], [run(row(kernel="b"))], ("kernel",))


def test_a_timing_that_the_tool_chose_may_differ():
    free = frozenset({"timing"})
    sides = [run(row(timing="graph"), free=free)], [run(row(timing="kernel"), free=free)]
    assert len(pair_rows(*sides).pairs) == 1
    with pytest.raises(UsageError, match="--across timing"):
        pair_rows([run(row(timing="graph"), free=free)], [run(row(timing="kernel"))])


def test_rows_that_are_alike_are_repeats_within_a_record_and_over_records():
    (pair,) = pair_rows([run(row(), row()), run(row())], [run(row())]).pairs
    assert (len(pair.centres_before), len(pair.centres_after)) == (3, 1)


def test_a_row_that_has_no_time_any_more_is_lost_and_one_that_had_none_is_not():
    found = pair_rows([run(row("a"), row("b", "failed"))], [run(row("a", "wrong"), row("b"))])
    ((before, after),) = found.lost
    assert (before.label, after.status, found.pairs) == ("a fp16", "wrong", ())


def test_versions_that_differ_are_said_and_those_that_one_side_lacks_are_not():
    before = run(row(), facts={"torch": "2.12", "driver": "580", "CUDA": "13"})
    after = run(row(), facts={"torch": "2.13", "driver": "580"})
    assert differing_facts([before], [after]) == ["torch: 2.12 before, 2.13 after"]
