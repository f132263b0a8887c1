"""Rules about measured figures: launch times and sustained ceilings."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.core.hardware import MAIN_MEMORY
from perfmodel.core.units import format_si
from perfmodel.hardware_catalog.lint._draft import Draft, Finding
from perfmodel.prediction.topology import PROCESS_LINK

#: from a third of the fastest known graph replay (0.93 us) to far above a queued kernel with a slow driver
LAUNCH_S = (0.3e-6, 100e-6)
#: a lower share of the peak is more likely a wrong unit than a measurement
LEAST_SHARE = 0.1
#: a lower share of what device memory delivers is more likely that of another peak: the catalog's least is 0.75 (P4)
LEAST_OF_MEMORY = 0.7


def check_launch(draft: Draft) -> Iterator[Finding]:
    """Compare launch figures with the range of known GPUs."""
    floor, overhead, queued = (draft.values.get(f"launch.{key}") for key in ("floor", "overhead", "queued"))
    for key, value in (("launch.floor", floor), ("launch.overhead", overhead), ("launch.queued", queued)):
        # calls on a CPU have no such range
        if value is not None and draft.spec.kind == "gpu" and not LAUNCH_S[0] <= value <= LAUNCH_S[1]:
            message = f"found {format_si(value, 's')}; a kernel launch takes 0.3 to 100 us. Check us and ms."
            yield draft.finding(key, "error", "launch-implausible", message)
    if floor and overhead and floor > overhead:
        message = f"the floor {format_si(floor, 's')} is above the overhead {format_si(overhead, 's')}."
        yield draft.finding("launch.floor", "error", "launch-order", f"{message} Are they swapped?")


def check_sustained(draft: Draft) -> Iterator[Finding]:
    """Compare each measured ceiling with its peak.

    The link between processes has no least share of it: that peak is what the vector stores of all cores together
    allow, and a rank of gloo copies with one thread, through the system's sockets. So a correct figure is some 1 GB/s
    of 300 GB/s on two cores, and less of the peak the more cores there are.
    """
    for key, value in draft.values.items():
        of_line = key.startswith("link.") and key.endswith(".bandwidth")
        if not (of_line or key.startswith("sustained.")):
            continue
        table, name = key.split(".")[:2] if of_line else key.split(".")[1:]
        unit = "FLOP/s" if table in ("tensor", "vector") else "B/s"
        peak = draft.values.get(_peak_key(table, name))
        if peak and value > peak:
            message = f"{format_si(value, unit)} is above the peak {format_si(peak, unit)}."
            hint = "Is the peak wrong, the figure sparse, or the data cached?"
            yield draft.finding(key, "error", "sustained-above-peak", f"{message} {hint}")
        elif peak and value < LEAST_SHARE * peak and not of_line and key != f"sustained.link.{PROCESS_LINK}":
            message = f"{format_si(value, unit)} is {100 * value / peak:.2g} % of the peak {format_si(peak, unit)}."
            yield draft.finding(key, "warning", "sustained-implausible", f"{message} Check the unit.")
        elif peak and table == "memory" and value < _least_of_memory(draft, name) * peak:
            message = f"{format_si(value, unit)} is {100 * value / peak:.2g} % of the peak {format_si(peak, unit)}."
            hint = "Streams reach over 70 % of it. Is the rate of another machine, or the peak edited?"
            yield draft.finding(key, "warning", "sustained-implausible", f"{message} {hint}")


def _least_of_memory(draft: Draft, name: str) -> float:
    """Return the least plausible share of the peak of a level: 0 of caches."""
    main = name in MAIN_MEMORY and name in draft.spec.memory
    return LEAST_OF_MEMORY * draft.spec.memory[name].delivered if main else 0.0


def _peak_key(table: str, name: str) -> str:
    if table == "memory":
        return f"memory.{name}.bandwidth"
    return f"link.{name}.per_direction" if table == "link" else f"peak.{table}.{name}"
