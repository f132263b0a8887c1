"""No honest measurement beats the bound: over the public tables, beyond what a clock can boost, and the exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.accuracy.calibration import usable
from perfmodel.accuracy.judge import BOOST
from perfmodel.records.measurements import read_measurements

TABLES = (
    "aic_attention_decode", "aic_attention_prefill", "aic_collectives", "aic_gemm", "neusight_conv2d_fp32",
    "neusight_elementwise_fp32", "neusight_gemm_fp32", "neusight_layer_norm_fp32", "neusight_softmax_fp32",
)  # fmt: skip
#: (table, hardware, implementation) -> why its rows can beat the bound, and how many there are at most
EXCEPTIONS = {
    ("aic_attention_prefill", "b200-sxm-180gb", "sglang-0.5.10/trtllm_mha"): (
        "labelled as full attention, and its time grows in proportion to the sequence: the kernel had a window",
        345,
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_no_unflagged_row_is_faster_than_physics(table: str, data_dir: Path) -> None:
    """Warm rows have the floor of warm calls (`floor_time`), convolutions that of Winograd's fewest products."""
    found: dict[tuple[str, str, str], int] = {}
    for call in read_measurements(data_dir / "measurements" / f"{table}.csv.gz").calls:
        _, reasons = usable(call, pm.hardware(call.hardware))
        if reasons.get("faster than the bound"):
            key = (table, call.hardware, call.implementation)
            found[key] = found.get(key, 0) + reasons["faster than the bound"]
    for key, rows in found.items():
        assert key in EXCEPTIONS, f"{key}: {rows} rows beat the bound by more than {BOOST - 1:.0%}"
        assert rows <= EXCEPTIONS[key][1]
    assert {key for key in EXCEPTIONS if key[0] == table} == set(found), "an exception that is none any more"
