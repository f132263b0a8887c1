"""Values that follow from sizes, buffers, inputs and parameters are known; those of random numbers are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import perfmodel as pm
from perfmodel.errors import UsageError
from tests.module_capture import modules


class Asks(nn.Module):
    """A function of the input and of a buffer, which may ask for values, beside a product."""

    def __init__(self, function) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function
        self.register_buffer("limit", torch.tensor([0, 2, 4]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.function(self, x))


def products(captured) -> list[int]:
    return [call.op.params()["m"] for call in captured.calls if call.op is not None and call.op.op == "gemm"]


def masked(net: Asks, x: torch.Tensor) -> torch.Tensor:
    mask = torch.empty(4, 4).fill_(float("-inf")).triu_(1)
    return x if bool((mask == nn.Transformer.generate_square_subsequent_mask(4)).all()) else torch.cat([x, x])


def limited(net: Asks, x: torch.Tensor) -> torch.Tensor:
    return x[: int(net.limit[1:].max())]


def chosen(net: Asks, x: torch.Tensor) -> torch.Tensor:
    return x[torch.where(x[:, 0] > 0)[0]]


@pytest.mark.parametrize(
    ("function", "rows", "decided"), [(masked, 6, False), (limited, 4, True), (chosen, 2, True)],
    ids=["from sizes", "a buffer", "an input"],
)  # fmt: skip
def test_what_is_asked_for_is_answered_as_in_a_run(function, rows: int, decided: bool) -> None:
    net, x = Asks(function), torch.zeros(6, 8)
    x[1], x[3] = 1.0, 2.0
    assert net(x).shape[0] == rows
    captured = pm.capture(net, x)
    assert products(captured) == [rows]
    assert bool(captured.decided) == decided
    assert all("test_known.py:" in line for line in captured.decided)
    notes = " ".join(captured.report().notes)
    assert ("decide what runs" in notes) == decided


def test_tokens_go_to_the_experts_that_they_have_in_a_run() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(16, 4)
            self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = self.router(x).argmax(-1)
            y = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                (tokens,) = torch.where(chosen == number)
                y.index_add_(0, tokens, expert(x[tokens]))
            return y

    torch.manual_seed(0)
    net, x = Experts(), torch.randn(64, 16)
    counts = net.router(x).argmax(-1).bincount(minlength=4).tolist()
    captured = pm.capture(net, x, backward=True)
    assert [call.op.params()["m"] for call in captured.calls
            if call.phase == "forward" and call.op is not None and call.op.op == "gemm"] == [64, *counts]  # fmt: skip
    assert captured.decided
    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(Experts, x)


def test_what_takes_long_to_work_out_is_not_known(monkeypatch) -> None:
    monkeypatch.setattr("perfmodel.module_capture.known.MOST_FLOP", 1e3)
    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(Asks(lambda net, x: x if (x @ x.T).sum() > 0 else x[:1]), torch.ones(8, 8))


@pytest.mark.parametrize(
    "function",
    [
        lambda net, x: x if torch.rand(3).sum() > 0 else x[:1],
        lambda net, x: x if net.limit.add_(torch.rand(3).long()).sum() > 0 else x[:1],
        lambda net, x: x if torch.zeros(3).add_(torch.rand(3)).sum() > 0 else x[:1],
    ],
    ids=["random numbers", "a buffer that changed", "a tensor that changed"],
)
def test_what_nobody_knows_is_refused(function) -> None:
    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(Asks(function), torch.ones(2, 8))


def test_a_view_of_a_changed_tensor_is_not_known_either() -> None:
    def changed(net: Asks, x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(4, 8)
        row = zeros[1]
        zeros.add_(torch.rand(8))
        return x if row.sum() > 0 else x[:1]

    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(Asks(changed), torch.ones(2, 8))


def test_inputs_and_buffers_keep_their_values() -> None:
    def writes(net: Asks, x: torch.Tensor) -> torch.Tensor:
        net.limit.add_(1)
        return x.mul_(2.0)

    net, x = Asks(writes), torch.ones(2, 8)
    pm.capture(net, x)
    assert net.limit.tolist() == [0, 2, 4]
    assert x.sum() == 16


def test_a_tensor_in_no_state_is_known_and_stays_as_it_is() -> None:
    held = torch.tensor([1, 1, 1])
    captured = pm.capture(Asks(lambda net, x: x[: int((held + 1).sum())]), torch.ones(8, 8))
    assert products(captured) == [6]
    assert held.tolist() == [1, 1, 1]


def test_masks_of_pytorch_s_transformer_are_recognised() -> None:
    net = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
    x, mask = torch.empty(2, 8, 32, device="meta"), net.generate_square_subsequent_mask(8)
    captured = pm.capture(net, {"src": x, "tgt": x, "tgt_mask": mask})
    assert captured.flop > 0
    assert captured.decided


def test_values_are_not_asked_of_shapes() -> None:
    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(modules.Branches(), torch.ones(3, device="meta"))
    assert pm.capture(modules.Branches(), torch.ones(3)).decided


def test_a_module_with_two_names_is_asked_by_either() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Asks(limited)
            self.second = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(x) if self.first.linear.bias.abs().sum() > 0 else x

    assert products(pm.capture(Twice(), torch.zeros(6, 8))) == [4]
