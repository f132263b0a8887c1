"""The table of kernel targets, on rows written by hand."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from perfmodel.records.record import parse_record

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kernel_targets.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("kernel_targets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _row(op, backend, kernel, time_s, params, **more):
    row = {"op": op, "backend": backend, "kernel": kernel, "status": "ok", "measured_time_s": time_s, "params": params}
    row |= {"hardware": "simple", "dtype": "bf16", "dimensions": "", "bytes_read": 3e8, "bytes_written": 3e8}
    return row | {"achieved_bytes_per_s": 6e8 / time_s, "achieved_flop_per_s": 2 * 8192**3 / time_s} | more


CUBE = {"m": 8192, "n": 8192, "k": 8192}
ROWS = [
    _row("elementwise", "torch", "torch.copy", 1.5e-4, {"kind": "copy"}),  # 4 TB/s
    _row("elementwise", "triton", "triton.elementwise", 1.5625e-4, {"kind": "add"}),  # 3.84 TB/s: 96 %
    _row("layer_norm", "triton", "triton.layer_norm", 2e-4, {}),  # 3 TB/s: 75 %
    _row("gemm", "torch", "torch.matmul", 1.40e-3, CUBE),
    _row("gemm", "triton", "triton.gemm", 1.75e-3, CUBE),
    _row("gemm", "triton", "triton.gemm.tma", 1.50e-3, CUBE),  # 1.40 / 1.50 = 93.3 %
]


def _document(rows):
    return {"schema_version": 2, "command": "bench", "rows": rows}


def _read(rows):
    return parse_record(_document(rows), "record.json").rows


def _met(script, rows):
    return {target.what: (target.reached.partition(":")[0], target.met) for target in script.targets(_read(rows))}


def test_shares_by_hand(script):
    found = _met(script, ROWS)
    assert found["add, triton, of the copy's bandwidth"] == ("96.0%", True)
    assert found["layer_norm, triton, of the copy's bandwidth"] == ("75.0%", False)
    assert found["gemm bf16 8192^3, triton, of cuBLAS"] == ("93.3%", True)
    assert found["attention bf16 8k causal, triton, of the best SDPA"] == ("not measured", False)


def test_small_tensors_and_failed_kernels_prove_nothing(script):
    small = [{**row, "bytes_read": 1e6, "bytes_written": 1e6} for row in ROWS[:2]]
    assert _met(script, small)["add, triton, of the copy's bandwidth"] == ("not measured", False)
    failed = [{**row, "status": "wrong"} for row in ROWS]
    assert not any(met for _, met in _met(script, failed).values())


def test_compositions_are_judged_by_the_interval_of_the_model(script):
    library = _row("softmax", "torch", "torch.softmax", 1e-3, {"rows": 4}, predicted_time_s=1e-3)
    expected = {"composition_time_s": 4e-3, "composition_time_low_s": 3e-3, "composition_time_high_s": 5e-3}
    naive = _row("softmax", "torch", "naive", 4.5e-3, {"rows": 4}, predicted_time_s=1e-3, **expected)
    (inside,) = script.compositions(_read([library, naive]))
    assert (inside.asked, inside.reached, inside.met) == ("4.00 x (3.00 to 5.00)", "4.50 x", True)
    (outside,) = script.compositions(_read([library, {**naive, "measured_time_s": 6e-3}]))
    assert not outside.met


def test_the_table_has_steps_and_targets_and_the_exit_code_tells(script, tmp_path, capsys):
    record, lines = tmp_path / "record.json", tmp_path / "steps.tsv"
    record.write_text(json.dumps(_document(ROWS)))
    lines.write_text("bench\t200\tok\nfit\t3\texit 1\n")
    assert script.main([str(record), "--steps", str(lines)]) == 1
    said = capsys.readouterr().out
    assert "200 s, ok" in said
    assert "exit 1" in said
    assert len({len(line) for line in said.splitlines()}) == 1, "columns are aligned"
    assert script.main([str(tmp_path / "none.json")]) == 1, "nothing measured is nothing met"
    assert "no such file" in capsys.readouterr().err
