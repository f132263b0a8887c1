"""Resuming a record: finished rows stay, the same run continues, another one is refused."""

from __future__ import annotations

import json

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.measure.benchmark.resume import read_earlier

CONTEXT = {
    "perfmodel": "1",
    "hardware": ["simple"],
    "date": "today",
    "device": {"kind": "cpu", "name": "a CPU", "threads": 2},
    "settings": {"cache": "cold", "timing": "kernel", "seed": 0},
    "spec": {"name": "simple"},
}


@pytest.fixture
def rows(jobs, make_row):
    return [make_row(job) for job in jobs]


@pytest.fixture
def earlier(tmp_path):
    def make(rows, version=2, **context):
        path = tmp_path / "record.json"
        document = {"schema_version": version, "command": "bench", "context": {**CONTEXT, **context}, "rows": rows}
        path.write_text(json.dumps(document))
        return read_earlier(path)

    return make


def test_finished_rows_are_not_measured_again(jobs, rows, earlier):
    assert earlier(rows[:2]).remaining(jobs) == jobs[2:]
    assert earlier(rows).remaining(jobs) == []
    assert earlier([rows[3]]).remaining(jobs) == [*jobs[:3], jobs[4]]


def test_rows_are_kept_as_they_are(rows, earlier):
    added = [{**row, "of_tomorrow": 1} for row in rows]
    assert earlier(added).rows == json.loads(json.dumps(added))


def test_rows_of_another_run_are_refused(jobs, rows, earlier):
    with pytest.raises(UsageError, match="2 rows that this run would not measure"):
        earlier(rows).remaining(jobs[:3])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": {**CONTEXT["settings"], "cache": "warm"}}, "cache warm then, cold now"),
        ({"settings": {**CONTEXT["settings"], "seed": 1}}, "seed 1 then, 0 now"),
        ({"settings": {**CONTEXT["settings"], "sustain_s": 0.1 * 0.1}}, "sustain_s 0.01 then, unknown now"),
        ({"device": {"kind": "cpu", "name": "a CPU", "threads": 1}}, "threads 1 then, 2 now"),
        ({"libraries": {"vllm": "0.24.0"}}, "vllm 0.24.0 then, unknown now"),
        ({"device": {"kind": "cuda", "name": "a GPU"}}, "kind cuda then, cpu now"),
        ({"device": {**CONTEXT["device"], "driver": "570"}}, "driver 570 then, unknown now"),
        ({"hardware": ["other", "more"]}, "hardware other, more then, simple now"),
        ({"perfmodel": "0"}, "perfmodel 0 then, 1 now"),
    ],
)
def test_another_device_or_setting_is_refused(rows, earlier, changed, said):
    with pytest.raises(UsageError) as refused:
        earlier(rows, **changed).check_same(CONTEXT)
    assert said in str(refused.value)
    assert "another file to -o" in str(refused.value)


def test_the_rounding_of_a_setting_is_no_other_setting(rows, earlier):
    earlier(rows, settings={**CONTEXT["settings"], "min_time_s": 0.1 * 0.1}).check_same(
        {**CONTEXT, "settings": {**CONTEXT["settings"], "min_time_s": 0.01}}
    )


def test_a_record_of_version_1_continues_in_the_words_of_version_2(rows, earlier):
    old = {"cache": "flushed", "timing": "event", "seed": 0}
    run = earlier(rows, version=1, settings=old)
    run.check_same(CONTEXT)
    assert run.context["settings"] == CONTEXT["settings"]


def test_the_same_run_continues_and_the_record_has_the_date(rows, earlier):
    run = earlier(rows, date="yesterday")
    run.check_same({**CONTEXT, "date": "today", "commit": "later"})
    assert run.continued({"date": "today"}) == {**CONTEXT, "date": "yesterday", "resumed": ["today"]}
    assert earlier(rows, resumed=["monday"]).continued({"date": "today"})["resumed"] == ["monday", "today"]
    assert run.spec == {"name": "simple"}


def test_no_file_yet_is_a_run_from_the_start(tmp_path):
    assert read_earlier(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema_version": 2, "command": "bench", "rows": 3}', "is not a record"),
        ('{"schema_version": 2, "command": "analyze", "rows": [], "context": {}}', "one of bench is needed"),
        ('{"schema_version": 2, "command": "bench", "rows": [', "record.json"),
        ("", "empty"),
    ],
)
def test_a_file_that_is_not_a_record_is_refused(tmp_path, text, words):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputFileError) as refused:
        read_earlier(path)
    assert words in str(refused.value)


@pytest.mark.parametrize("key", ["name", "count", "status"])
def test_a_row_that_cannot_be_recognised_is_refused(rows, earlier, key):
    with pytest.raises(InputFileError, match="row 2: lacks the name, count or status"):
        earlier([rows[0], {**rows[1], key: None}])


@pytest.mark.parametrize("spec", [None, {"title": "no name"}])
def test_a_record_without_its_machine_is_refused(rows, earlier, spec):
    with pytest.raises(InputFileError, match=r"context\.spec"):
        _ = earlier(rows, spec=spec).spec
