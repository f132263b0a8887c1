"""Which release of an engine a text stands for, that may tell a date in place of a number.

Profiles describe an engine by release, but runs are often told by the month in which they were made. A release is known
from such a date where all releases that may be meant have one profile, and are as sure: none of them is on the other
side of a `since`, `until`, `latent_since` or another key of `_EDGES` of a profile of the engine. The days on which
releases came out stand in ``engine_specs/serving/defaults/releases.toml``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

import msgspec

from perfmodel.errors import UsageError
from perfmodel.files import DOCUMENT_SUFFIXES
from perfmodel.serving.engine import Engine, engine_names, find_engine
from perfmodel.serving.release_text import Days, Told, read_release
from perfmodel.serving.versions import is_before
from perfmodel.shipped import read_shipped

#: the profiles' keys at which something changes
_EDGES = ("since", "until", "latent_since", "measured_since", "early_until", "expanded_until")


class Releases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The releases of an engine, as they came out.

    Attributes
    ----------
    engines : families of profiles that describe it.
    source : where the days come from.
    released : release -> first day on which it was out, or on which it is known to have been.
    builds : whether each change of the source has a number, of which ``released`` has a few.
    """

    engines: tuple[str, ...]
    source: str
    released: Mapping[str, date]
    builds: bool = False

    def of(self, days: Days, *, moving: bool = False) -> tuple[str, str] | None:
        """Return the oldest and the newest release that may have been run within some days.

        A release is that of its day or a later one. ``moving`` is whether it was a state of the source, which may have
        what the next release has; so may a build, as ``released`` has few of them. None before the first release.
        """
        first, last = days
        start = min(self.released.values())
        if last < start:
            return None
        oldest, newest = (
            [name for name, day in self.released.items() if day <= end] for end in (max(first, start), last)
        )
        later = list(self.released)[len(newest) :]
        return oldest[-1], later[0] if later and (moving or self.builds) else newest[-1]


class _Meant(NamedTuple):
    """The oldest and the newest release that a text may mean, and the edge of profiles between them, "" for none."""

    oldest: str
    newest: str
    edge: str = ""


@functools.cache
def releases() -> Mapping[str, Releases]:
    """Return the releases of the engines that the shipped file has, by family.

    Raises
    ------
    InputFileError
        When it is wrong.
    """
    every = read_shipped("engine_specs/serving/defaults/releases.toml", dict[str, Releases])
    return {family: known for known in every.values() for family in known.engines}


@functools.cache
def edges(family: str) -> tuple[str, ...]:
    """Return the releases at which a profile of an engine begins, ends, or is surer from there on, in their order."""
    profiles = [one for one in map(find_engine, engine_names()) if one.family == family]
    found = {edge for one in profiles for key in _EDGES if (edge := getattr(one, key))}
    return tuple(sorted(found, key=lambda edge: sum(is_before(other, edge) for other in found)))


def release_of(text: str, engine: str | Engine) -> str:
    """Return the release of an engine that a text stands for; "" where it tells none, or one of several that differ.

    >>> release_of("about 0.11 (latest image, Oct-Nov 2025)", "vllm"), release_of("main of 2024-03-28", "vllm")
    ('0.11', '0.3')
    >>> release_of("March 2025", "vllm"), release_of("nightly-dev", "vllm")
    ('', '')
    """
    family = _profile(engine).family
    meant = _meant(_told(text, family), family)
    return "" if meant is None or meant.edge else meant.oldest


def find_release(text: str, engine: str | Engine) -> str:
    """Return the release that a user's text stands for, and "" for "".

    Raises
    ------
    UsageError
        When it tells no release and no date, or a date of releases that differ.
    """
    if not text or (isinstance(engine, str) and engine.endswith(DOCUMENT_SUFFIXES)):
        return text
    family = _profile(engine).family
    known, told = releases().get(family), _told(text, family)
    meant = _meant(told, family)
    if meant is not None and not meant.edge:
        return meant.oldest
    number = "b6213" if known and known.builds else "0.6.3"
    remedy = f"Write {number}, 2025-06 or June 2025, say." if known else f"Write {number}, say, or leave it out."
    if meant is not None:
        what = f"{text!r} may be {meant.oldest} to {meant.newest}, which differ from {meant.edge} on"
        remedy = f"Write the release, {meant.newest} say, or the day."
        raise UsageError(f"{what}.", place="engine_version", remedy=remedy)
    if told.number or told.days:
        what = f"no day of a release of {family} is known" if known is None else f"{family} had no release then"
        raise UsageError(f"{text!r} tells no release: {what}.", place="engine_version", remedy=remedy)
    raise UsageError(f"{text!r} is no version, and no date.", place="engine_version", remedy=remedy)


def _profile(engine: str | Engine) -> Engine:
    return engine if isinstance(engine, Engine) else find_engine(engine)


def _told(text: str, family: str) -> Told:
    known = releases().get(family)
    return read_release(text, builds=known is not None and known.builds)


def _meant(told: Told, family: str) -> _Meant | None:
    """Return which releases may be meant, None for none."""
    if told.number and not told.before:
        return _Meant(told.number, told.number)
    known = releases().get(family)
    if known is None:
        return None
    if told.number:
        older = [name for name in known.released if is_before(name, told.number)]
        return _Meant(older[-1], older[-1]) if older else None
    ends = known.of(told.days, moving=told.moving) if told.days else None
    if ends is None:
        return None
    divided = (edge for edge in edges(family) if len({is_before(end, edge) for end in ends}) > 1)
    return _Meant(*ends, next(divided, ""))
