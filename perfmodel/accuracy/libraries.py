"""The fit of a family to the rows of several libraries: shared constants, those of each library, what is left over."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Fit, Floats, Group, fit
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.latency_table import REGIMES, mean_constants
from perfmodel.prediction.latency.constants import WIDEST
from perfmodel.prediction.latency.doubts import Doubt
from perfmodel.prediction.latency.estimate import regime_code
from perfmodel.prediction.latency.family import HOST_CONSTANTS, Family, Values
from perfmodel.prediction.uncertainty import Z80

#: a library has constants of its own, and a regime an interval of its own, from this many rows on
ENOUGH_ROWS = 20
#: fewer rows than this do not show how a regime differs from the others
SOME_ROWS = 3
#: rows of a dtype that tell of it
TELLING = 10
#: rows that count as much as what is usual on other machines, for the spread over shapes: assumed
USUAL_ROWS = 5


@dataclass(frozen=True)
class FittedConstants:
    """Fitted constants: shared ones, and those of each library."""

    shared: Fit
    libraries: Mapping[str, Fit] = field(default_factory=dict)

    def values(self, library: str) -> Values:
        """Return the constants that hold for a library."""
        return (self.libraries.get(library) or self.shared).values

    def of_unknown(self) -> Values:
        """Return the constants for a library without rows: the geometric mean of those of the others."""
        return {**self.shared.values, **mean_constants(self.own().values())}

    def common(self) -> dict[str, float]:
        """Return the shared constants, without those that every library has; other libraries get their mean."""
        own = self.own().values()
        return {n: v for n, v in self.shared.values.items() if not own or any(n not in values for values in own)}

    def in_table(self, name: str) -> bool:
        """Return whether the table needs a shared constant: all rows identify it, or those of some libraries."""
        return name in self.shared.identified() or any(name in values for values in self.own().values())

    def own(self) -> dict[str, dict[str, float]]:
        """Return the constants that the rows of each library identify; a library without any is left out."""
        return {library: values for library, fit in self.libraries.items() if (values := fit.identified())}


def libraries_of(groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the libraries of some rows, each once."""
    return tuple(sorted({group.conditions.library for group in groups} - {""}))


def dtypes(family: Family, groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the dtypes that some rows tell of, each once; none for a family whose constants hold for all dtypes.

    They do with `TELLING` rows of it, or with half of the rows where these are fewer than twice as many.
    """
    if not family.by_dtype:
        return ()
    rows: Counter[str] = Counter()
    for group in groups:
        rows[group.op.kernel_dtype] += len(group)
    return tuple(sorted(dtype for dtype, count in rows.items() if count >= min(TELLING, rows.total() / 2.0)))


def fit_libraries(
    family: Family,
    groups: Sequence[Group],
    start: Values,
    *,
    host: bool = True,
    near: FittedConstants | None = None,
    centred: bool = False,
    factor: bool = False,
    kernels: Mapping[str, Values] = MappingProxyType({}),
) -> FittedConstants:
    """Fit the shared constants to all rows, then those of each library to its rows, starting from the shared ones.

    A single library has no constants of its own: they are the shared ones.

    Parameters
    ----------
    family, groups, start, centred : as in `perfmodel.accuracy.fit.fit`.
    host : whether the constants of the dispatch are fitted too.
    near : a fit to nearly the same rows, from which the search starts.
    factor : whether the kernels may take `FACTOR` times as long as their formula says.
    kernels : what other machines told of the constants of each library that differ most between kernels, which are
        shared by no two libraries. Without it, they may be those of any kernel.
    """
    if not kernels:
        family = _of_any_kernel(family)
    known = family.table_constants if factor else family.all_constants
    kernel_constants = names_of(kernels)
    chosen = [c.name for c in known if c.name not in kernel_constants and (host or c not in HOST_CONSTANTS)]
    by_library: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_library[group.conditions.library].append(group)
    # the mean of kernels of different kinds is neither; most are of the usual one
    usual = {c.name: c.default for c in known if c.name in kernel_constants}
    own = kernels.get(next(iter(by_library)), usual) if len(by_library) == 1 else usual
    shared = fit(family, groups, {**start, **own}, chosen, near=near.shared if near else None, centred=centred)
    event = host and any(group.conditions.timing.includes_host for group in groups)
    free = [c.name for c in known if c.library and (event or c not in HOST_CONSTANTS)]
    if len(by_library) < 2 or not free:
        return FittedConstants(shared)
    found = {
        library: fit(
            family,
            rows,
            {**shared.values, **kernels.get(library, {})},
            free,
            near=near.libraries.get(library) if near else None,
            centred=centred,
        )
        for library, rows in sorted(by_library.items())
        if sum(map(len, rows)) >= ENOUGH_ROWS
    }
    return FittedConstants(shared, {library: _with(one, kernel_constants) for library, one in found.items()})


def _with(found: Fit, names: Collection[str]) -> Fit:
    """Return a fit that has some constants whether its rows identify them or not: another library's are unlike them."""
    unidentified = tuple(name for name in found.unidentified if name not in names)
    return replace(found, unidentified=unidentified, certainty={**dict.fromkeys(names, 1.0), **found.certainty})


def names_of(kernels: Mapping[str, Values]) -> set[str]:
    """Return the names of the constants that some kernels have."""
    return {name for values in kernels.values() for name in values}


def _of_any_kernel(family: Family) -> Family:
    """Return a family whose constants differ as much as those of kernels of different libraries do."""
    constants = tuple(replace(c, spread=c.between_kernels or c.spread) for c in family.constants)
    return family if constants == family.constants else replace(family, constants=constants)


def residuals(
    family: Family, groups: Sequence[Group], fitted: FittedConstants, *, unknown: bool = False
) -> tuple[Floats, NDArray[np.intp]]:
    """Return ln(predicted / measured) of all rows, and the regime of each.

    ``unknown`` takes the constants for a library without rows, in place of those of each library.
    """
    ratios, regimes = [], []
    for group in groups:
        values = fitted.of_unknown() if unknown else fitted.values(group.conditions.library)
        terms = family.timed_terms(group.op, group.machine, values, group.conditions)
        time = np.broadcast_to(terms.time_s, group.time_s.shape)
        ratios.append(np.log(time / group.time_s))
        regimes.append(np.broadcast_to(regime_code(terms.adds, time), time.shape))
    return np.concatenate(ratios), np.concatenate(regimes)


def sample(groups: Sequence[Group], most: int) -> list[Group]:
    """Return about ``most`` rows, the same share of each group, chosen by the hash of their shape."""
    share = most / max(1, sum(map(len, groups)))
    if share >= 1:
        return list(groups)
    samples = (
        group.take(np.argsort(np.argsort(shape_hash(group.op, len(group)))) < max(1.0, share * len(group)))
        for group in groups
    )
    return [group for group in samples if len(group)]


def told_apart(family: Family, groups: Sequence[Group]) -> NDArray[np.bool_]:
    """Return which of all rows are of calls that the family tells apart."""
    return np.concatenate([np.broadcast_to(family.apart(group.op), (len(group),)) for group in groups])


def doubted(doubt: Doubt, groups: Sequence[Group]) -> int:
    """Return how many rows a doubt is about."""
    masks = (doubt.about(group.op, group.machine, group.conditions) for group in groups)
    return sum(int(np.broadcast_to(mask, (len(group),)).sum()) for mask, group in zip(masks, groups, strict=True))


def stated_apart(
    log_ratio: Floats, regime: NDArray[np.intp], apart: NDArray[np.bool_], default: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """Return the intervals of the rows that a mask leaves, and those of the others; no others where it takes none.

    A regime of either with few rows has the ``default``, the interval of both together.
    """
    if not apart.any():
        return dict(default), {}
    one, other = (intervals(log_ratio[rows], regime[rows], default) for rows in (~apart, apart))
    return one, other


def intervals(
    log_ratio: Floats,
    regime: NDArray[np.intp],
    default: Mapping[str, tuple[float, float]],
    independent: Sequence[float] | None = None,
) -> dict[str, tuple[float, float]]:
    """Return the middle 80 % of measured / predicted in each regime; the default for a regime with few rows.

    The ends are the order statistics of rank 0.9 (n + 1) from either side, which contain the next row with a
    probability of 80 %, however small n is (split conformal prediction: Lei et al. 2018, arXiv 1604.04173). Rows of one
    shape in several versions of a library have nearly one error: n is the number of ``independent`` rows in each
    regime, where it is given. A stated interval contains the prediction itself, so the ends are bounded by 1.

    Where nothing wider tells of a regime with some rows but not enough, all n rows do, with m = `USUAL_ROWS` that
    spread as the widest interval says: their variance is (m v + sum r^2) / (m + n) (an inverse gamma prior).
    """
    stated = dict(default)
    variance = (USUAL_ROWS * (math.log(WIDEST[1]) / Z80) ** 2 + float(np.sum(log_ratio**2))) / (
        USUAL_ROWS + log_ratio.size
    )
    reach = math.exp(Z80 * math.sqrt(variance))
    for index, name in enumerate(REGIMES):
        ratio = np.exp(-log_ratio[regime == index])
        if ratio.size >= ENOUGH_ROWS:
            count = independent[index] if independent else ratio.size
            inner = min(1.0, 0.9 * (count + 1) / count)
            low, high = np.quantile(ratio, 1.0 - inner, method="lower"), np.quantile(ratio, inner, method="higher")
            stated[name] = (min(1.0, float(low)), max(1.0, float(high)))
        elif ratio.size >= SOME_ROWS and tuple(default[name]) == WIDEST:
            stated[name] = (1.0 / reach, reach)
    return stated
