"""A captured module has the operators that a GPU runs, also where a CPU, on which it is captured, runs others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")
nn = torch.nn

BATCH, TOKENS, HIDDEN, HEADS = 2, 16, 64, 4


def ops(net: Any, *inputs: Any, backward: bool = False) -> Counter[str]:
    calls = pm.capture(net, inputs, backward=backward).calls
    assert not [(call.name, call.not_modelled) for call in calls if call.op is None]
    found: Counter[str] = Counter()
    for call in calls:
        found[call.op.op] += call.count
    return found


def encoder(dropout: float) -> Any:
    return nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, dropout=dropout, batch_first=True).train()


def test_attention_drops_in_its_kernel_and_the_rest_in_one_each() -> None:
    found = ops(encoder(0.1), torch.empty(BATCH, TOKENS, HIDDEN), backward=True)
    # of attention, of the feed-forward layer and after it, with their gradients
    assert (found["attention"], found["dropout"]) == (2, 6)
    assert found["softmax"] == 0
    without = ops(encoder(0.0), torch.empty(BATCH, TOKENS, HIDDEN), backward=True)
    assert without == Counter({op: count for op, count in found.items() if op != "dropout"})


def test_scores_that_are_asked_for_are_those_of_products() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed = nn.MultiheadAttention(HIDDEN, HEADS, dropout=0.1, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.mixed(x, x, x, need_weights=True)

    found = ops(Scores().train(), torch.empty(BATCH, TOKENS, HIDDEN))
    assert (found["attention"], found["softmax"]) == (0, 1)


@pytest.mark.parametrize("dropped", [{"dropout_p": 0.1}, {"dropout_p": 0.1, "is_causal": True}, {}])
def test_attention_of_ones_own_keeps_its_mask(dropped: Any) -> None:
    class Mixed(nn.Module):
        def forward(self, q: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(q, q, q, **dropped)

    (call,) = pm.capture(Mixed(), torch.empty(BATCH, HEADS, TOKENS, 32)).calls
    assert (call.op.op, call.op.causal) == ("attention", "is_causal" in dropped)


@pytest.mark.parametrize("how", [{"p": 0.0}, {"p": 1.0}, {"training": False}])
def test_what_drops_nothing_runs_no_kernel_that_drops(how: Any) -> None:
    class Drops(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.dropout(x, **how) + 1

    assert ops(Drops(), torch.empty(4, 64))["dropout"] == 0


def test_the_gradient_of_a_part_is_zeros_and_a_copy() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(8, 64))

        def forward(self, x: Any) -> Any:
            return (self.weight[:, :32] * x).sum()

    calls = pm.capture(Half(), torch.empty(8, 32), backward=True).calls
    moved = {call.op.kind: float(call.op.work().bytes) for call in calls if getattr(call.op, "numel", 0) > 1}
    # zeros of 8 x 64, and 8 x 32 that are read and written
    assert (moved["fill"], moved["copy"]) == (4 * 8 * 64, 2 * 4 * 8 * 32)
    assert len([call for call in calls if "slice_backward" in call.name]) == 0


@pytest.mark.parametrize(
    ("net", "shape", "op", "flop"),
    [
        # 2 k c s for each of the outputs
        (nn.Conv1d(64, 32, 3, padding=1), (2, 64, 100), "conv2d", 2 * 2 * 100 * 32 * 64 * 3),
        (nn.ConvTranspose2d(64, 32, 4, 2, 1), (2, 64, 8, 8), "conv2d", 2 * 2 * 8 * 8 * 64 * 32 * 16),
        (nn.Upsample(scale_factor=2), (2, 16, 8, 8), "elementwise", 0),
        (nn.ConstantPad2d(1, 0.0), (2, 16, 8, 8), "elementwise", 0),
        (nn.GLU(), (4, 64), "elementwise", 5 * 4 * 32),
        (nn.Mish(), (4, 64), "elementwise", 5 * 4 * 64),
    ],
)
def test_layers_of_images_and_signals(net: Any, shape: tuple[int, ...], op: str, flop: float) -> None:
    captured = pm.capture(net, torch.empty(shape))
    assert {call.op.op for call in captured.calls} == {op}
    assert captured.flop == flop


def test_an_axis_that_nobody_names_is_the_usual_one() -> None:
    class Best(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.topk(2).values

    (call,) = pm.capture(Best(), torch.empty(8, 64)).calls
    assert (call.op.op, call.op.rows, call.op.k) == ("topk", 8, 2)


def test_a_file_in_another_folder_is_found(perfmodel, tmp_path) -> None:
    (tmp_path / "net_elsewhere.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(8, 8)\n")
    ran = perfmodel("capture", f"{tmp_path}/net_elsewhere.py:build", "--input", "8x8")
    assert (ran.code, ran.err) == (0, "")
