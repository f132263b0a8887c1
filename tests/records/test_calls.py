"""Measured calls from records: what cannot be a call is one message with its row."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from perfmodel.errors import InputFileError
from perfmodel.records.calls import read_calls
from perfmodel.records.record import read_record

GEMM = {
    "op": "gemm",
    "hardware": "l4",
    "dtype": "fp16",
    "kernel": "torch.mm",
    "status": "ok",
    "measured_time_s": 1e-5,
    "params": {"m": 64, "n": 64, "k": 64},
}


def written(folder, *rows):
    path = folder / "record.json"
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "rows": rows}))
    return path


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"m": 10**400, "n": 64, "k": 64}, "too large"),
        ({"m": [1, 2], "n": 64, "k": 64}, "m: one call has one size"),
        ({"m": -1, "n": 64, "k": 64}, "m"),
        ({"m": 64, "n": 64, "k": 64, "colour": "red"}, "colour"),
    ],
    ids=["huge", "several", "negative", "unknown"],
)
def test_parameters_that_no_operator_has_are_one_message_with_the_row(tmp_path, params, part):
    path = written(tmp_path, GEMM, {**GEMM, "params": params})
    with pytest.raises(InputFileError, match=r"record\.json: row 2: .*" + part):
        read_calls(path)


def test_a_kernel_of_several_operators_is_a_call_with_parts_where_they_are_known(tmp_path):
    composed = {**GEMM, "kernel": "two", "composition_time_s": 2e-5}
    path = written(tmp_path, GEMM, composed, {**composed, "kernel": "secret"})

    def parts_of(op, kernel):
        return ((op, op), "") if kernel == "two" else ((), f"nobody knows {kernel}")

    found = read_calls(path, parts_of)
    assert [(call.line.tolist(), [part.m for part in call.parts]) for call in found.calls] == [
        ([1], []),
        ([2], [64, 64]),
    ]
    assert [(s.reason, s.rows, s.place) for s in found.skipped] == [
        ("a composition of several kernels: nobody knows secret", 1, f"{path}:3")
    ]
    assert [str(s.reason) for s in read_calls(path).skipped] == ["a composition of several kernels"]
    with pytest.raises(InputFileError, match=r"row 1: .*m"):
        read_calls(written(tmp_path, {**composed, "params": {"m": -1, "n": 64, "k": 64}}), parts_of)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": "failed"}, "status 'failed'"),
        ({"measured_time_s": 5e-324}, "measured_time_s is not above zero (1e-15 s)"),
    ],
)
def test_rows_without_a_time_are_counted_with_their_reason(tmp_path, change, reason):
    calls = read_calls(written(tmp_path, GEMM, {**GEMM, **change}))
    assert sum(map(len, calls.calls)) == 1
    assert [skipped.reason for skipped in calls.skipped] == [reason]


def test_a_packed_record_is_read_as_it_is(tmp_path):
    plain = written(tmp_path, GEMM)
    packed = tmp_path / "record.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found, expected = read_calls(packed), read_calls(plain)
    assert [call.op.params() for call in found.calls] == [call.op.params() for call in expected.calls]
    damaged = tmp_path / "half.json.gz"
    damaged.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InputFileError, match=r"half\.json\.gz"):
        read_calls(damaged)


RECORDS = sorted((Path(__file__).parents[2] / "examples" / "records").glob("*.json.gz"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_the_shipped_records_say_where_their_figures_come_from(path):
    record = read_record(path, ("bench",))
    device = record.facts["device"]
    assert device["kind"] == "cuda"
    assert {"name", "driver", "torch", "cuda", "triton", "max_sm_clock_hz", "before"} <= device.keys()
    assert record.facts["date"].startswith(path.name.split("_")[1].removesuffix(".json.gz"))
    assert sum(map(len, read_calls(path).calls)) > 100


EXCHANGE = {
    "op": "all_reduce", "hardware": "h100-sxm5-80gb", "dtype": "bf16", "kernel": "all_reduce", "status": "ok",
    "measured_time_s": 1e-3, "implementation": "nccl",
}  # fmt: skip


@pytest.mark.parametrize(
    ("params", "ranks", "spec", "nodes"),
    [
        ({"num_gpus": 16}, {"backend": "nccl", "ranks_by_host": {"a": 16}}, {"name": "l40s"}, 1),
        ({"num_gpus": 16}, {"backend": "nccl", "ranks_by_host": {"a": 16}}, {"cluster": {}}, None),
        ({}, {"backend": "nccl", "ranks_by_host": {"a": 1, "b": 1}}, {}, 2),
        ({"nodes": 2}, {"backend": "nccl", "ranks_by_host": {"a": 1, "b": 1}}, {}, 2),
        ({}, {"backend": "nccl", "ranks_by_host": {"a": 2}}, {}, None),
        ({}, {"backend": "gloo", "ranks_by_host": {"a": 1, "b": 1}}, {}, None),
        ({}, {}, {}, None),
        (
            {},
            {"backend": "nccl", "ranks_by_host": {"a": 1, "b": 1}},
            {"link": {"nvlink": {"domain": 72}}, "cluster": {"gpus_per_node": 4}},
            None,
        ),
    ],
)
def test_ranks_on_several_hosts_exchange_between_nodes(tmp_path, params, ranks, spec, nodes):
    row = {**EXCHANGE, "params": {"bytes": 2**20, "num_gpus": 2, **params}}
    path = tmp_path / "record.json"
    context = {"ranks": ranks, "spec": spec}
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "rows": [row], "context": context}))
    (call,) = read_calls(path).calls
    assert call.op.nodes == nodes


@pytest.mark.parametrize(
    ("kernel", "library", "version"),
    [
        ("torch-torch.matmul", "torch", "2.11.0"),
        ("torch-torch.sdpa.flash", "torch/fa2", "2.11.0"),
        ("triton-triton.gemm", "triton", "3.6.0"),
        ("vllm-0.24.0", "vllm", "0.24.0"),
        ("cublas", "cublas", ""),
    ],
)
def test_a_call_has_the_release_that_its_record_names(tmp_path, kernel, library, version):
    path = tmp_path / "record.json"
    device = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
    rows = [{**GEMM, "implementation": kernel}]
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "context": {"device": device}, "rows": rows}))
    (call,) = read_calls(path).calls
    assert (call.library, call.version) == (library, version)


def test_sums_by_index_of_a_record_are_those_of_its_release():
    """PyTorch adds rows of whole vectors in bulk from 2.13 on, in longer blocks; the records have 2.11."""
    (path,) = (path for path in RECORDS if path.name == "h200-sxm-141gb_2026-11-23_unseen.json.gz")
    found = read_calls(path, lambda op, kernel: ((op,), ""))
    sums = [call for call in found.calls if call.op.op == "scatter_add"]
    assert sums
    assert {call.conditions.release[:2] for call in sums} == {(2, 11)}
