"""Tables of mixtures of experts as aiconfigurator writes them, as columns of a table of measurements.

Its columns are ``gpu, framework, framework_version, dtype, num_tokens, hidden_size, inter_size, topk, num_experts,
moe_tp_size, moe_ep_size, distribution, kernel_source, latency_ms``, in CSV or Parquet. A table in perfmodel's own
schema may have these names for the dimensions of ``moe``, too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence

import numpy as np

from perfmodel import storage
from perfmodel.errors import InputFileError, not_installed
from perfmodel.files import check_regular
from perfmodel.operators.base import Operator
from perfmodel.operators.moe import Moe

Columns = Mapping[str, Sequence[str]]

#: column -> the dimension or column that it is
_NAMES = {
    "gpu": "hardware", "num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "inter",
    "intermediate_size": "inter", "topk": "top_k", "num_experts": "experts", "moe_tp_size": "tp", "moe_ep_size": "ep",
}  # fmt: skip
#: columns that only aiconfigurator's layout has; they become others
_FOREIGN = ("framework", "framework_version", "kernel_source", "latency_ms", "source_path")
#: how a distribution of the tokens starts that is a power law
_POWER_LAW = "power_law_"
#: SGLang's kernels that compute the slots of other ranks, too
_REMOTE = ("sglang_fused_moe_triton", "sglang_marlin_moe")
#: one of them, and the start of the name of the machine on which it skips these slots: computing them all would take
#: 2,444 TFLOP/s in bf16 on B200, above its peak; without them the rows are off by 17 % (bf16) and 11 % (fp8 in blocks)
#: in the mean, with them by 22 and 18
_SKIPPING = ("sglang_fused_moe_triton", "b200")
#: kernels of experts without a gate have this in their name
_NOT_GATED = "nongated"
PARQUET = ".parquet"


def tidy(columns: Columns) -> dict[str, Sequence[str]]:
    """Return the columns under perfmodel's names; those of a table in perfmodel's schema stay as they are."""
    if "experts" not in columns and "num_experts" not in columns:
        return dict(columns)
    found = {_NAMES[name] if _NAMES.get(name, name) not in columns and name in _NAMES else name: cells
             for name, cells in columns.items()}  # fmt: skip
    if "distribution" in found:
        words = [str(cell).strip().lower() for cell in found.pop("distribution")]
        found.setdefault("routing", ["balanced" if word == "balanced" else "" for word in words])
        found.setdefault(
            "skew", [word.removeprefix(_POWER_LAW) if word.startswith(_POWER_LAW) else "" for word in words]
        )
    if "latency_ms" in found and "time_s" not in found:
        found["time_s"] = [_seconds(cell) for cell in found["latency_ms"]]
        found.setdefault("op", [Moe.op] * len(found["time_s"]))
        found.setdefault("timing", ["kernel"] * len(found["time_s"]))
        found.setdefault("implementation", _implementations(found))
        found = {name: cells for name, cells in found.items() if name not in _FOREIGN}
    # The layer runs again and again on the same weights: L40S reads up to 90 MB of them at twice its bandwidth.
    if "cache" not in found and set(found.get("op", ())) == {Moe.op}:
        found["cache"] = ["warm"] * len(found["op"])
    return found


def _seconds(cell: str) -> str:
    """Return milliseconds as seconds; the reader explains what is no number."""
    try:
        return repr(float(cell) * 1e-3)
    except ValueError:
        return cell


def _implementations(columns: Columns) -> list[str]:
    """Return "library-version/kernel" of each row."""
    rows = len(columns["time_s"])
    parts = [columns.get(name, [""] * rows) for name in ("framework", "framework_version", "kernel_source")]
    return [f"{library}-{version}/{kernel}" for library, version, kernel in zip(*parts, strict=True)]


def moe_words(implementation: str, words: dict[str, str]) -> None:
    """Add what an implementation says of a layer: serving libraries time it without the router's product."""
    words.setdefault("router", "false")
    if _NOT_GATED in implementation:
        words.setdefault("gated", "false")


def as_computed(op: Operator, implementation: str, hardware: str) -> Operator:
    """Return a layer with the slots of other ranks, where the kernels of an implementation compute them."""
    kernel = implementation.rpartition("/")[2]
    skipped = kernel == _SKIPPING[0] and hardware.lower().startswith(_SKIPPING[1])
    remote = isinstance(op, Moe) and not np.any(op.slots) and kernel in _REMOTE and not skipped
    return op.with_remote_slots() if remote and isinstance(op, Moe) else op


def read_parquet(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the columns of a Parquet file as text.

    Raises
    ------
    InputFileError
        When there is no such file, or it cannot be read as Parquet.
    UnavailableError
        When pyarrow is not installed.
    """
    place = os.fspath(path)
    check_regular(path)
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        need = "reading a Parquet table needs pyarrow"
        raise not_installed(need, "parquet", place=place, instead="convert the table to CSV") from None
    try:
        table = parquet.read_table(storage.local(path)).to_pydict()
    except FileNotFoundError:
        raise InputFileError("no such file.", place=place, remedy="Check the path.") from None
    except (OSError, ValueError) as error:  # pyarrow's errors are of these
        reason = str(error).splitlines()[0][:120]
        raise InputFileError(
            f"cannot be read as Parquet: {reason}.", place=place, remedy="Is the path right?"
        ) from None
    return {name: ["" if cell is None else str(cell) for cell in cells] for name, cells in table.items()}
