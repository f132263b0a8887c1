"""`perfmodel plot`: records in, one plot out; what is wrong with a record is said in a sentence."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cli import plot
from perfmodel.errors import PerfModelError
from perfmodel.records.record import read_record

GEMM = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=fp16")

# A made-up machine as a specification document, as a bench record keeps it.
SPEC = {
    "name": "bench-machine",
    "vendor": "none",
    "architecture": "none",
    "title": "Bench machine",
    "kind": "cpu",
    "memory": {"dram": {"bandwidth": "20 GB/s"}},
    "peak": {"vector": {"fp32": "200 GFLOP/s"}},
}


def bench_record(**changes):
    row = {
        "op": "gemm",
        "name": "gemm",
        "dtype": "fp32",
        "engine": "vector fp32",
        "dimensions": "m=512 n=512 k=512",
        "hardware": "bench-machine",
        "arithmetic_intensity_flop_per_byte": 85.3,
        "attainable_flop_per_s": 2e11,
        "kernel": "library",
        "status": "ok",
        "achieved_flop_per_s": 1.5e11,
        "time_s": {"median": 1.8e-3},
    }
    document = {"schema_version": 1, "command": "bench", "context": {"spec": SPEC}, "rows": [row]}
    return document | changes


@pytest.fixture
def written(tmp_path):
    def write(document, name="record.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_an_analysis_is_drawn(perfmodel, tmp_path, suffix):
    record, out = tmp_path / "record.json", tmp_path / f"plot.{suffix}"
    assert perfmodel("analyze", *GEMM, "--on", "a100-sxm4-40gb", "-o", record).code == 0
    ran = perfmodel("plot", record, "-o", out)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"wrote {out} (rows: 1, machines: 1)\n"
    assert out.stat().st_size > 1000


def test_analyze_draws_the_same_plot_itself(perfmodel, tmp_path):
    record, direct, later = (tmp_path / name for name in ("record.json", "direct.svg", "later.svg"))
    ran = perfmodel("analyze", *GEMM, "--on", "a100-sxm4-40gb", "-o", record, "--plot", direct)
    assert ran.code == 0
    assert perfmodel("plot", record, "-o", later).code == 0
    assert direct.read_bytes() == later.read_bytes()


def test_each_machine_of_an_analysis_gets_a_panel(perfmodel, tmp_path):
    record = tmp_path / "record.json"
    assert perfmodel("analyze", *GEMM, "--on", "a100-sxm4-40gb", "--on", "h100-sxm5-80gb", "-o", record).code == 0
    pairs = plot.pair_with_machines({record: read_record(record)}, [])
    assert [(machine.name, len(points)) for machine, points in pairs] == [("a100-sxm4-40gb", 1), ("h100-sxm5-80gb", 1)]


def test_a_bench_record_brings_its_own_machine(perfmodel, tmp_path, written):
    record = written(bench_record())
    ((machine, points),) = plot.pair_with_machines({record: read_record(record)}, [])
    assert machine.title == "Bench machine"
    assert machine.main_memory.bandwidth_bytes_per_s == 20e9
    assert points[0]["achieved_flop_per_s"] == 1.5e11
    assert perfmodel("plot", record, "-o", tmp_path / "plot.png").code == 0


def test_records_of_one_machine_share_a_panel_and_kernels_say_which_record(written):
    paths = [written(bench_record(), name) for name in ("before.json", "after.json")]
    ((_, points),) = plot.pair_with_machines({path: read_record(path) for path in paths}, [])
    assert [point["kernel"] for point in points] == ["library (before)", "library (after)"]


def test_records_with_different_specifications_of_one_name_are_two_machines(written):
    other = bench_record(context={"spec": SPEC | {"title": "Another"}})
    paths = [written(bench_record(), "a.json"), written(other, "b.json")]
    pairs = plot.pair_with_machines({path: read_record(path) for path in paths}, [])
    assert [machine.title for machine, _ in pairs] == ["Bench machine", "Another"]
    assert [machine.name for machine, _ in pairs] == ["bench-machine (a)", "bench-machine (b)"]


@pytest.fixture
def calibrated(written):
    """Two records of one computer that was calibrated before each."""
    specs = [SPEC | {"memory": {"dram": {"bandwidth": f"{rate} GB/s"}}} for rate in (20, 21)]
    row = bench_record()["rows"][0] | MEASURED
    documents = [bench_record(context={"spec": spec}, rows=[row]) for spec in specs]
    return [written(document, f"{name}.json") for name, document in zip("ab", documents, strict=True)]


def test_two_calibrations_of_one_computer_are_told_apart_and_count_as_one_machine(perfmodel, tmp_path, calibrated):
    pairs = plot.pair_with_machines({path: read_record(path) for path in calibrated}, [])
    assert [machine.title for machine, _ in pairs] == ["Bench machine (a)", "Bench machine (b)"]
    ran = perfmodel("plot", *calibrated, "-o", tmp_path / "p.svg")
    assert ran.err.endswith("(rows: 2, machines: 1)\n")


def test_the_name_of_the_records_machine_draws_all_under_the_figures_of_the_first(perfmodel, tmp_path, calibrated):
    options = ("plot", *calibrated, "--kind", "bandwidth", "-o", tmp_path / "p.png")
    refused = perfmodel(*options)
    assert refused.code == 2
    assert "2 specifications of bench-machine" in refused.err
    assert refused.err.endswith("--on bench-machine.\n")
    assert perfmodel(*options, "--on", "bench-machine").code == 0
    ((machine, points),) = plot.pair_with_machines({path: read_record(path) for path in calibrated}, ["bench-machine"])
    assert (machine.main_memory.bandwidth_bytes_per_s, len(points)) == (20e9, 2)


def test_a_specification_given_takes_the_place_of_the_records_own(written):
    record = written(bench_record())
    mine = written(SPEC | {"title": "Mine"}, "mine.json")
    ((machine, _),) = plot.pair_with_machines({record: read_record(record)}, [str(mine)])
    assert machine.title == "Mine"


def test_a_machine_that_is_in_no_record_is_refused(perfmodel, tmp_path, written):
    ran = perfmodel("plot", written(bench_record()), "-o", tmp_path / "p.png", "--on", "a100-sxm4-40gb")
    assert ran.code == 2
    assert "--on: no row is of a100-sxm4-40gb. The rows are of bench-machine." in ran.err


def test_a_machine_without_a_specification_is_refused_with_the_nearest_name(perfmodel, tmp_path, written):
    document = bench_record(context={})
    document["rows"][0]["hardware"] = "a100-sxm4-4gb"
    ran = perfmodel("plot", written(document), "-o", tmp_path / "p.png")
    assert ran.code == 3
    assert "holds no specification of its machine 'a100-sxm4-4gb'" in ran.err
    assert "Did you mean 'a100-sxm4-40gb'?" in ran.err
    assert "--on" in ran.err


MEASURED = {
    "limiter": "dram",
    "working_set_bytes": 3e6,
    "achieved_bytes_per_s": 1e10,
    "dimensions": "m=512 n=512 k=512",
}
SERIES = {"time_s": [0.5, 1.0], "rate": [2e11, 1.9e11], "rate_unit": "FLOP/s", "sm_clock_hz": [], "power_w": []}


@pytest.mark.parametrize("kind", ["roofline", "bandwidth", "sustain"])
def test_each_kind_of_plot_is_drawn_from_the_same_record(perfmodel, tmp_path, written, kind):
    (row,) = bench_record()["rows"]
    record = written(bench_record(rows=[{**row, **MEASURED, "sustain": SERIES}]))
    out = tmp_path / "plot.svg"
    ran = perfmodel("plot", record, "--kind", kind, "--title", "A heading", "-o", out)
    assert (ran.code, ran.err) == (0, f"wrote {out} (rows: 1, machines: 1)\n")
    assert out.stat().st_size > 1000


def test_the_kinds_draw_different_plots_and_only_the_dtype_asked_for(perfmodel, tmp_path, written):
    (row,) = bench_record()["rows"]
    rows = [{**row, **MEASURED, "sustain": SERIES}, {**row, "dtype": "fp64", "engine": "vector fp64"}]
    record = written(bench_record(rows=rows))
    for kind, said in (("bandwidth", "no row has a bandwidth"), ("sustain", "no row has a time series")):
        assert perfmodel("plot", record, "--kind", kind, "--dtype", "fp32", "-o", tmp_path / f"{kind}.svg").code == 0
        ran = perfmodel("plot", record, "--kind", kind, "--dtype", "fp64", "-o", tmp_path / "none.svg")
        assert (ran.code, said in ran.err) == (2, True)
    assert (tmp_path / "bandwidth.svg").read_bytes() != (tmp_path / "sustain.svg").read_bytes()


def test_the_bandwidths_of_two_machines_are_two_plots(perfmodel, tmp_path, written):
    (row,) = bench_record()["rows"]
    spec = SPEC | {"name": "another-machine"}
    other = bench_record(rows=[{**row, **MEASURED, "hardware": "another-machine"}], context={"spec": spec})
    paths = [written(bench_record(rows=[{**row, **MEASURED}]), "a.json"), written(other, "b.json")]
    ran = perfmodel("plot", *paths, "--kind", "bandwidth", "-o", tmp_path / "plot.svg")
    assert ran.code == 2
    assert "several machines" in ran.err


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "the file is empty"),
        ("{", "is not valid JSON"),
        ("[]", "is not a record"),
        ({}, "is not a record: object missing required field `schema_version`"),
        (bench_record(schema_version=3), "schema version 3"),
        (bench_record(command="roi"), "is a record of 'roi'"),
        (bench_record(rows=3), "at rows"),
        (bench_record(rows=[{"op": "gemm"}]), "missing required field `hardware` at rows[0]"),
        (bench_record(rows=[{**bench_record()["rows"][0], "dimensions": 3}]), "at rows[0].dimensions"),
        (bench_record(rows=[{**bench_record()["rows"][0], "attainable_flop_per_s": "fast"}]), "at rows[0].attain"),
        (bench_record(context={"spec": {**SPEC, "memory": {}}}), "context.spec"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(perfmodel, tmp_path, written, document, said):
    path = written(document)
    ran = perfmodel("plot", path, "-o", tmp_path / "plot.png")
    assert ran.code == 3
    assert str(path) in ran.err
    assert said in ran.err
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize(("name", "code"), [("missing.json", 3), (".", 3), ("record.csv", 3)])
def test_what_is_no_json_file_is_refused(perfmodel, tmp_path, name, code):
    (tmp_path / "record.csv").write_text("op\n")
    assert perfmodel("plot", tmp_path / name, "-o", tmp_path / "plot.png").code == code


@pytest.mark.parametrize("name", ["plot.gif", "plot", "no/such/folder/plot.png"])
def test_a_plot_that_cannot_be_written_is_a_wrong_usage(perfmodel, tmp_path, written, name):
    assert perfmodel("plot", written(bench_record()), "-o", tmp_path / name).code == 2


@pytest.mark.parametrize("words", [("plot", "-o", "-"), ("compare", "--plot", "-")])
def test_a_plot_is_not_written_to_standard_output(perfmodel, written, words):
    record = written(bench_record())
    command, option, place = words
    ran = perfmodel(command, record, *[record] * (command == "compare"), option, place)
    assert (ran.code, ran.out) == (2, "")
    assert "a plot is not written to standard output" in ran.err


def test_a_plot_does_not_replace_a_record(perfmodel, tmp_path, written):
    record = written(bench_record()).rename(tmp_path / "record.png")
    ran = perfmodel("plot", record, "-o", record)
    assert ran.code == 2
    assert json.loads(record.read_text())["rows"]


def test_a_plot_needs_a_record_and_a_file(perfmodel, tmp_path, written):
    assert perfmodel("plot", "-o", tmp_path / "plot.png").code == 2
    assert perfmodel("plot", written(bench_record())).code == 2


def test_a_record_without_rows_is_refused(perfmodel, tmp_path, written):
    ran = perfmodel("plot", written(bench_record(rows=[])), "-o", tmp_path / "plot.png")
    assert ran.code == 3
    assert "no rows" in ran.err


def test_the_dtype_has_to_be_known(perfmodel, tmp_path, written):
    ran = perfmodel("plot", written(bench_record()), "-o", tmp_path / "plot.png", "--dtype", "fp31")
    assert ran.code == 2
    assert "fp32" in ran.err


def test_help_shows_an_example(perfmodel):
    ran = perfmodel("plot", "--help")
    assert ran.code == 0
    assert "Example: perfmodel plot record.json -o roofline.png" in ran.out


def test_the_example_block_is_what_its_comments_say():
    from perfmodel.operators.parse import read_operators

    block = read_operators(Path(__file__).resolve().parents[2] / "examples" / "transformer_block.toml")
    assert {op.count for op in block} == {48}
    assert {op.dtype for op in block} == {"fp16"}
    # A block of width h and t tokens multiplies 12 h^2 weights: 3 h^2 + h^2 in attention, 4 h^2 + 4 h^2 after it.
    weights = sum(op.n * op.k for op in block if op.op == "gemm")
    assert weights == 12 * 1600**2
    # Biases add an operation an output: t (3 h + h + 4 h + h).
    products = sum(op.flop() for op in block if op.op == "gemm")
    assert products == 2 * 4096 * weights + 4096 * 9 * 1600


@given(cut=st.integers(0, 600))
def test_no_truncation_escapes_as_another_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "record.json"
    path.write_text(json.dumps(bench_record())[:cut])
    with contextlib.suppress(PerfModelError):
        assert read_record(path).rows


def test_lines_that_are_no_readings_of_a_monitor_are_told_to_be_none(perfmodel, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    ran = perfmodel("plot", tmp_path / "run.jsonl", "-o", tmp_path / "a.png")
    assert (ran.code, "run.jsonl:1: is no reading of a monitor" in ran.err) == (3, True)
