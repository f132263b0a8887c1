"""Kinds of layers: which have a window, and which have experts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import layer_kinds

MODEL = named_model("llama-3.1-8b")


def windows(layers: int, windowed: int) -> list[int]:
    config = replace(MODEL, layers=layers, window=128, window_layers=windowed)
    return [index for index, kind in enumerate(layer_kinds(config)) if kind.windowed]


def test_windows_alternate_evenly() -> None:
    assert windows(4, 2) == [1, 3]
    assert windows(6, 2) == [2, 5]
    assert not any(kind.windowed for kind in layer_kinds(MODEL))
    assert windows(3, 3) == [0, 1, 2]


def test_windows_lie_on_layers_that_attend() -> None:
    """Six of twelve layers keep a state, and four of the other six have a window."""
    hybrid = replace(MODEL, layers=12, window=128, window_layers=4, linear_layers=6, linear_heads=32)
    kinds = layer_kinds(hybrid)
    assert [kind.linear for kind in kinds] == [True, False] * 6
    assert [kind.windowed for kind in kinds if not kind.linear] == [False, True, True] * 2
    assert not any(kind.windowed and kind.linear for kind in kinds)


@pytest.mark.parametrize("layers", [7, 24, 61])
def test_any_number_of_layers_has_windows_at_most_one_further_apart_than_others(layers: int) -> None:
    for windowed in range(1, layers + 1):
        found = windows(layers, windowed)
        assert len(found) == windowed
        gaps = {after - before for before, after in itertools.pairwise(found)}
        assert not gaps or max(gaps) - min(gaps) <= 1


def test_dense_layers_of_a_mixture_come_first() -> None:
    mixture = named_model("deepseek-v3")
    assert [kind.moe for kind in layer_kinds(mixture)] == [False] * 3 + [True] * 58
