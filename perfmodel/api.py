"""Public functions that take a machine by name as well: what a notebook calls.

The rooms below take a `Hardware`; they know no catalog. Here a name, an alias or a spec file stands for one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perfmodel.core.hardware import Hardware

if TYPE_CHECKING:
    from perfmodel.core.roofline import Bound
    from perfmodel.operators import Operator
    from perfmodel.prediction.result import Prediction
    from perfmodel.prediction.whole_model import WholeModel

#: a machine, or how the catalog finds it: name, alias, path of a spec file
Machine = Hardware | str | os.PathLike[str]


def find_machine(machine: Machine) -> Hardware:
    """Return the machine that a name, an alias or a spec file stands for.

    Raises
    ------
    UsageError, InputFileError
        When the catalog has no such name, or the file is wrong.
    """
    if isinstance(machine, Hardware):
        return machine
    from perfmodel.hardware_catalog import hardware

    return hardware(os.fspath(machine))


def predict(
    op: Operator, hardware: Machine, *, timing: str = "kernel", cache: str = "cold", library: str = ""
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine; see `perfmodel.prediction.predict`.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, or its name in the catalog ("h100").
    timing, cache, library : the view of time, the state of the caches, whose kernels run.

    Raises
    ------
    UsageError
        When a name is unknown, or the machine has no peak for the operator's dtype.
    """
    from perfmodel.prediction.predict import predict as predict_on

    return predict_on(op, find_machine(hardware), timing=timing, cache=cache, library=library)


def bound_time(op: Operator, hardware: Machine) -> Bound:
    """Return the bound of one cold call of an operator; see `perfmodel.prediction.predict.bound_time`."""
    from perfmodel.prediction.predict import bound_time as bound_on

    return bound_on(op, find_machine(hardware))


def predict_model(
    operators: Iterable[Operator], hardware: Machine, *, cache: str = "cold", library: str = ""
) -> WholeModel:
    """Return the time of a counted list of operators; see `perfmodel.prediction.whole_model.predict_model`."""
    from perfmodel.prediction.whole_model import predict_model as predict_on

    return predict_on(operators, find_machine(hardware), cache=cache, library=library)
