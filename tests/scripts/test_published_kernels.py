"""Kernels that others published: nothing is fitted on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import perfmodel as pm

SCRIPTS = Path(pm.__file__).parents[1] / "scripts"


def test_published_kernels_are_judged_and_those_of_equal_numbers_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import published_kernels

    *_, alike, others = published_kernels.lines(published_kernels.judged())
    *_, second = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES["second"]))
    *_, fifth = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES["fifth"]))
    *_, sixth = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES["sixth"]))
    *_, seventh = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES["seventh"]))
    *_, eighth = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES["eighth"]))
    *_, crossing = published_kernels.crossing()
    for name in ("published_kernels", "beside"):
        sys.modules.pop(name, None)
    assert [alike[4], others[4]] == ["76", "185"]
    error, inside = (float(others[place].removesuffix(" %")) for place in (5, 7))
    assert error < 30.0
    assert inside > 65.0
    assert second[:4] == ["all", "all", "71", "922"]
    error, inside, width = (float(second[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 30.0
    assert inside > 75.0
    assert width < 2.5
    assert fifth[:2] == ["all", "all"]
    assert fifth[3] == "284"
    error, inside, width = (float(fifth[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 40.0
    assert inside > 75.0
    assert width < 2.5
    assert sixth[:4] == ["all", "all", "81", "529"]
    error, inside, width = (float(sixth[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 35.0
    assert inside > 75.0
    assert width < 3.5
    assert seventh[:4] == ["all", "all", "102", "471"]
    error, inside, width = (float(seventh[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 25.0
    assert inside > 80.0
    assert width < 2.6
    assert eighth[:4] == ["all", "all", "86", "465"]
    error, inside, width = (float(eighth[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 30.0
    assert inside > 75.0
    assert width < 3.0
    assert crossing[:4] == ["all", "all", "all", "194"]
    error, inside, width = (float(crossing[place].removesuffix(" %")) for place in (4, 6, 7))
    assert error < 40.0
    assert inside > 70.0
    assert width < 5.0
