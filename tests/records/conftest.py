"""Records of ``perfmodel bench`` made by hand."""

from __future__ import annotations

import json

import pytest

#: a record as version 1 wrote it, shortened; the words that version 2 changed are all in it
VERSION_1 = {
    "schema_version": 1,
    "command": "bench",
    "context": {
        "perfmodel": "0.1.0",
        "hardware": ["a100-sxm4-40gb"],
        "date": "2026-11-20T10:00:00+00:00",
        "machine": {"cpu_count": 8, "load_average": 0.1},
        "device": {"kind": "cuda", "name": "NVIDIA A100-SXM4-40GB", "driver": "570.1", "torch": "2.9.0"},
        "cache": "flushed",
        "settings": {"cache": "flushed", "timing": "event", "seed": 0},
    },
    "rows": [
        {
            "op": "gemm",
            "name": "gemm",
            "dimensions": "m=64 n=64 k=64",
            "params": {"m": 64, "n": 64, "k": 64, "batch": 1, "out_dtype": "fp16", "bias": False, "activation": "none"},
            "dtype": "fp16",
            "count": 1,
            "hardware": "a100-sxm4-40gb",
            "limiter": "launch",
            "fits_in": "l2",
            "resident_limiter": "launch",
            "predicted_time_s": 4.2e-6,
            "predicted_limiter": "tile waste",
            "predicted_terms_s": {"tile waste": 3e-6, "dram": 1.2e-6},
            "kernel": "torch.matmul",
            "backend": "torch",
            "implementation": "torch-torch.matmul",
            "status": "ok",
            "reason": "",
            "time_s": {"median": 5e-6, "median_low": 4.9e-6, "median_high": 5.1e-6, "samples": 40},
            "measured_time_s": 5e-6,
            "cache": "flushed",
            "timing": "graph",
            "efficiency": 0.264,
            "efficiency_text": "26.4 %",
            "prediction_error": -0.16,
            "flags": "",
        },
        {
            "op": "memcpy",
            "name": "memcpy",
            "dimensions": "bytes=1000000",
            "params": {"bytes": 1000000, "direction": "h2d", "pinned": True},
            "dtype": "fp32",
            "count": 1,
            "hardware": "a100-sxm4-40gb",
            "limiter": "pcie",
            "fits_in": "l2",
            "resident_limiter": "pcie",
            "predicted_limiter": "pcie",
            "predicted_terms_s": {"pcie": 3.2e-5},
            "kernel": None,
            "status": "skipped",
            "reason": "there is no kernel for memcpy yet",
            "time_s": None,
            "measured_time_s": None,
            "cache": "flushed",
            "timing": None,
        },
    ],
    "notes": ["memcpy, 1 shape: skipped"],
}


@pytest.fixture
def version_1(tmp_path):
    """The file of a record of version 1."""
    path = tmp_path / "version_1.json"
    path.write_text(json.dumps(VERSION_1))
    return path
