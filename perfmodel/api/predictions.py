"""What operators are to take on a machine: one call, a sweep, each algorithm of a problem, a list of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from perfmodel.api.arguments import check_number, check_operator, operator_list
from perfmodel.api.machines import Machine, find_machine
from perfmodel.errors import suggesting

if TYPE_CHECKING:
    from perfmodel.core.roofline import Bound
    from perfmodel.operators import Operator
    from perfmodel.prediction.algorithms.choice import Choice
    from perfmodel.prediction.result import Prediction
    from perfmodel.prediction.whole_model import WholeModel


@suggesting
def predict(
    op: Operator,
    hardware: Machine,
    *,
    timing: str = "kernel",
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine; see `perfmodel.prediction.predict`.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, or its name in the catalog ("h100").
    timing : the interval that is meant: "kernel", "graph", "do_bench" or "event" (docs/concepts.md, Timing views).
    cache : what the caches hold before the call: "cold", "warm" or "rotating".
    library : whose kernels run ("torch-2.1", "vllm", "nccl"); "" for any. One without rows has a wider interval.
    load : for how long the device has been at work: "burst", or minutes, "sustained".

    Raises
    ------
    UsageError
        When a name is unknown, an argument is of a wrong type, or the machine has no peak for the operator's dtype.
    """
    machine = find_machine(hardware)
    try:
        return _predict_on()(op, machine, timing=timing, cache=cache, library=library, load=load)
    except (AttributeError, TypeError):  # looked at only now: a call takes 50 us, and nearly all have an operator
        check_operator(op)
        raise


@functools.cache
def _predict_on() -> Callable[..., Prediction]:
    """Return the function, which is imported at the first call: Python looks for 1 us whether a module is there."""
    from perfmodel.prediction.predict import predict as predict_on

    return predict_on


@suggesting
def bound_time(op: Operator, hardware: Machine) -> Bound:
    """Return the bound of one cold call of an operator; see `perfmodel.prediction.predict.bound_time`.

    Parameters
    ----------
    op : the operator; with arrays as dimensions, ``time_s`` and ``limiter`` of the bound are arrays.
    hardware : the machine, or its name in the catalog.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses.

    >>> from perfmodel import Memcpy
    >>> bound = bound_time(Memcpy(bytes=2**30, direction="d2d"), "a100-sxm4-40gb")
    >>> bound.limiter, round(bound.time_s * 1e3, 3)
    ('hbm', 1.381)
    """
    from perfmodel.prediction.predict import bound_time as bound_on

    check_operator(op)
    return bound_on(op, find_machine(hardware))


@suggesting
def sweep(
    op: Operator,
    hardware: Machine,
    *,
    chunk: int | None = None,
    timing: str = "kernel",
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
    workers: int = 1,
    scheduler: str = "",
) -> Iterator[Prediction]:
    """Yield the predictions of an operator whose dimensions are arrays, in chunks; see `perfmodel.prediction.sweep`.

    Arrays that broadcast, as ``m`` of shape [M, 1] and ``n`` of shape [N], never take the memory of all points.

    Parameters
    ----------
    op, hardware, timing, cache, library, load : as in `predict`.
    chunk : points of one prediction; None for as many as are fast.
    workers, scheduler : processes that share the work, or the address of a Dask scheduler. A script that asks for
        processes needs ``if __name__ == "__main__":``.

    Raises
    ------
    UsageError
        As `predict`, and when ``chunk`` or ``workers`` is impossible.
    UnavailableError
        When a worker dies, or no scheduler answers.
    """
    from perfmodel.prediction.predict import CHUNK
    from perfmodel.prediction.sweep import sweep as sweep_on

    check_operator(op)
    size = CHUNK if chunk is None else chunk
    return sweep_on(
        op,
        find_machine(hardware),
        chunk=size,
        timing=timing,
        cache=cache,
        library=library,
        load=load,
        workers=workers,
        scheduler=scheduler,
    )


@suggesting
def choose(problem: Operator | str, hardware: Machine, **dimensions: Any) -> Choice:
    """Return what each algorithm of a problem takes on a machine; see `perfmodel.prediction.algorithms.choice.choose`.

    Parameters
    ----------
    problem : the operator that states the problem (`Conv2d`, `Gemm`, `Sort`, ...), or a problem's name ("sort",
        "gradient_compression") with the operator's ``dimensions``.
    hardware : the machine, or its name in the catalog.
    dimensions : of the problem's operator; those that are left out are the problem's usual ones.

    Raises
    ------
    UsageError
        When there is no such problem, or a dimension is wrong or an array.
    """
    from perfmodel.prediction.algorithms.choice import choose as choose_on

    if not isinstance(problem, str):
        check_operator(problem, "problem")
    return choose_on(problem, find_machine(hardware), **dimensions)


@suggesting
def predict_model(
    operators: Iterable[Operator],
    hardware: Machine,
    *,
    cache: str = "cold",
    library: str = "",
    load: str = "burst",
    gap_s: float | None = None,
) -> WholeModel:
    """Return the time of a counted list of operators; see `perfmodel.prediction.whole_model.predict_model`.

    Parameters
    ----------
    operators : operators with their ``count``, as `forward_pass` lists them, which run one after the other.
    hardware : the machine, or its name in the catalog.
    cache, library, load : as in `predict`.
    gap_s : idle time of the device between two kernels [s]; None for the usual one of the machine.

    Raises
    ------
    UsageError
        For an empty list, an operator whose dimensions are arrays, and as `predict`.
    """
    from perfmodel.prediction.whole_model import predict_model as predict_on

    listed = operator_list(operators)
    check_number(gap_s, "gap_s", "Give seconds, as 1e-6.")
    return predict_on(listed, find_machine(hardware), cache=cache, library=library, load=load, gap_s=gap_s)
