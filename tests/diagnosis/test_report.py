"""Reports of diagnoses: what people see, and what JSON keeps."""

from __future__ import annotations

import pytest

from perfmodel.core.report import report
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.render.table import render

WASTE = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 32.0,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1.0,
}


def kernels(*names):
    return diagnose(Profile(tuple(ProfileEntry(name, 2.0**-place, 3, "kernel") for place, name in enumerate(names))))


def cell(diagnosis, dimension, key="evidence"):
    table = report(diagnosis)
    column = next(column for column in table.columns if column.key == key)
    return column.cell(next(row for row in table.rows if row["dimension"] == dimension))


def test_people_see_the_two_largest_parts_and_json_all():
    found = kernels("gemm a", "gemm b", "gemm c")
    assert cell(found, "compute") == "gemm a 1 s, 3 times: limited by compute (from its name); gemm b 500 ms, 3 times"
    assert [item["what"] for item in report(found).rows[0]["evidence"]] == ["gemm a", "gemm b", "gemm c"]
    assert cell(found, "idle") == "unknown without a time line"


@pytest.mark.parametrize(("length", "shown"), [(44, "g" * 40 + "gemm"), (45, "g" * 41 + "...")])
def test_names_have_at_most_44_characters(length, shown):
    assert cell(kernels("g" * (length - 4) + "gemm"), "compute").startswith(f"{shown} 1 s")


@pytest.mark.parametrize(("gap_us", "shown"), [(5e-4, "0 s"), (5.0, "5 us")])
def test_what_time_stamps_leave_of_nothing_is_no_time(traced, gap_us, shown):
    """A millisecond of kernels, and a gap that is half a nanosecond or a real one."""
    gpu = [(0, 500, "gemm", "kernel", 0), (500 + gap_us, 1000 + gap_us, "gemm", "kernel", 1)]
    api = [(-9, -8, "cudaLaunchKernel", "launch"), (-7, -6, "cudaLaunchKernel", "launch")]
    entries = (ProfileEntry("gemm", 1e-3, 2, "kernel"),)
    found = diagnose(Profile(entries, timeline=traced((0, 1000 + gap_us), gpu=gpu, api=api)))
    assert cell(found, "launch", "time_s") == shown
    (part,) = (part for part in found.parts if part.dimension == "launch")
    assert part.time_s == pytest.approx(gap_us * 1e-6), "JSON keeps it"


def test_a_diagnosis_without_advice_has_no_candidates():
    assert "candidates" not in report(kernels("gemm")).more
    assert report(kernels("gemm")).rows[0]["candidate"] == ""


def test_the_best_candidate_stands_beside_its_dimension():
    entries = (ProfileEntry("relu", 1.0, 1, "kernel", metrics=WASTE), ProfileEntry("gemm", 1.0, 1, "kernel"))
    table = report(diagnose(Profile(entries)), context={"profile": "a.csv"})
    row = table.rows[1]
    assert (row["dimension"], row["candidate"], row["time_saved_s"]) == ("memory", "coalesce relu", 0.875)
    assert table.rows[0]["candidate"] == ""
    assert table.context == {"profile": "a.csv"}
    (candidate,) = table.more["candidates"].rows
    assert candidate["targets"] == ["relu"]
    assert candidate["new_time_s"] == pytest.approx(0.125)
    assert candidate["target_time_s"] == 1.0
    assert candidate["overall_speedup"] == pytest.approx(2 / 1.125)
    assert not any(key.endswith("_text") or key == "short_name" for key in {**row, **candidate})


def test_text_for_people_has_the_parts_and_what_to_do_below_the_table():
    text = render(report(diagnose(Profile((ProfileEntry("relu", 1.0, 1, "kernel", metrics=WASTE),)))))
    assert text.startswith("Where 1 s go (listed time, without a time line)\n")
    assert "\nlargest parts\n" in text
    assert "\nwhat to do\n1  let neighbouring threads access neighbouring elements;" in text
    assert "\nhow the saving was estimated\n1  0 sectors per request, where 4 suffice" in text
    assert max(map(len, text.splitlines())) <= 80
