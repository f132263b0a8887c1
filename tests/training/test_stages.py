"""Kinds of layers: which have a window, and which have experts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from perfmodel.training.plan import TrainingPlan
from perfmodel.training.stages import gpu_layers
from perfmodel.workloads.catalog import find_model, named_model
from perfmodel.workloads.layer_kinds import Kind, layer_kinds

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


def test_every_second_layer_of_llama_4_maverick_has_experts() -> None:
    """So all stages of a pipeline have as many: the first ones had held the dense layers, the last ones all experts."""
    maverick = named_model("llama-4-maverick")
    assert [kind.moe for kind in layer_kinds(maverick)] == [False, True] * 24
    stages = gpu_layers(maverick, TrainingPlan(batch=8, seq=1024, pp=4))
    assert [sum(count for kind, count in gpu.items() if kind.moe) for gpu in stages] == [6] * 4


def test_layers_without_an_mlp_lie_between_dense_ones_and_those_with_experts() -> None:
    words = "layers=6 hidden=64 heads=4 vocab=100 experts=4 top_k=1 moe_every=2 bare_layers=1"
    kinds = layer_kinds(find_model(words))
    assert [kind.moe for kind in kinds] == [False, True, False, True, False, False]
    assert kinds[5] == Kind(bare=True)
