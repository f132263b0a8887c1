"""Ctrl-C and SIGTERM that are put off: they end the work at its next good place, and are not lost."""

from __future__ import annotations

import signal
import time

import pytest

from perfmodel.signals import put_off


def interrupted_twice(steps: list[str]) -> None:
    """Put Ctrl-C off, and raise it twice."""
    with put_off() as came:
        signal.raise_signal(signal.SIGINT)
        steps.append(f"came: {len(came)}")
        signal.raise_signal(signal.SIGINT)
        steps.append("end")


def test_a_signal_comes_at_the_end_of_the_block() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(steps)  # at once, as to the process and to its group: the same
    assert steps == ["came: 1", "end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_of_a_person_ends_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((1.0, 1.0, 1.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(steps)
    assert steps == ["came: 1"]
