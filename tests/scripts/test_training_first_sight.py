"""What runs of other laboratories were predicted as when they came: the record, and the interval that counts it."""

from __future__ import annotations

import csv
import importlib
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def first(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("training_first_sight")


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("training_elsewhere")


def test_each_recorded_prediction_is_of_one_published_run(first):
    with first.RUNS.open(newline="") as stream:
        names = [row["id"] for row in csv.DictReader(stream)]
    with first.RECORD.open(newline="") as stream:
        recorded = [row["id"] for row in csv.DictReader(stream)]
    assert len(set(recorded)) == len(recorded)
    assert set(recorded) <= set(names)
    assert all(sight.predicted_s > 0 for sight in first.at_first_sight().values())


def test_a_run_that_was_mended_still_counts_as_it_was_first_predicted(first, elsewhere, monkeypatch):
    """A run predicted at half its time then and at its time now is a factor of two off for the next laboratory."""
    run = next(run for run in first.read_run_table(first.RUNS).runs if run.text("table") == "prime_rl_bench")
    time_s = elsewhere.measured_time(run)
    sight = first.FirstSight(time_s / 2.0, described=False)
    monkeypatch.setattr(elsewhere, "at_first_sight", lambda: {run.text("id"): sight})
    today = elsewhere.RunOff(0.0, 0.1, 0.2)
    steps = [
        elsewhere.Judged(run.text("id"), elsewhere.ELSEWHERE, ("a", "b"), today),
        elsewhere.Judged("another", elsewhere.ELSEWHERE, ("c", "d"), today),
    ]
    then, other = elsewhere.first_sights(steps)
    assert then.run.off == pytest.approx(math.log(2.0))
    assert (then.run.down, then.run.up) == (today.down, today.up)
    assert then.kind == elsewhere.UNDESCRIBED
    assert other == steps[1]
    kinds = elsewhere.by_kind([then, other])
    assert kinds[elsewhere.UNDESCRIBED] == {("a", "b"): [then.run]}
    assert kinds[elsewhere.ELSEWHERE] == {("c", "d"): [today]}


def test_a_record_names_the_first_new_table(first, capsys):
    assert first.main(["no such table", "abc"]) == 2
    assert "name the first new table" in capsys.readouterr().err
