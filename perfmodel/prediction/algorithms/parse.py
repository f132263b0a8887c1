"""Problems on a command line: operators, or a problem's name with dimensions that its defaults complete."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.errors import unknown_name
from perfmodel.operators import operator_names
from perfmodel.operators.base import Operator
from perfmodel.operators.parse import parse_operators
from perfmodel.prediction.algorithms import find_problem, problem_names, problem_of, problems
from perfmodel.prediction.algorithms.base import Problem


def parse_problems(tokens: Sequence[str]) -> list[tuple[Problem, Operator]]:
    """Return each problem on a command line with the operator that states it.

    A word that names a problem stands for its operator, and the problem's defaults complete its dimensions
    (`Problem.completing`): words that state an operator wholly mean the same as without ``--algorithms``. Other words
    are operators, or files of them.

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
    name = word.replace("-", "_").lower()
    if name not in problem_names():
        if word.replace("-", "_").isidentifier() and name not in operator_names():
            stating = {problem.op for problem in problems().values()}
            raise unknown_name("problem", word, {*problem_names(), *stating})
        return [(problem_of(op), op) for op in parse_operators(group)]
    problem = find_problem(name)
    names = {token.partition("=")[0] for token in given}
    defaults = [f"{key}={value}" for key, value in problem.completing(names).items()]
    return [(problem, op) for op in parse_operators([problem.op, *given, *defaults])]
