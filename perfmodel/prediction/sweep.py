"""Sweeps of very many points in bounded memory, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.predict import CHUNK, pieces
from perfmodel.prediction.result import Prediction


def sweep(
    op: Operator,
    hardware: Hardware,
    *,
    chunk: int = CHUNK,
    timing: str = Timing.KERNEL,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
) -> Iterator[Prediction]:
    """Yield the predictions of an operator whose dimensions are arrays, ``chunk`` points at a time.

    The dimensions broadcast with each other, so that ``m`` of shape [M, 1] and ``n`` of shape [N] span M x N points.
    The points come in row-major order. Only one chunk is in memory at a time, so that 10^8 points need no more of it
    than 10^5. The other parameters are those of `predict`.

    Raises
    ------
    UsageError
        As `predict`, and when ``chunk`` is below 1.

    >>> from perfmodel import Gemm, hardware
    >>> sizes = np.arange(64.0, 8192.0, 64.0)
    >>> points = sweep(Gemm(m=sizes[:, None], n=sizes, k=4096, dtype="bf16"), hardware("a100-sxm4-80gb"), chunk=1000)
    >>> sum(part.predicted_time_s.size for part in points)
    16129
    """
    if chunk < 1:
        raise UsageError(f"chunk={chunk} is below 1.", place="sweep")
    yield from pieces(op, hardware, Conditions.parse(timing, cache, library, load), chunk)
