"""Problems on a command line: operators, or a problem's name with dimensions that its defaults complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfmodel.errors import unknown_name
from perfmodel.operators import operator_names, spelled
from perfmodel.operators.base import Operator
from perfmodel.operators.parse import parse_operators
from perfmodel.prediction.algorithms import find_problem, problem_names, problem_of, problems
from perfmodel.prediction.algorithms.base import Problem


def parse_problems(tokens: Sequence[str]) -> list[tuple[Problem, Operator]]:
    """Return each problem on a command line with the operator that states it.

    A word that names a problem stands for its operator, and one that names an operator for its main problem, whose
    defaults complete the dimensions (`Problem.completing`): words that state an operator wholly mean the same as
    without ``--algorithms``. Other words are files of operators.

    Raises
    ------
    UsageError, InputFileError
        When a word names neither, an operator states no problem, or a dimension is wrong.
    """
    groups: list[list[str]] = []
    for token in tokens:
        if "=" in token and groups:
            groups[-1].append(token)
        else:
            groups.append([token])
    return [stated for group in groups for stated in _parsed(group)]


def _parsed(group: Sequence[str]) -> list[tuple[Problem, Operator]]:
    word, *given = group
    name = spelled(word)
    values = {key: value for key, _, value in (token.partition("=") for token in given)}
    if name in problem_names():
        problem = find_problem(name)
        return [(problem, op) for op in parse_operators([problem.op, *given, *_defaults(problem, values)])]
    if word.replace("-", "_").isidentifier() and name not in operator_names():
        stating = {problem.op for problem in problems().values()}
        raise unknown_name("problem", word, {*problem_names(), *stating})
    main = (one for one in problems().values() if one.op == name and one.main and _states(one, values))
    defaults = next((_defaults(problem, values) for problem in main), [])
    return [(problem_of(op), op) for op in parse_operators([*group, *defaults])]


def _states(problem: Problem, values: Mapping[str, str]) -> bool:
    """Return whether words state a problem and not another one of its operator, as ``kind=gelu`` of elementwise."""
    return all(values.get(key) == value for key, value in problem.stating.items())


def _defaults(problem: Problem, values: Mapping[str, str]) -> list[str]:
    """Return the words that complete those of some dimensions."""
    return [f"{key}={value}" for key, value in problem.completing(values).items()]
