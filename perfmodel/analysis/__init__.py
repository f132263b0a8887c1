"""Analysis: bound and prediction of an operator on a machine, advice, Amdahl's law and return on investment."""
