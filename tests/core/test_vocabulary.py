"""Closed sets of words: they are strings, read from text, and nothing else is accepted."""

from __future__ import annotations

import json

import pytest

from perfmodel.core.vocabulary import CacheState, Calibration, ErrorSource, EventKind, Limiter, Timing, Vocabulary
from perfmodel.errors import UsageError


@pytest.mark.parametrize("words", Vocabulary.__subclasses__())
def test_a_member_is_its_word_in_code_json_and_text(words: type[Vocabulary]) -> None:
    for member in words:
        assert words.parse(str(member)) is words.parse(member) is member
        assert json.loads(json.dumps(member)) == member == member.value
        assert repr(member) == repr(member.value)
    assert len({str(member) for member in words}) == len(words)


def test_an_unknown_word_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match=r"--cache: unknown cache state 'wram'.*warm"):
        CacheState.parse("wram", place="--cache")
    with pytest.raises(UsageError, match=r"unknown timing 'kernels'.*kernel"):
        Timing.parse("kernels")


@pytest.mark.parametrize("words", Vocabulary.__subclasses__())
def test_hyphens_and_underscores_are_alike(words: type[Vocabulary]) -> None:
    for member in words:
        assert words.parse(member.replace("_", "-")) is words.parse(member.replace("-", "_")) is member


def test_an_option_of_the_command_line_lists_hyphens() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'machine_here'\? Allowed: .*dtype_here"):
        ErrorSource.parse("machine-hare", place="source")
    with pytest.raises(UsageError, match=r"Did you mean 'machine-here'\? Allowed: .*dtype-here") as raised:
        ErrorSource.parse("machine_hare", place="--source")
    assert "_here" not in str(raised.value)


def test_older_tables_say_flushed_for_cold() -> None:
    assert CacheState.parse("flushed") is CacheState.COLD
    with pytest.raises(UsageError, match="unknown cache state 'flush'"):
        CacheState.parse("flush")


def test_only_events_around_a_call_include_the_host() -> None:
    assert [timing for timing in Timing if timing.includes_host] == [Timing.EVENT]


def test_the_code_of_a_kind_of_event_reads_back() -> None:
    assert [EventKind.from_code(kind.code) for kind in EventKind] == list(EventKind)
    assert [kind.code for kind in EventKind] == list(range(len(EventKind)))


def test_calibration_runs_from_best_to_worst() -> None:
    assert list(Calibration) == ["calibrated", "same generation", "never seen"]
    assert Limiter("hbm") == "hbm"
