"""`perfmodel bench` on the CPU of this machine, with tiny operators; no test looks at an absolute time."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402
from perfmodel.cli import _check  # noqa: E402
from perfmodel.hardware_catalog.read import parse_spec, to_hardware  # noqa: E402
from perfmodel.kernels.device import cuda  # noqa: E402
from perfmodel.measure.benchmark import runner  # noqa: E402
from perfmodel.records.output_file import output_file  # noqa: E402
from perfmodel.records.record import read_record  # noqa: E402

pytestmark = pytest.mark.usefixtures("small_cache")

SPEC = """
name = "test-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "10 GB/s"
[memory.l3]
capacity = "32 MiB"
[peak.vector]
fp32 = "300 GFLOP/s"
[launch]
overhead = "10 us"
"""
RUN = ("--time-limit", "0.05", "--min-time", "0", "--device", "cpu")
TINY = ("layer_norm", "rows=8", "cols=16", "--kernel", "F.layer_norm", "--kernel", "naive", *RUN)


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "test-cpu.toml"
    path.write_text(SPEC)
    return path


def test_json_is_a_record_with_context_and_rows(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec, "--format", "json", "--seed", 7)
    assert ran.code == 0
    document = ran.json
    assert (document["schema_version"], document["command"]) == (2, "bench")
    assert [row["kernel"] for row in document["rows"]] == ["F.layer_norm", "naive"]
    assert all(row["status"] == "ok" and row["correct"] and row["time_s"]["samples"] > 0 for row in document["rows"])
    context = document["context"]
    assert {"perfmodel", "hardware", "machine", "device", "date", "seed", "cache", "spec"} <= context.keys()
    assert (context["seed"], context["cache"], context["hardware"]) == (7, "cold", ["test-cpu"])
    assert context["device"]["kind"] == "cpu"
    assert context["device"]["threads"] >= 1
    machine = to_hardware(parse_spec(context["spec"], "record"), "record")
    assert machine.main_memory.bandwidth_bytes_per_s == 10e9, "a plot can be made from the record alone"


def test_table_and_csv_have_every_row(perfmodel, spec):
    table = perfmodel("bench", *TINY, "--on", spec)
    # a share of the bound for each kernel, far below 1: a memory of 10 GB/s and no start
    shares = re.findall(r"^layer_norm rows=8 +(F\.layer_norm|naive) .* <?([\d.]+) %$", table.out, re.MULTILINE)
    assert [kernel for kernel, _ in shares] == ["F.layer_norm", "naive"]
    assert all(0 < float(share) < 100 for _, share in shares)
    rows = list(csv.DictReader(io.StringIO(perfmodel("bench", *TINY, "--on", spec, "--format", "csv").out)))
    assert len(rows) == 2
    assert float(rows[0]["time_s.median"]) > 0


def test_output_is_written_after_every_row(perfmodel, spec, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    counts = []
    real = runner.build_row

    def build_row(*args, **more):
        counts.append(len(read_record(path).rows) if path.exists() else 0)
        return real(*args, **more)

    monkeypatch.setattr(runner, "build_row", build_row)
    assert perfmodel("bench", *TINY, "--on", spec, "-o", path).code == 0
    assert counts == [0, 1]
    assert len(read_record(path).rows) == 2


def test_ctrl_c_keeps_what_was_measured_and_exits_130(perfmodel, spec, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    real, calls = runner.build_row, []

    def build_row(*args, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(runner, "build_row", build_row)
    ran = perfmodel("bench", *TINY, "--on", spec, "-o", path)
    assert ran.code == 130
    assert "1 of 2 rows" in ran.err
    record = read_record(path)
    assert [row.kernel for row in record.rows] == ["F.layer_norm"]
    assert record.notes[0] == "Incomplete: 1 of 2 rows are measured."
    assert perfmodel("bench", *TINY, "--on", spec, "-o", path, "--resume").code == 0
    assert not any("Incomplete" in note for note in read_record(path).notes)


def test_kernel_filter_and_out_of_memory(perfmodel, spec):
    ran = perfmodel(
        "bench", "layer_norm", "rows=8", "cols=16", "elementwise", "numel=1e15", *RUN, "--kernel", "F.layer_norm",
        "--kernel", "torch.*", "--on", spec, "--format", "json",
    )  # fmt: skip
    assert ran.code == 0
    assert [(row["op"], row["status"]) for row in ran.json["rows"]] == [
        ("layer_norm", "ok"), ("elementwise", "out of memory"),
    ]  # fmt: skip


def test_kernels_that_this_device_cannot_run_are_told_in_one_line_a_reason(perfmodel, spec):
    plain = perfmodel("bench", "layer_norm", "rows=8/16", "cols=16", *RUN, "--on", spec, "--format", "json").json
    assert {row["status"] for row in plain["rows"]} == {"ok"}
    assert all(note.startswith("left out ") for note in plain["notes"] if "GPU" in note)


def test_a_bound_that_is_far_too_slow_is_reported_and_not_as_a_percentage(perfmodel, spec):
    spec.write_text(SPEC.replace("10 GB/s", "10 kB/s"))
    ran = perfmodel("bench", *TINY, "--on", spec)
    assert "faster than the bound" in ran.out
    assert "Likely:" in ran.out
    rows = perfmodel("bench", *TINY, "--on", spec, "--format", "json").json["rows"]
    assert all(row["faster_than_bound"] and row["efficiency"] > 1 and "%" not in row["note"] for row in rows)


def test_plot_is_drawn(perfmodel, spec, tmp_path):
    path = tmp_path / "roofline.svg"
    assert perfmodel("bench", *TINY, "--on", spec, "--plot", path).code == 0
    assert path.read_text().lstrip().startswith("<?xml")


def test_no_progress_bar_where_stderr_is_no_terminal(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec)
    assert "\r" not in ran.err
    assert "\x1b" not in ran.err + ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("gem", "m=8"), 2, "Did you mean 'gemm'"),
        (("all-reduce", "bytes=1KiB"), 2, "all_reduce runs among ranks. Measure collectives in a run of their own"),
        (("gemm", "m=8", "n=8", "k=8", "alltoall", "num_gpus=2"), 2, "with --num-gpus 2"),
        (("bytes=1KiB", "--op", "memcpy"), 2, "bench does not measure memcpy. perfmodel calibrate"),
        (("--preset", "quik"), 2, "Did you mean 'quick'"),
        (("gemm", "m=8", "n=8", "k=8", "--preset", "quick"), 2, "exclude each other"),
        (("gemm", "m=8", "n=8", "k=8", "--preset", "quik"), 2, "Did you mean 'quick'"),
        (("gemm", "m=8", "n=8", "k=8", "--kernel", "torch.matmull"), 2, "Did you mean 'torch.matmul'"),
        (("gemm", "m=8", "n=8", "k=8", "--cache", "col"), 2, "Did you mean 'cold'"),
        (("gemm", "m=8", "n=8", "k=8", "--time-limit", "0"), 2, "not positive"),
        (("gemm", "m=8", "n=8", "k=8", "--threads", "0"), 2, "cannot run"),
        (("gemm", "m=8", "n=8", "k=8", "--device", "tpu"), 2, "Allowed: cpu, cuda"),
        (("gemm", "m=8", "n=8", "k=8", "--timing", "graph", "--device", "cpu"), 2, "Use --timing auto"),
        (("gemm", "m=8", "n=8", "k=8", "--timing", "graphs"), 2, "Did you mean 'graph'"),
        (("gemm", "m=8", "n=8", "k=8", "--error", "much"), 2, "not a percentage"),
        (("gemm", "m=8", "n=8", "k=8", "--error", "200%"), 2, "not between 0 and 1"),
        (("gemm", "m=8", "n=8", "k=8", "--min-time", "9"), 2, "Raise --time-limit"),
        (("gemm", "m=8", "n=8", "k=8", "--sustain", "-1"), 2, "--sustain"),
        (("gemm", "m=8", "n=8", "k=8", "--resume"), 2, "Give -o FILE.json"),
        (("gemm", "m=8", "n=8", "k=8", "--resume", "-o", "record.csv"), 2, "Give -o FILE.json"),
        (("gemm", "m=8", "n=8", "k=8", "--overwrite"), 2, "Give -o FILE"),
        (("gemm", "m=8", "n=8", "k=8", "--overwrite", "--resume", "-o", "record.json"), 2, "Remove one of the two"),
        (("gemm", "m=8", "n=8", "k=8", "--timing", "event", "--device", "cpu"), 2, "always includes its dispatch"),
        (("m=8", "n=8", "--op", "gemm", "--op", "softmax"), 2, "one operator"),
        (("m=8", "n=8", "k=8", "--op", "gem"), 2, "Did you mean 'gemm'"),
        (("gemm", "m=8", "n=8", "k=8", "--kernel", "no_such_module:f"), 2, "no module"),
        (("gemm", "m=8", "n=8", "k=8", "dtype=fp16"), 2, "no peak for dtype 'fp16'"),
        (("gemm", "m=8", "n=8", "k=8", "-o", "nowhere/at/all.json"), 2, "folder does not exist"),
        (("gemm", "m=8", "n=8", "k=8", "-o", "record.xyz"), 2, "names no format"),
        (("gemm", "m=8", "n=8", "k=8", "--plot", "plot.gif"), 2, ".svg"),
        (("gemm", "m=8", "n=8", "k=8", "--on", "second"), 2, "Name one machine"),
    ],
)
def test_bad_requests_get_one_message(perfmodel, spec, arguments, code, words):
    ran = perfmodel("bench", "--on", spec, *arguments)
    assert ran.code == code
    assert words in ran.err
    assert ran.out == ""


def test_missing_gpu_exits_4(perfmodel, monkeypatch):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    ran = perfmodel("bench", "--device", "cuda")
    assert ran.code == 4
    assert "--device cpu" in ran.err


def test_record_of_a_file_of_operators(perfmodel, spec, tmp_path):
    path = tmp_path / "ops.json"
    path.write_text(json.dumps([{"op": "reduction", "rows": 4, "cols": 8, "name": "sum of rows", "count": 5}]))
    (row,) = perfmodel("bench", path, "--on", spec, "--format", "json", "--time-limit", 0.05).json["rows"]
    assert (row["name"], row["count"], row["status"]) == ("sum of rows", 5, "ok")


def test_measurements_are_what_validate_reads(perfmodel, spec, tmp_path):
    table, record = tmp_path / "table.csv.gz", tmp_path / "record.json"
    ops = ("layer_norm", "rows=8/32", "cols=16", "elementwise", "numel=1000", "kind=relu")
    options = ("--kernel", "F.*", "--kernel", "torch.*", "--kernel", "naive", *RUN, "--on", spec)
    assert perfmodel("bench", *ops, *options, "-o", table).code == 0
    assert gzip.decompress(table.read_bytes()).startswith(b"hardware,op,dtype,rows,cols,")
    ran = perfmodel("validate", table, "--on", spec, "--by", "op,timing,cache,library", "--format", "json")
    assert ran.code == 0
    assert [(row["op"], row["rows"], row["timing"], row["cache"], row["library"]) for row in ran.json["rows"][:2]] == [
        ("elementwise", 1, "kernel", "cold", "torch"),
        ("layer_norm", 2, "kernel", "cold", "torch"),
    ]
    # the same rows through the record: bench tells the error that validate finds in them
    assert perfmodel("bench", *ops, *options, "--samples", "-o", record).code == 0
    rows = json.loads(record.read_text())["rows"]
    single, composed = ([row for row in rows if (row["kernel"] == "naive") is naive] for naive in (False, True))
    ran = perfmodel("validate", record, "--on", spec, "--by", "family", "--format", "json")
    found = {row["family"]: row for row in ran.json["rows"]}
    assert (len(single), len(composed), found["composition"]["rows"], found["all"]["rows"]) == (3, 2, 2, 5)
    errors = [abs(row["prediction_error"]) for row in single]
    of_parts = [abs(row["composition_time_s"] / row["measured_time_s"] - 1.0) for row in composed]
    assert found["composition"]["mape"] == pytest.approx(sum(of_parts) / 2)
    assert found["all"]["mape"] == pytest.approx((sum(errors) + sum(of_parts)) / 5)
    assert all(len(row["samples_s"]) == row["time_s"]["samples"] for row in rows)


def test_measurements_on_stdout_are_csv(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec, "--format", "measurements")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    release = torch.__version__.partition("+")[0]
    assert (row["implementation"], row["kernel"]) == (f"torch-{release}-F.layer_norm", "F.layer_norm")
    assert float(row["time_s"]) > 0


def test_kernels_are_predicted_as_those_of_the_release_that_runs_and_its_record_says_so(
    perfmodel, tmp_path, monkeypatch
):
    """PyTorch looks up rows by vectors of 16 B from 2.7 on, which takes a part of the time before."""
    op, expected = pm.Embedding(tokens=4096, vocab=8192, dim=256, dtype="fp32"), []
    for release, build in (("2.6.0", "2.6.0+cpu"), ("2.11.0", "2.11.0+cpu")):
        monkeypatch.setattr(torch, "__version__", build)
        record = tmp_path / f"{release}.json"
        words = ("embedding", "tokens=4096", "vocab=8192", "dim=256", "dtype=fp32", "--kernel", "F.*", *RUN)
        assert perfmodel("bench", *words, "--on", "h200", "-o", record).code == 0
        (row,) = json.loads(record.read_text())["rows"]
        assert (row["library"], row["implementation"]) == (f"torch-{release}", f"torch-{release}-F.embedding")
        assert row["predicted_time_s"] == pm.predict(op, "h200", library=f"torch-{release}").predicted_time_s
        assert perfmodel("show", record, "--format", "json").json["rows"] == [row]
        (judged, *_) = perfmodel("validate", record, "--format", "json").json["rows"]
        assert judged["mape"] == pytest.approx(abs(row["prediction_error"]))
        expected.append(row["predicted_time_s"])
    assert expected[0] > 1.5 * expected[1]


def test_a_measurement_table_is_csv_without_a_warning(perfmodel, spec, tmp_path):
    for name, warned in (("table.csv", False), ("table.json", True)):
        ran = perfmodel("bench", *TINY, "--on", spec, "--format", "measurements", "-o", tmp_path / name)
        assert ("its suffix means" in ran.err) is warned
        assert (tmp_path / name).read_text().startswith("hardware,op,dtype,")


def test_a_users_function_is_timed_on_the_same_terms(perfmodel, spec, tmp_path, monkeypatch):
    (tmp_path / "own_kernels.py").write_text("import torch\n\ndef product(a, b):\n    return torch.matmul(a, b)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ran = perfmodel(
        "bench", "--kernel", "own_kernels:product", "--op", "gemm", "m=8", "n=8", "k=8", *RUN, "--on", spec,
        "--format", "json",
    )  # fmt: skip
    (row,) = ran.json["rows"]
    assert (row["op"], row["kernel"], row["backend"], row["status"]) == ("gemm", "own_kernels:product", "user", "ok")
    assert row["correct"] is True


def test_sustained_rate_is_in_the_record(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec, "--sustain", "0.1", "--format", "json")
    for row in ran.json["rows"]:
        series = row["sustain"]
        assert series["rate_unit"] == "B/s"
        assert len(series["time_s"]) == len(series["rate"]) >= 1
        assert series["rate"][0] > 0


def test_a_sustained_run_is_drawn_over_time(perfmodel, spec, tmp_path):
    path = tmp_path / "series.svg"
    ran = perfmodel("bench", *TINY, "--on", spec, "--sustain", "0.1", "--plot", path)
    assert ran.code == 0, ran.err
    assert "<svg" in path.read_text()


def test_check_judges_the_device_and_measures_no_kernel(perfmodel, spec, monkeypatch):
    asked = []
    monkeypatch.setattr(_check, "run_check", lambda *arguments: asked.append(arguments) or 1)
    assert perfmodel("bench", "--check", "--device", "cpu", "--on", spec, "--format", "json").code == 1
    ((device, on, destination),) = asked
    assert (device.kind, on, destination.renderer.name, destination.path) == ("cpu", [str(spec)], "json", None)
    assert perfmodel("bench", "--check", "--device", "cpu", "--format", "measurements").code == 2


def test_other_caches_and_fewer_samples(perfmodel, spec):
    for cache in ("warm", "rotating"):
        options = ("--on", spec, "--cache", cache, "--error", "90%", "--time-limit", "5", "--format", "json")
        rows = perfmodel("bench", *TINY, *options).json["rows"]
        assert {(row["cache"], row["stop_reason"]) for row in rows} == {(cache, "converged")}
        assert all(row["time_s"]["samples"] >= 10 for row in rows), "the fewest before it may converge"


@pytest.mark.slow
@pytest.mark.waiting
def test_a_killed_run_keeps_its_rows_and_is_resumed(perfmodel, spec, tmp_path):
    record = tmp_path / "record.json"
    options = ["layer_norm", "rows=8/16/32", "cols=16", "--kernel", "F.layer_norm", "--device", "cpu"]
    options += ["--time-limit", "0.5", "--min-time", "0.3", "--on", str(spec), "-o", str(record)]
    with subprocess.Popen([sys.executable, "-m", "perfmodel", "bench", *options], stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not record.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
    before = json.loads(record.read_text())
    done = len(before["rows"])
    assert 1 <= done < 3, "it was killed between the first row and the last"
    ran = perfmodel("bench", *options, "--resume")
    assert ran.code == 0, ran.err
    assert f"{done} rows are measured, {3 - done} remain" in ran.err
    after = json.loads(record.read_text())
    assert after["rows"][:done] == before["rows"], "finished rows are kept as they were"
    assert [row["params"]["rows"] for row in after["rows"]] == [8, 16, 32]
    assert after["context"]["date"] == before["context"]["date"]
    assert len(after["context"]["resumed"]) == 1
    refused = perfmodel("bench", *options, "--resume", "--cache", "warm")
    assert (refused.code, "cache cold then, warm now" in refused.err) == (2, True)
    other = spec.with_name("other.toml")
    other.write_text(SPEC.replace("test-cpu", "other-cpu"))
    refused = perfmodel("bench", *options, "--resume", "--on", other)
    assert refused.code == 2


def test_resume_without_a_record_begins_one(perfmodel, spec, tmp_path):
    record = tmp_path / "record.json"
    assert perfmodel("bench", *TINY, "--on", spec, "-o", record, "--resume").code == 0
    again = perfmodel("bench", *TINY, "-o", record, "--resume")
    assert again.code == 0, "the record knows its machine"
    assert "2 rows are measured, 0 remain" in again.err


def test_an_existing_record_needs_resume_or_overwrite(perfmodel, spec, tmp_path):
    record = tmp_path / "record.json"
    assert perfmodel("bench", *TINY, "--on", spec, "-o", record).code == 0
    before = record.read_bytes()
    refused = perfmodel("bench", *TINY, "--on", spec, "-o", record)
    assert (refused.code, refused.out) == (2, "")
    assert "exists already. Use --resume to measure only what is missing in it, or --overwrite" in refused.err
    assert record.read_bytes() == before
    assert perfmodel("bench", *TINY, "--on", spec, "-o", record, "--overwrite").code == 0
    assert record.read_bytes() != before


def test_other_commands_do_not_replace_measurements(perfmodel, spec, tmp_path):
    record = tmp_path / "record.json"
    assert perfmodel("bench", *TINY, "--on", spec, "-o", record).code == 0
    before = record.read_bytes()
    analyze = ("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100-sxm5-80gb")
    for arguments, said in ((("show", record), "is also read by this command"), (analyze, "holds measurements")):
        ran = perfmodel(*arguments, "-o", record)
        assert (ran.code, said in ran.err) == (2, True)
    assert record.read_bytes() == before


def test_the_old_record_stays_until_the_first_new_row(perfmodel, spec, tmp_path, monkeypatch):
    record = tmp_path / "record.json"
    assert perfmodel("bench", *TINY, "--on", spec, "-o", record).code == 0
    before = record.read_bytes()

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "build_row", interrupted)
    ran = perfmodel("bench", *TINY, "--on", spec, "-o", record, "--overwrite")
    assert (ran.code, "nothing was measured" in ran.err) == (130, True)
    assert record.read_bytes() == before


def test_a_record_that_another_process_writes_is_refused(perfmodel, spec, tmp_path):
    record = tmp_path / "record.json"
    with output_file(record):
        ran = perfmodel("bench", *TINY, "--on", spec, "-o", record, "--overwrite")
    assert (ran.code, "is being written by process" in ran.err) == (2, True)
    assert not record.exists()
