"""The order of releases and builds of an engine."""

from __future__ import annotations

import re


def is_before(version: str, other: str) -> bool:
    """Return whether a version is older than another one; one without a number is not.

    >>> is_before("0.6.3.post1", "0.8"), is_before("0.10", "0.8"), is_before("", "0.8")
    (True, False, False)
    """
    given = numbers(version)
    return bool(given) and given < numbers(other)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version or a build.

    >>> numbers("1.2.0rc6"), numbers("b6213"), numbers("nightly")
    ((1, 2, 0), (6213,), ())
    """
    match = re.match(r"[vb]?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()
