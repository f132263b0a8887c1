"""What laboratories differ by: how much less sure a deployment is than those whose runs set the constants.

Published runs of others, which nobody here had seen, take longer than predicted more often than not: their releases,
settings, hosts and clients are their own. `examples/published` has them, `scripts/fit_laboratories.py` finds what they
differ by. A release before those that were measured, one that is not known, and a vendor of whose machines no run was
fitted, are less sure still; so is an engine that no profile describes, whose kernels and host nobody looked at. Models
with latent attention and experts in blocks of fp8 (DeepSeek-V3) ran in the releases of their first months with kernels
that were not tuned for them yet. No run of a hybrid, some of whose layers keep a state, set the constants: its runs are
a kind of their own, whoever runs them, where nothing else makes them less sure. So are those of models with an indexer
(DeepSeek-V3.2, GLM-5), whose kernels are the first ones in most releases, and with compressed keys (DeepSeek-V4).

A prompt that is read alone shows what it takes. With several users it waits for prompts of others and for steps that
run, and how many meet follows from a client, its threads and its first requests, which nobody states: times to the
first token of several users are less sure, to both sides.

Where requests arrive whether or not others have ended, a server of less capacity than predicted lets them queue: steps
count as less sure there, so that the simulation of slow ones shows what queues, and times to the first token, too.
Those that arrive all at once, as benchmarks at the highest rate send them, are a load of their own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from perfmodel.core.hardware import Hardware
from perfmodel.prediction.stretch import Stretch
from perfmodel.serving.engine import GENERIC, Engine
from perfmodel.serving.versions import is_before
from perfmodel.shipped import read_shipped

#: keys of the kinds of deployments
ELSEWHERE, UNMEASURED, UNPROFILED, YOUNG, HYBRID, INDEXED = (
    "elsewhere", "unmeasured", "unprofiled", "young", "hybrid", "indexed",
)  # fmt: skip
#: the laboratory against which others are judged: it differs by nothing
ITSELF = "itself"
#: kind -> whose runs took longer, as a sentence begins
_RUNS_OF = {
    ELSEWHERE: "Runs of other laboratories",
    UNMEASURED: "Runs of releases and vendors not measured",
    UNPROFILED: "Runs of engines without a profile",
    YOUNG: "Runs of the first releases with latent attention",
    HYBRID: "Runs of models whose layers keep a state",
    INDEXED: "Runs of models with sparse attention",
}


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured over predicted time: what laboratories differ by, beside the interval of those that were fitted."""

    low: float
    high: float


class Laboratories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose runs set the constants, and what others differ by.

    Attributes
    ----------
    names : the beginnings of the sources of the runs that were fitted.
    vendors : of the machines of these runs.
    step, first : kind of deployment, "elsewhere", "unmeasured", "unprofiled", "young", "hybrid" or "indexed" -> what
        steps differ by, and what the time to the first token differs by beyond them.
    loaded_first : the same -> what the time to the first token differs by beyond that with several users.
    open_step, open_first : the same -> what both differ by beyond that where requests arrive one after another, whether
        or not others have ended.
    burst_step, burst_first : the same where they arrive all at once.
    sources : where the figures come from, by name.
    """

    names: tuple[str, ...]
    vendors: tuple[str, ...]
    step: Mapping[str, Span]
    first: Mapping[str, Span]
    loaded_first: Mapping[str, Span]
    open_step: Mapping[str, Span]
    open_first: Mapping[str, Span]
    burst_step: Mapping[str, Span]
    burst_first: Mapping[str, Span]
    sources: Mapping[str, str]
    date: str = ""


class Elsewhere(NamedTuple):
    """What a deployment's laboratory may differ by: in its steps, and beyond them in the time to the first token.

    ``loaded_first`` comes on top with several users, ``open_step`` and ``open_first`` in an open loop, whose requests
    arrive whether or not others have ended, ``burst_step`` and ``burst_first`` where they arrive all at once. ``kind``
    is "" for laboratories whose runs were fitted, which differ by nothing.
    """

    kind: str = ""
    step: Stretch = Stretch()
    first: Stretch = Stretch()
    loaded_first: Stretch = Stretch()
    open_step: Stretch = Stretch()
    open_first: Stretch = Stretch()
    burst_step: Stretch = Stretch()
    burst_first: Stretch = Stretch()

    @property
    def middle(self) -> float:
        """The middle of what steps took over their prediction, as ratios go."""
        return math.exp((self.step.up - self.step.down) / 2.0)


@functools.cache
def laboratories() -> Laboratories:
    """Return what the shipped file says.

    Raises
    ------
    InputFileError
        When it is wrong.
    """
    return read_shipped("engine_specs/serving/defaults/laboratories.toml", Laboratories)


def elsewhere_of(
    hardware: Hardware,
    engine: Engine,
    version: str,
    laboratory: str,
    *,
    release_known: bool = True,
    latent: bool = False,
    hybrid: bool = False,
    indexed: bool = False,
) -> Elsewhere:
    """Return what the laboratory of a deployment differs by.

    Parameters
    ----------
    hardware, engine, version : the machine, the profile, and the version of the engine; "" is one of today.
    laboratory : who runs it, as the sources of published runs name them; "" is anybody, `ITSELF` differs by nothing.
    release_known : whether "" is one of today, and not an unknown one.
    latent : whether the model has latent attention.
    hybrid, indexed : whether it has layers with a state, or an indexer that chooses keys, or compressed ones: no
        laboratory's runs of such a model set the constants.
    """
    known = laboratories()
    if engine.own or laboratory == ITSELF or (laboratory.startswith(known.names) and not (hybrid or indexed)):
        return Elsewhere()
    if indexed:  # its runs are on machines of both vendors and of many releases
        return _elsewhere(known, INDEXED)
    if latent and _is_older(engine, version, engine.latent_since):
        return _elsewhere(known, YOUNG)
    since = engine.measured_since
    unknown = bool(since) and not version and not release_known
    older = unknown or _is_older(engine, version, since)
    if older or hardware.vendor not in known.vendors:  # which runs show to be the least sure, with a profile or without
        return _elsewhere(known, UNMEASURED)
    return _elsewhere(known, UNPROFILED if engine.name == GENERIC else HYBRID if hybrid else ELSEWHERE)


def _is_older(engine: Engine, version: str, since: str) -> bool:
    """Return whether a version is before ``since``; none is one of the profile's, which may all be."""
    return bool(since) and (is_before(version, since) if version else engine.until != "")


def _elsewhere(known: Laboratories, kind: str) -> Elsewhere:
    spans = (
        known.step, known.first, known.loaded_first, known.open_step, known.open_first, known.burst_step,
        known.burst_first,
    )  # fmt: skip
    return Elsewhere(kind, *(Stretch.of(by_kind[kind]) for by_kind in spans))


def because(found: Elsewhere, *, arriving: bool = False) -> str:
    """Return why an interval is wide, as a sentence; "" where no laboratory makes it so.

    ``arriving`` is whether requests arrive on their own, as in an open loop.
    """
    if not found.kind:
        return ""
    low, high = math.exp(-found.step.down), math.exp(found.step.up)
    more = ", and first tokens of requests that arrive on their own longer still" if found.open_first.up > 0.0 else ""
    return (
        f"{_RUNS_OF[found.kind]} took {low:.2f} to {high:.2f} times as long as predicted from the well-tuned ones that "
        f"set the constants{more if arriving else ''}: the interval counts it. Ten runs of your own (`calibrate "
        "--engine`) take it away."
    )
