"""What the name of a copy tells, in the output of every profiler: where from and where to."""

from __future__ import annotations

import functools
import re

from perfmodel.profile.timeline import CopyDirection

#: Level Zero writes M for the memory of a host that is not pinned: "zeCommandListAppendMemoryCopy(M2D)"
_DIRECTIONS = (
    (re.compile(r"P(?:to|2)P|Peer", re.IGNORECASE), CopyDirection.BETWEEN_DEVICES),
    (re.compile(r"H(?:to|2)D|\(M2D\)|Host[-_]?to[-_]?Device", re.IGNORECASE), CopyDirection.HOST_TO_DEVICE),
    (re.compile(r"D(?:to|2)H|\(D2M\)|Device[-_]?to[-_]?Host", re.IGNORECASE), CopyDirection.DEVICE_TO_HOST),
    (re.compile(r"D(?:to|2)D|Device[-_]?to[-_]?Device", re.IGNORECASE), CopyDirection.DEVICE_TO_DEVICE),
)  # fmt: skip
#: names whose direction is kept: a trace repeats a few
_MOST_NAMES = 4096


@functools.lru_cache(_MOST_NAMES)
def copy_direction(name: str) -> CopyDirection:
    """Return the direction of a copy from its name ("Memcpy HtoD (Pageable -> Device)").

    >>> copy_direction("[CUDA memcpy Device-to-Host]")
    <CopyDirection.DEVICE_TO_HOST: 1>
    """
    return next((direction for pattern, direction in _DIRECTIONS if pattern.search(name)), CopyDirection.UNKNOWN)


def copy_pinned(name: str) -> int:
    """Return 1 if a copy's name says that the host memory is pinned, 0 if pageable, -1 if it does not say."""
    return 1 if "Pinned" in name else 0 if "Pageable" in name else -1


def within_device(name: str) -> bool:
    """Return whether a copy stays in one device's memory, so that it crosses no link.

    >>> within_device("Memcpy DtoD (Device -> Device)"), within_device("Memcpy PtoP (Device -> Device)")
    (True, False)
    """
    return copy_direction(name) is CopyDirection.DEVICE_TO_DEVICE
