"""Which algorithm when: a problem, the algorithms that solve it, and what each takes on a machine.

A problem is one file of this folder:

    PROBLEM = Problem("sort", op="sort", size="cols", sizes=(64.0, 2.0**28), costs=costs)

``costs`` takes the operator that states the problem and a machine, and returns one `Cost` for each algorithm.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators.base import Operator
from perfmodel.plugins import load_attribute, module_names
from perfmodel.prediction.algorithms.base import Problem

#: modules of this folder that hold no problem
HELPERS = ("base", "choice", "crossover", "parse", "report")


@functools.cache
def _modules() -> Mapping[str, str]:
    return module_names(__name__, "algorithms", HELPERS)


@functools.cache
def problems() -> Mapping[str, Problem]:
    """Return every problem by its name; all files are imported, which only a choice does."""
    found = {name: load_attribute(name, _modules(), "PROBLEM") for name in sorted(_modules())}
    return {name: problem for name, problem in found.items() if isinstance(problem, Problem)}


def problem_names() -> tuple[str, ...]:
    """Return the names of all problems, without importing any."""
    return tuple(sorted(_modules()))


def find_problem(name: str) -> Problem:
    """Return a problem by its name.

    Raises
    ------
    UsageError
        When there is none.
    """
    if name not in problems():
        raise unknown_name("problem", name, problem_names())
    return problems()[name]


def problem_of(op: Operator) -> Problem:
    """Return the problem that an operator states; of several the first that is its main one.

    Raises
    ------
    UsageError
        When it states none.
    """
    stated = [problem for problem in problems().values() if problem.stated_by(op)]
    if not stated:
        known = ", ".join(dict.fromkeys(problem.op for problem in problems().values()))
        raise UsageError(
            f"there is no choice of algorithms for {op.op}.", place=op.op, remedy=f"There is one for {known}."
        )
    return next((problem for problem in stated if problem.main), stated[0])
