"""What a rank without a GPU computes: operators, but not the nodes of autograd in which hooks wait for exchanges."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.ranks.host import computing, computing_entries, is_of_host
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import HostRanges, Timeline

NODE = "AddmmBackward0"
ENGINE = f"autograd::engine::evaluate_function: {NODE}"


def rank(*ops: tuple[str, float, float, int]) -> Timeline:
    """Return operators on one thread: name, start, end [s] and the index of the one around it, or -1."""
    names = tuple(dict.fromkeys(name for name, *_ in ops))
    start, end, parent = (np.array(column) for column in list(zip(*ops, strict=True))[1:])
    index = np.array([names.index(name) for name, *_ in ops])
    return Timeline(
        names, ops=HostRanges(start, end - start, index, np.zeros(len(ops), int), parent), window_s=(0.0, 10.0)
    )


def computed_s(timeline: Timeline) -> float:
    covered = computing(timeline)
    return float((covered[:, 1] - covered[:, 0]).sum())


def test_a_wait_in_a_hook_of_the_backward_pass_does_not_compute() -> None:
    # FSDP: a hook queues the exchange (0 to 1), waits for it (1 to 7), and then the node computes for 2 s
    fsdp = rank((ENGINE, 0.0, 9.5, -1), ("c10d::_allgather_base_", 0.0, 1.0, 0), (NODE, 7.0, 9.2, 0),
                ("aten::mm", 7.0, 9.0, 2))  # fmt: skip
    assert computed_s(fsdp) == pytest.approx(2.0)


def test_an_exchange_beside_the_backward_pass_takes_nothing_from_its_computation() -> None:
    # DDP: a hook queues the exchange for 0.1 s, gloo's thread runs it, and the nodes compute on
    ddp = rank((ENGINE, 0.0, 4.0, -1), (NODE, 0.0, 4.0, 0), ("aten::mm", 0.0, 4.0, 1),
               ("torch::autograd::AccumulateGrad", 4.0, 4.2, -1), ("c10d::allreduce_", 4.0, 4.1, 3),
               ("aten::mm", 4.2, 8.0, -1))  # fmt: skip
    assert computed_s(ddp) == pytest.approx(4.0 + 0.1 + 3.8)


def test_an_operator_computes_outside_of_its_inner_operators_too() -> None:
    # the kernel of aten::sum runs beside the aten::fill_ within it
    assert computed_s(rank(("aten::sum", 0.0, 3.0, -1), ("aten::fill_", 0.5, 1.0, 0))) == pytest.approx(3.0)


def test_a_node_without_operators_computes_all_of_its_time() -> None:
    own = "MyKernelBackward"
    timeline = rank((f"autograd::engine::evaluate_function: {own}", 0.0, 3.0, -1), (own, 0.5, 2.5, 0))
    assert computed_s(timeline) == pytest.approx(2.0)


def test_waiting_for_a_functional_collective_does_not_compute() -> None:
    assert computed_s(rank(("_c10d_functional::wait_tensor", 0.0, 3.0, -1), ("aten::mm", 3.0, 4.0, -1))) == 1.0


def test_the_entries_that_compute_are_those_of_the_operators() -> None:
    timeline = rank((ENGINE, 0.0, 9.5, -1), ("c10d::_allgather_base_", 0.0, 1.0, 0), (NODE, 7.0, 9.2, 0),
                    ("aten::mm", 7.0, 9.0, 2))  # fmt: skip
    entries = tuple(
        ProfileEntry(f"{name}(64x64) fp32", 1.0, 1, EventKind.HOST, launched_by=name) for name in timeline.names
    )
    profile = Profile(entries, timeline=timeline)
    assert is_of_host(profile)
    assert [entry.launched_by for entry in computing_entries(profile)] == ["aten::mm"]
    assert not is_of_host(Profile(entries)), "a table does not say where it ran"
