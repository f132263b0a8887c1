"""The figures of drawn operators: those of the time that they were measured stay, compositions stand beside them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def blind_draws(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("blind_draws")


@pytest.mark.waiting
def test_what_was_predicted_before_a_look_at_the_rows_stays(blind_draws):
    # as docs/accuracy.md has published them
    found = [(draw.then.rows, *draw.then.cells()) for draw in blind_draws.draws()]
    assert found == [
        (240, "15.0 %", "78.3 %", "1.51"),
        (524, "21.5 %", "72.9 %", "1.80"),
        (531, "15.7 %", "88.5 %", "1.95"),
    ]


@pytest.mark.waiting
def test_compositions_are_the_other_rows_with_a_time(blind_draws):
    draws, compositions = blind_draws.draws(), blind_draws.compositions()
    assert [draw.name for draw in draws] == [draw.name for draw in compositions]
    assert [(draw.then.rows, draw.now.rows) for draw in compositions] == [(6, 6), (25, 25), (22, 22)]
