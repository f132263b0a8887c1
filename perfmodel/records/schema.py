"""The record that `analyze` and `bench` write: its keys, their types and their units.

Every reader and writer of a record uses these structs. Values are in SI base units; None means unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import CacheState, Timing, Vocabulary

#: kernels that run several operators one after another, also in records whose rows have no ``composition_time_s``
_COMPOSED_NAMES = (
    "naive", "torch.sdpa.math", "torch.sdpa.math.backward", "chunked", "chunked.backward", "experts one by one",
)  # fmt: skip
#: load average over the number of CPUs from which on other processes disturb a measurement
BUSY_SHARE = 0.25
#: calls of a library that run several operators, which the model predicts as what the library does
_CALLS_OF_LIBRARY = ("torch.quantize", "torch.dequantize", "torch.swiglu", "torch.geglu")


class Status(Vocabulary):
    """What came of one kernel. Only a row that is ok has a time."""

    OK = "ok"
    WRONG = "wrong"
    SKIPPED = "skipped"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


class PredictedRow(msgspec.Struct, kw_only=True):
    """The keys of one row of ``analyze`` that a reader of records needs; a row may have more."""

    op: str
    hardware: str
    dtype: str
    name: str | None = None
    dimensions: str | None = None
    params: dict[str, Any] = {}
    engine: str | None = None
    count: int | None = None
    bytes_read: float | None = None
    bytes_written: float | None = None
    working_set_bytes: float | None = None
    arithmetic_intensity_flop_per_byte: float | None = None
    limiter: str | None = None
    bound_time_s: float | None = None
    predicted_time_s: float | None = None
    predicted_time_low_s: float | None = None
    predicted_time_high_s: float | None = None
    attainable_flop_per_s: float | None = None


class Row(PredictedRow, kw_only=True):
    """One row of a record: the keys of ``analyze``, and those of the measurement in a record of ``bench``.

    Attributes
    ----------
    kernel, backend, implementation : which kernel ran; ``implementation`` is its name in tables of measurements.
    status, reason : what came of it, and why there is no time.
    time_s : statistics of the samples: median, mean, stdev, min, max, quantiles [s] and the number of samples.
    measured_time_s : the median [s].
    samples_s : the time of each sample [s], where it was kept.
    stop_reason, calls_per_sample, discarded : why sampling stopped, calls that one sample is the mean of, and how many
        samples were discarded for each reason.
    cache, timing : state of the caches before each sample, and which interval was timed.
    achieved_flop_per_s, achieved_bytes_per_s : the operator's FLOP and compulsory bytes over the median.
    algorithm_bytes_per_s, bus_bytes_per_s : of a collective, as nccl-tests defines them: the message over the median,
        and the bytes that a rank sends in a ring over the median.
    efficiency, utilization : bound over median; the largest share of any datasheet ceiling.
    prediction_error : (predicted - measured) / measured.
    own_bound_time_s : bound of the traffic that the kernel really has, where that is not the operator's [s].
    composition_time_s, composition_time_low_s, composition_time_high_s : expected time of the operators that the kernel
        runs one after another, with its interval [s].
    faster_than_bound, flags, note : what makes the measurement doubtful.
    correct, max_relative_error, checked : the verdict against the float64 reference.
    telemetry : {median, min, max} of each reading while it was measured.
    sustain : rate and state over time, of ``bench --sustain``.
    """

    kernel: str | None = None
    status: Status | None = None
    reason: str | None = None
    time_s: dict[str, float | None] | None = None
    measured_time_s: float | None = None
    stop_reason: str | None = None
    cache: CacheState | None = None
    achieved_flop_per_s: float | None = None
    achieved_bytes_per_s: float | None = None
    algorithm_bytes_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    efficiency: float | None = None
    utilization: float | None = None
    prediction_error: float | None = None
    own_bound_time_s: float | None = None
    faster_than_bound: bool | None = None
    note: str | None = None
    correct: bool | None = None
    max_relative_error: float | None = None
    checked: str | None = None
    telemetry: dict[str, Any] | None = None
    backend: str | None = None
    implementation: str | None = None
    timing: Timing | None = None
    calls_per_sample: int | None = None
    discarded: dict[str, int] | None = None
    flags: str | None = None
    composition_time_s: float | None = None
    composition_time_low_s: float | None = None
    composition_time_high_s: float | None = None
    samples_s: list[float] | None = None
    sustain: dict[str, Any] | None = None

    @property
    def is_composed(self) -> bool:
        """Whether the kernel runs several operators one after another; their traffic differs from the operator's."""
        return is_composed({"kernel": self.kernel, "composition_time_s": self.composition_time_s})

    def point(self) -> dict[str, Any]:
        """Return the row as the mapping that a plot takes."""
        return {**msgspec.structs.asdict(self), "status": self.status or Status.OK}


#: keys that a row of ``bench`` has beside those of ``analyze``, in order
MEASURED_KEYS = tuple(key for key in Row.__struct_fields__ if key not in PredictedRow.__struct_fields__)
#: keys of ``MEASURED_KEYS`` that a row has only on request
OPTIONAL_KEYS = ("samples_s", "sustain")


class Context(msgspec.Struct, kw_only=True):
    """The conditions that the rows hold under.

    Attributes
    ----------
    perfmodel, commit, date : version, commit of the checkout, date and time of the run.
    hardware : names of the machines that the rows are compared with.
    machine, device : the computer and the device: names, versions, clocks, limits.
    libraries : versions of other libraries that kernels are of, those of plugins.
    settings : how every kernel was measured; see `perfmodel.measure.benchmark.settings`.
    spec : specification of the machine that a benchmark was compared with.
    resumed : when the run was resumed.
    memory_limit_bytes : most memory that the run might use [B]; None for no limit.
    """

    perfmodel: str | None = None
    commit: str | None = None
    date: str | None = None
    hardware: list[str] = []
    machine: dict[str, Any] = {}
    device: dict[str, Any] = {}
    libraries: dict[str, str] = {}
    settings: dict[str, Any] = {}
    spec: dict[str, Any] | None = None
    resumed: list[str] = []
    memory_limit_bytes: float | None = None


class Document(msgspec.Struct):
    """The JSON object of a record."""

    schema_version: int
    command: str
    rows: list[Row]
    context: Context = msgspec.field(default_factory=Context)
    notes: list[str] = []


@dataclass(frozen=True)
class Record(Reportable):
    """One record: the rows of one run of ``analyze`` or ``bench``.

    Attributes
    ----------
    command : "analyze" or "bench".
    values : the rows with all their keys, those that this version does not know among them.
    facts : the context with all its keys.
    notes : sentences for people.
    place : the file.
    title : heading for people.
    """

    command: str
    values: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    place: str = ""
    title: str = ""

    @functools.cached_property
    def rows(self) -> list[Row]:
        """The rows with the keys of the schema.

        Raises
        ------
        msgspec.ValidationError
            When a value is not of the type that the schema has for its key.
        """
        return msgspec.convert(self.values, list[Row])

    @functools.cached_property
    def context(self) -> Context:
        """The context with the keys of the schema.

        Raises
        ------
        msgspec.ValidationError
            When a value is not of the type that the schema has for its key.
        """
        return msgspec.convert(self.facts, Context)


def is_composed(row: Mapping[str, Any]) -> bool:
    """Whether a row's kernel runs several operators one after another; their traffic differs from the operator's."""
    kernel = str(row.get("kernel"))
    if kernel.removesuffix(".backward") in _CALLS_OF_LIBRARY:
        return False
    return kernel in _COMPOSED_NAMES or row.get("composition_time_s") is not None


def is_measured(row: Mapping[str, Any]) -> bool:
    """Whether a row has a time of the operator itself, and not of a composition of others."""
    return row["status"] == Status.OK and not is_composed(row)
