"""The constants that training frameworks share, from ``engine_specs/training/defaults``."""

from __future__ import annotations

import functools

import msgspec

from perfmodel.shipped import read_shipped


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured over predicted time: quantiles at 10 % and 90 % of rows that were not fitted."""

    low: float
    high: float


class Constants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What frameworks share, each with its source in the file.

    Attributes
    ----------
    sources : where each constant comes from, by key.
    memory_bound : class of kernels -> time over that of a copy of the same bytes.
    casts : time of a cast to 8 bits over that of a copy of the bytes that it has to move.
    sm_share : share of a hidden exchange that the compute beside it loses.
    fsdp_share : the same where each layer's weights are gathered in every micro batch.
    chart_factor : kernel of attention -> time over that of its chart.
    routing : time of sending tokens to experts over that of an all-to-all.
    host_s : time that a pass of a layer with experts waits for the host [s].
    dispatch_s, dispatch_deviation : time of the host to launch a kernel in eager mode [s], and the standard deviation
        of its logarithm between laboratories, whose processors, releases and code differ.
    intervals : how well a prediction is known: "seen" for frameworks and machines with rows that were fitted,
        "unseen" for others, "experts" for mixtures of experts; "elsewhere", what laboratories beside those that
        published these rows differ by in their steps, "undescribed" the same with a framework that nobody described,
        for which the nearest stands, and "memory" in the memory that they print.
    seen : frameworks with rows.
    seen_machines : machines with rows, by their names in the catalog.
    laboratories : who published the rows, as the beginning of their sources.
    date : when they were fitted, as in "2026-01-31".
    """

    sources: dict[str, str]
    memory_bound: dict[str, float]
    casts: float
    sm_share: float
    fsdp_share: float
    chart_factor: dict[str, float]
    routing: float
    host_s: float
    dispatch_s: float
    dispatch_deviation: float
    intervals: dict[str, Interval]
    seen: tuple[str, ...] = ()
    seen_machines: tuple[str, ...] = ()
    laboratories: tuple[str, ...] = ()
    date: str = ""

    def ran(self, laboratory: str) -> bool:
        """Return whether a laboratory, given by the source of a run, is one of those whose runs were fitted."""
        return laboratory.startswith(self.laboratories)


@functools.cache
def constants() -> Constants:
    """Return the constants that frameworks share."""
    return read_shipped("engine_specs/training/defaults/constants.toml", Constants)
