"""Rules about the names by which a machine shares what was measured on others: vendor, architecture, generation."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.errors import nearest
from perfmodel.hardware_catalog.lint._draft import Draft, Finding


def check_design(draft: Draft) -> Iterator[Finding]:
    """Warn of a GPU whose vendor or architecture no machine of the catalog has, often another spelling of one.

    Constants of the latency model that a machine lacks come from machines of its generation, else of its vendor. So
    a misspelt name gives it those of all other machines, with wide intervals and without a word.
    """
    spec = draft.spec
    if spec.kind != "gpu" or draft.twin:
        return
    gpus = [known.spec for known in draft.catalog if known.spec.kind == "gpu"]
    vendors = sorted({known.vendor for known in gpus})
    if spec.vendor.lower() not in map(str.lower, vendors):
        yield draft.finding("vendor", "warning", "unknown-vendor", _message(spec.vendor, "vendor", vendors))
        return
    known = sorted({one.architecture for one in gpus if one.vendor.lower() == spec.vendor.lower()})
    if spec.generation or spec.architecture.lower() in map(str.lower, known):
        return
    whose = f"architecture of {spec.vendor}"
    yield draft.finding("architecture", "warning", "unknown-architecture", _message(spec.architecture, whose, known))


def _message(name: str, what: str, known: list[str]) -> str:
    hint = nearest(name, known)
    return (
        f"no machine of the catalog has the {what} {name!r}, so that predictions take constants of other machines. "
        f"{hint}{' ' if hint else ''}Known: {', '.join(known)}."
    )
