"""Verdicts on the figures of a device, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import Vocabulary
from perfmodel.measure.health.readings import Readings
from perfmodel.records.schema import Record, Status

#: least traffic of a row that shows the bandwidth of a GPU's memory instead of its cache's [B]
_BEYOND_CACHES = 2**29


class Verdict(Vocabulary):
    """What a figure says about a device."""

    OK = "ok"
    LOW = "low"
    WRONG = "wrong"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Reference:
    """Rates of this product in an earlier record.

    Attributes
    ----------
    source : name of the record.
    bandwidth_bytes_per_s : best bandwidth of copies and additions beyond the caches [B/s].
    flop_per_s : dtype -> best rate of matrix products [FLOP/s].
    """

    source: str
    bandwidth_bytes_per_s: float | None = None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Record, source: str) -> Reference:
        """Return the best rates among the rows of a record that are ok and not doubtful."""
        streams: list[float] = []
        products: dict[str, float] = {}
        for row in record.rows:
            if row.status != Status.OK or row.flags:
                continue
            traffic = (row.bytes_read or 0) + (row.bytes_written or 0)
            if row.op == "elementwise" and row.achieved_bytes_per_s and traffic >= _BEYOND_CACHES:
                streams.append(row.achieved_bytes_per_s)
            elif row.op == "gemm" and row.achieved_flop_per_s:
                products[row.dtype] = max(products.get(row.dtype, 0.0), row.achieved_flop_per_s)
        return cls(source, max(streams, default=None), products)


@dataclass(frozen=True)
class Check:
    """One figure and its verdict.

    Attributes
    ----------
    area : "bandwidth", "compute", "clocks", "pcie", "power", "partition", "load".
    figure : what was measured.
    verdict : of the figure.
    measured, low, high, unit : the figure and the expected range, in SI units; None where there is none.
    source : source of the range.
    cause : the likely cause of a verdict other than ok, or why the figure is not judged.
    """

    area: str
    figure: str
    verdict: Verdict
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    source: str = ""
    cause: str = ""


@dataclass(frozen=True)
class DeviceHealth(Reportable):
    """The verdicts on all figures of a device.

    Attributes
    ----------
    device : name of the device.
    kind : "cpu" or "cuda".
    machine : the machine that the device should be; None for a CPU of which nothing is known.
    readings : what was read.
    checks : one verdict for each figure.
    """

    device: str
    kind: str
    machine: Hardware | None
    readings: Readings
    checks: Sequence[Check]

    @property
    def is_wrong(self) -> bool:
        """Whether some figure is wrong."""
        return any(check.verdict == Verdict.WRONG for check in self.checks)
