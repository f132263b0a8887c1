"""The sentences below a table of predictions: totals, the origin of the figures, capacity, and advice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import MAIN_MEMORY, NOWHERE, Hardware
from perfmodel.core.machine_parts import BRIDGE_NAMES, accessories
from perfmodel.core.units import format_interval, format_si
from perfmodel.core.vocabulary import CacheState, ErrorSource, Limiter
from perfmodel.errors import nearest
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.ceilings import link_traffic
from perfmodel.prediction.copies import stays_within
from perfmodel.prediction.latency.doubts import TUNED
from perfmodel.prediction.latency.families import family as latency_family
from perfmodel.prediction.latency.families import has_family, serving
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.named import as_known, knows_kernel
from perfmodel.prediction.latency.nearest_tables import measured_libraries
from perfmodel.prediction.padding import LOADED_BYTES, padded
from perfmodel.prediction.predict import predict
from perfmodel.prediction.result import Prediction
from perfmodel.prediction.uncertainty import DOUBTS, MEANINGS

#: operators named in one line of advice before the rest is counted
MOST_NAMES = 6
#: a padded product is worth a sentence if it takes less than this share of the time
WORTH_PADDING = 0.9
#: what the tables' sources say of their rows: whose they are, how many, of which machines, and when they were fitted
_ROWS = re.compile(r"fitted on [^;]*?(\d+ rows(?: of [^;]*?)?), \d{4}-\d\d-\d\d")


def summarize(predictions: Sequence[Prediction], *, sources: bool = False) -> list[str]:
    """Return sentences for people about some predictions; with ``sources``, also whose rows the constants are of.

    They are totals where operators are counted or listed (calls one after another, nothing overlapped), the advice,
    calls whose bound another algorithm or a cache passes, calls that are less sure than others, exchanges over a
    bridge, copies within a memory that host and device share, exchanges whose highest bus bandwidth is not a link's
    peak, working sets that fit a cache or exceed the memory, products that are faster when padded, the release whose
    kernels the calls are of, whether products quantise their input, and the basis of the predictions: the user's next
    step comes first, and where the figures come from last.
    """
    return [
        *_totals(predictions),
        *_advice(predictions),
        *_by_other_algorithms(predictions),
        *_from_caches(predictions),
        *_doubts(predictions),
        *_over_bridges(predictions),
        *_in_one_memory(predictions),
        *_bus_bandwidths(predictions),
        *_capacity(predictions),
        *_odd_rows(predictions),
        *_releases(predictions),
        *_quantising(predictions),
        *_bases(predictions, sources=sources),
    ]


def unmeasured_library(predictions: Iterable[Prediction], machines: Mapping[str, Hardware]) -> list[str]:
    """Return a warning for each family of which no table has rows of the library that was asked for.

    Parameters
    ----------
    predictions : of any operators.
    machines : name -> machine of the predictions.
    """
    warnings = {}
    for p in predictions:
        library, _, kernel = p.conditions.library.partition("/")
        known = [name for family in serving(p.op) for name in family.kernels] if kernel else []
        if known and not knows_kernel(p.op, machines[p.hardware], p.conditions.library):
            hint = nearest(kernel, known)
            warnings[p.op] = f"no kernel of {p.op} is named {kernel!r}; those of {library} are assumed. {hint}".strip()
        if p.library and ErrorSource.LIBRARY in p.uncertainty:
            machine, families = machines[p.hardware], _families(p)
            asked = as_known(p.op, machine, p.conditions).library
            for family in families:
                known = measured_libraries(family.name, machine)
                # Of kernels that run one after another, the library of some may have been measured.
                if len(families) == 1 or (known and family.aliases.get(asked, asked) not in known):
                    warnings[family.name] = _unmeasured(p, family, machine)
    return list(warnings.values())


def _families(p: Prediction) -> list[Family]:
    """Return the families of a prediction, those of each kernel where several run one after another."""
    texts = np.ravel(np.asarray(p.family)).tolist()
    names = dict.fromkeys(name for text in texts for name in text.split(" + "))
    return [latency_family(name) for name in names if has_family(name)]


def _unmeasured(p: Prediction, family: Family, machine: Hardware) -> str:
    """Return the warning that no table of a family has rows of the library, and what it is predicted by instead."""
    known, library = measured_libraries(family.name, machine), p.conditions.library
    text = f"no table of {family.name} for {machine.name} has rows of library {p.library!r} "
    text += f"(measured: {', '.join(known) or 'none'})"
    lenders = family.borrows(machine, library, p.dtype)[1] if family.borrows else ()
    lender = next((name for name in lenders if name in known), "")
    if (library.partition("/")[2] or library) in family.kernels:
        constants = f", with the constants of {lender}" if lender else ""
        return f"{text}; it is predicted as this kernel is built{constants}, and the interval is wider."
    text += "; the interval is that of a library that was not measured."
    if p.conditions.caller in TUNED:  # the name of a library, though not one of those that were measured
        return text
    hint = nearest(p.library, [name for name in (*known, *family.aliases, *family.kernels) if name != p.library])
    return f"{text} {hint}".strip()


def _totals(predictions: Sequence[Prediction]) -> list[str]:
    """Sum the times of each machine's operators, for lists of single calls; a sweep has no total."""
    sentences = []
    for machine in dict.fromkeys(p.hardware for p in predictions):
        listed = [p for p in predictions if p.hardware == machine]
        calls = sum(p.count for p in listed)
        if calls < 2 or any(np.ndim(p.bound_time_s) for p in listed):
            continue
        bound = sum(p.count * float(p.bound_time_s) for p in listed)
        predicted = sum(p.count * float(p.predicted_time_s) for p in listed)
        sentences.append(
            f"{machine}: {calls} calls one after another: bound {format_si(bound, 's')}, "
            f"predicted {format_si(predicted, 's')}."
        )
    return sentences


def _bases(predictions: Sequence[Prediction], *, sources: bool) -> list[str]:
    """Say from which constants the predictions come, and, with ``sources``, whose rows these were fitted on."""
    bases = _by_text((p.prediction_basis if sources else _without_sources(p.prediction_basis), p) for p in predictions)
    if len(bases) == 1:
        return [f"Predicted from {next(iter(bases))}."]
    return [f"Predicted from {basis}: {names}." for basis, names in bases.items()]


def _without_sources(basis: str) -> str:
    """Return where figures come from without whose rows they are.

    >>> _without_sources("rope, its generation: fitted on Vidur @ 7d47, 50 rows of l40s, 2026-11-23; no row in fp8")
    'rope, its generation: fitted on 50 rows of l40s; no row in fp8'
    """
    return _ROWS.sub(r"fitted on \1", basis)


def _releases(predictions: Sequence[Prediction]) -> list[str]:
    """Say which release of a library a call that names none is taken to run, where its kernels changed."""
    found = []
    for p in predictions:
        for family in _families(p) if p.library and not p.conditions.version else ():
            if release := family.since.get(p.library):
                major, minor = release
                kernels = f"Kernels of {p.library} {major}.{minor} and later"
                found.append((f"{kernels} (--library {p.library}-{major}.{minor - 1} has those before)", p))
    return [f"{text}: {calls}." for text, calls in _by_text(found).items()]


def _quantising(predictions: Sequence[Prediction]) -> list[str]:
    """Say whether calls of products of 8 and 4 bits quantise A, where the operator does not say that A comes so."""
    found = []
    for p in predictions:
        if not isinstance(p.operator, Gemm) or p.operator.quantized or dtype_bytes(p.operator.dtype) >= 2:
            continue
        if p.operator.is_quantised_by(p.conditions.library):
            text = "With the kernel that quantises A, which the bound does not count (quantized=true: without it)"
        else:
            *others, last = Gemm.QUANTISING
            text = f"The product alone; --library {', '.join(others)} or {last} adds the kernel that quantises A"
        found.append((text, p))
    return [f"{text}: {calls}." for text, calls in _by_text(found).items()]


def _by_other_algorithms(predictions: Sequence[Prediction]) -> list[str]:
    """Say which calls may be faster than their bound, which counts FLOP that another algorithm avoids."""
    found = []
    for p in predictions:
        if type(p.operator).least_flop is Operator.least_flop or not np.any(p.predicted_time_low_s < p.bound_time_s):
            continue
        share = float(np.min(np.divide(p.operator.least_flop(), p.flop)))
        found.append((f"the bound counts the direct FLOP, of which Winograd's algorithm needs {share:.0%}", p))
    return [
        f"Faster than the bound where libraries choose it: {names}; {text}." for text, names in _by_text(found).items()
    ]


def _from_caches(predictions: Sequence[Prediction]) -> list[str]:
    """Say which calls are expected to be faster than the bound of a cold call, since their data is in a cache."""
    faster = [
        (f"The bound is that of a cold call, which calls with {p.cache} caches may beat", p)
        for p in predictions
        if p.cache != CacheState.COLD and np.any(np.less(p.predicted_time_s, p.bound_time_s))
    ]
    return [f"{text}: {names}." for text, names in _by_text(faster).items()]


def _doubts(predictions: Sequence[Prediction]) -> list[str]:
    """Say which calls are less sure than others of their family, and why."""
    doubts = _by_text(
        (MEANINGS[source], p)
        for p in predictions
        for source, variance in p.uncertainty.variances(p.regime).items()
        if source in DOUBTS and np.any(variance)
    )
    return [f"Less sure: {names}, since {meaning}." for meaning, names in doubts.items()]


def _over_bridges(predictions: Sequence[Prediction]) -> list[str]:
    """Say which exchanges cross links of a few GPUs, which a machine may lack, and how to predict them without."""
    crossing = []
    for p in predictions:
        links = p.machine.links
        optional = accessories(links)
        few = {link.name: link for link in links if link.joins_a_board or link in optional}
        moved = link_traffic(p.operator, p.machine) if few else {}
        for link in (few[name] for name, crossing_bytes in moved.items() if name in few and np.any(crossing_bytes)):
            if link.joins_a_board:
                text = (
                    f"NVLink joins the {link.domain} {p.hardware} of a board; nodes=N says over how many nodes they "
                    "are spread where nodes have fewer"
                )
            else:
                name = BRIDGE_NAMES[link.name]
                text = (
                    f"The {name} bridge of {p.hardware} is an accessory; without it take [link.{link.name}] out of a "
                    f"copy of its file (perfmodel hardware show {p.hardware} --format toml -o FILE)"
                )
            crossing.append((text, p))
    return [f"{text}: {names}." for text, names in _by_text(crossing).items()]


def _in_one_memory(predictions: Sequence[Prediction]) -> list[str]:
    """Say which copies between host and device cross no link, since both share one memory."""
    copies = ((f"CPU and GPU of {p.hardware} share one memory, which a copy between them reads and writes", p)
              for p in predictions if stays_within(p.operator, p.machine))  # fmt: skip
    return [f"{text}: {names}." for text, names in _by_text(copies).items()]


def _bus_bandwidths(predictions: Sequence[Prediction]) -> list[str]:
    """Say of which exchanges the highest bus bandwidth is not a link's peak, since other bytes cross the links."""
    found = []
    for p in predictions:
        of_link = np.asarray(p.limiter) == Limiter.LINK
        peaks = np.broadcast_to(np.divide(p.bus_bytes, p.bound_time_s), of_link.shape)[of_link]
        links = np.array([link.bandwidth_bytes_per_s for link in p.machine.links])
        peaks = peaks[(peaks > 0.0) & ~np.isclose(peaks[:, np.newaxis], links).any(axis=1)]
        if not peaks.size:
            continue
        low, high = float(peaks.min()), float(peaks.max())
        within = format_si(high, "B/s", 3) if high < 1.005 * low else format_interval(low, high, "B/s")
        found.append((f"Rates are bus bandwidths (nccl-tests); full links and networks give {within}", p))
    return [f"{text}: {names}." for text, names in _by_text(found).items()]


def _odd_rows(predictions: Sequence[Prediction]) -> list[str]:
    """Say which single products on tensor cores would be faster if their rows were padded."""
    sentences = []
    for p in predictions:
        if not isinstance(p.operator, Gemm) or not p.engine.startswith("tensor") or np.ndim(p.predicted_time_s):
            continue
        other, sizes = padded(p.operator)
        if not sizes:
            continue
        conditions = {"timing": p.timing, "cache": p.cache, "library": p.library, "load": p.load}
        time, least = predict(other, p.machine, **conditions).predicted_time_s, p.predicted_time_s
        if time < WORTH_PADDING * least:
            sentences.append(
                f"Rows of {p.label} begin off {LOADED_BYTES} B on {p.hardware}: padded ({sizes}) it is expected to "
                f"take {format_si(float(time), 's')} in place of {format_si(float(least), 's')}."
            )
    return sentences


def _capacity(predictions: Sequence[Prediction]) -> list[str]:
    """Say which operators fit a cache, where warm data beats the bound for a cold call, and which fit nothing."""
    cached: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    too_large = []
    for p in predictions:
        if np.any(np.asarray(p.fits_in) == NOWHERE):
            size = format_si(float(np.max(p.working_set_bytes)), "B")
            too_large.append(f"{p.label} ({size}) on {p.hardware}")
        elif np.ndim(p.bound_time_s) == 0 and p.fits_in not in MAIN_MEMORY:
            if not p.resident_limiter:
                sustained = next(one.sustained_bytes_per_s for one in p.machine.memory if one.name == p.fits_in)
                rate = f": {format_si(sustained, 'B/s', 3)} sustained" if sustained else ""
                unknown.setdefault(p.hardware, []).append(f"{p.label} ({p.fits_in}{rate})")
                continue
            warm = f"{format_si(float(p.resident_bound_time_s), 's')} by {p.resident_limiter}"
            cached.setdefault(p.hardware, []).append(f"{p.label} ({p.fits_in}: {warm})")
    return [
        *(f"{machine}: bound with the data already in a cache: {_join(names)}." for machine, names in cached.items()),
        *(
            f"{machine}: the data may already be in a cache without a datasheet bandwidth, and so without a bound: "
            f"{_join(names)}."
            for machine, names in unknown.items()
        ),
        *([f"Larger than the device's memory, so that it cannot run: {_join(too_large)}."] if too_large else []),
    ]


def _advice(predictions: Sequence[Prediction]) -> list[str]:
    advice = _by_text((text, p) for p in predictions for text in dict.fromkeys(np.ravel(np.asarray(p.advice)).tolist()))
    return [f"{text[0].upper()}{text[1:]}: {names}." for text, names in advice.items()]


def _by_text(texts: Iterable[tuple[str, Prediction]]) -> dict[str, str]:
    """Return text -> the operators that it holds for, with the machine where it does not hold on all of them."""
    machines: dict[str, dict[str, dict[str, None]]] = {}
    everywhere: dict[str, dict[str, None]] = {}
    for text, p in texts:
        machines.setdefault(text, {}).setdefault(p.label, {})[p.hardware] = None
        everywhere.setdefault(p.label, {})[p.hardware] = None
    return {
        text: _join(
            [label if on == everywhere[label] else f"{label} on {', '.join(on)}" for label, on in labels.items()]
        )
        for text, labels in machines.items()
    }


def _join(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - MOST_NAMES} more" if len(unique) > MOST_NAMES else ""
    return ", ".join(unique[:MOST_NAMES]) + more
