"""Rules about the file itself: sources, names, required figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog.lint._draft import Draft, Finding, names_of
from perfmodel.hardware_catalog.names import name_key
from perfmodel.hardware_catalog.read import to_hardware
from perfmodel.hardware_catalog.schema import KernelsSpec, RateSpec
from perfmodel.hardware_catalog.spec_folders import search_folders
from perfmodel.prediction.usual_figures import left_out

#: texts shorter than "DS-1" are placeholders
SOURCE_LENGTH = 4
#: facts that datasheets leave out -> how the source of their table names them: "process: WHERE" or
#: "process: assumed: WHY"
NAMED_FACTS = {
    "process": "process",
    "warp_schedulers_per_sm": "warp schedulers",
    "exponentials_per_clock_per_sm": "exponentials",
    "matrix_instruction": "matrix instruction",
    "tensor_share": "tensor share",
}


def check_sources(draft: Draft) -> Iterator[Finding]:
    """Find tables with figures but without a source."""
    for key, table, has_figures in _tables(draft):
        source = table.get("source", "") if isinstance(table, dict) else table.source
        if has_figures and len(source.strip()) < SOURCE_LENGTH:
            message = f"the figures in [{key}] have no source. Add source = '...'."
            yield draft.finding(key, "error", "missing-source", message)


def _tables(draft: Draft) -> Iterator[tuple[str, Any, bool]]:
    """Yield key, table, and whether figures in it need the table's source."""
    spec = draft.spec
    yield "chip", spec.chip, any(key.startswith("chip.") for key in draft.values) or spec.chip.sm_count is not None
    for name, level in spec.memory.items():
        yield f"memory.{name}", level, any(key.startswith(f"memory.{name}.") for key in draft.values)
    for engine, rates in spec.peak.items():
        without_source = any(not rate.source for rate in rates.values() if isinstance(rate, RateSpec))
        yield f"peak.{engine}", rates, without_source
    for name, link in spec.link.items():
        yield f"link.{name}", link, True
    if spec.cluster is not None:
        yield "cluster", spec.cluster, True
    yield "launch", spec.launch, any(key.startswith("launch.") for key in draft.values)
    yield "kernels", spec.kernels, spec.kernels != KernelsSpec()
    yield "sustained", spec.sustained, any(key.startswith("sustained.") for key in draft.values)


def check_assumptions(draft: Draft) -> Iterator[Finding]:
    """Find facts that the table's source does not name, and assumptions without a reason.

    A source is the place of the figures in its table. What stands elsewhere follows as ``"FACT: WHERE"``, and what
    nobody states as ``"FACT: assumed: WHY"``.
    """
    for key, table, _ in _tables(draft):
        source = table.get("source", "") if isinstance(table, dict) else table.source
        sources = [source, *(rate.source for rate in _rates(table))]
        if any(re.search(r"\bassumed\b(?!: *[^;\s])", text) for text in sources):
            message = f"the source of [{key}] says 'assumed' without a reason. Write 'assumed: WHY'."
            yield draft.finding(f"{key}.source", "error", "assumption-without-reason", message)
    facts = {f"chip.{fact}": (getattr(draft.spec.chip, fact), name) for fact, name in NAMED_FACTS.items()}
    sources = [(key, value, name, draft.spec.chip.source) for key, (value, name) in facts.items()]
    sources += [
        (f"memory.{name}.copies", level.copies > 1, "copies", level.source) for name, level in draft.spec.memory.items()
    ]
    for key, value, name, source in sources:
        if value and f"{name}: " not in source:
            message = f"datasheets do not give it. Add '{name}: WHERE' or '{name}: assumed: WHY' to the source."
            yield draft.finding(key, "info", "fact-without-source", message)


def _rates(table: Any) -> list[RateSpec]:
    """Return the rates in a table of peaks, none for another table."""
    return [rate for rate in table.values() if isinstance(rate, RateSpec)] if isinstance(table, dict) else []


def check_names(draft: Draft) -> Iterator[Finding]:
    """Find names of other products, and in a folder of the catalog a file name that is not the machine's name."""
    stem = storage.stem_of(draft.file)
    if draft.file.endswith(".toml") and stem != draft.spec.name and _is_in_catalog(draft.file):
        message = f"the machine is {draft.spec.name!r}, the file {stem!r}; the catalog uses the name of the file."
        yield draft.finding("name", "warning", "name-differs-from-file", message)
    for key, names in (("aliases", draft.spec.aliases), ("device_names", draft.spec.device_names)):
        for name in names:
            owners = [other.spec.name for other in draft.others() if name_key(name) in names_of(other.spec)]
            if owners:
                message = f"{name!r} is a name of {owners[0]}. A name must belong to one machine."
                yield draft.finding(key, "error", "name-claimed", message)
    yield from _taken_from_twin(draft)


def _is_in_catalog(file: str) -> bool:
    """Return whether a file is found by its name; files elsewhere are named by their paths."""
    if storage.is_remote(file):
        return False
    folder = Path(storage.place_of(file)).resolve().parent
    return any(folder == searched.resolve() for searched in search_folders())


def _taken_from_twin(draft: Draft) -> Iterator[Finding]:
    """Find names of the catalog's product in a file of another name: a copy takes them from it."""
    twin = draft.twin.spec if draft.twin else None
    if twin is None or twin.name == draft.spec.name:
        return
    named = (("name", [draft.spec.name]), ("aliases", draft.spec.aliases), ("device_names", draft.spec.device_names))
    for key, names in named:
        taken = [name for name in names if name_key(name) in names_of(twin)]
        if taken:
            listed, other = ", ".join(map(repr, taken)), f"another name, or name = {twin.name!r} for that product"
            remedy = f"Give it {other}." if key == "name" else f"Take out what does not name {draft.spec.name!r}."
            message = f"{listed}: of {twin.name}; in PERFMODEL_HARDWARE this file would stand for it. {remedy}"
            yield draft.finding(key, "warning", "name-claimed", message)


def check_bandwidth_given(draft: Draft) -> Iterator[Finding]:
    """Find a GPU without memory bandwidth."""
    if draft.spec.kind == "gpu" and "hbm" in draft.spec.memory and draft.spec.memory["hbm"].bandwidth is None:
        message = "the bandwidth is missing: every kernel would be compute-bound. Add bandwidth = '... GB/s'."
        yield draft.finding("memory.hbm", "error", "missing-bandwidth", message)


def check_figures_given(draft: Draft) -> Iterator[Finding]:
    """Find figures of a GPU that predictions need, and for which usual ones stand where they are left out."""
    try:
        machine = to_hardware(draft.spec, draft.file, lazy=True)
    except InputFileError:
        return  # of which other findings tell
    for figure in left_out(machine):
        message = f"it is missing: predictions assume {figure.words}, and their intervals are wider."
        yield draft.finding(figure.key, "warning", "missing-figure", message)
