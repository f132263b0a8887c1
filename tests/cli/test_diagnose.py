"""perfmodel diagnose: the contract's rows, options and messages."""

from __future__ import annotations

import gzip
import json

import pytest

KEYS = {"dimension", "time_s", "fraction", "evidence", "advice"}
ORDER = ["compute", "memory", "other kernels", "launch", "transfer", "sync", "idle"]


@pytest.fixture
def bert(data_dir):
    return data_dir / "traces" / "tracelens_h100_bert-small.json.gz"


def test_the_rows_are_those_of_the_contract(perfmodel, bert):
    ran = perfmodel("diagnose", bert, "--format", "json")
    assert ran.code == 0
    rows = ran.json["rows"]
    assert [row["dimension"] for row in rows] == ORDER
    assert all(row.keys() >= KEYS for row in rows)
    assert sum(row["fraction"] for row in rows) == pytest.approx(1.0)
    assert rows[3]["evidence"][0].keys() == {"what", "time_s", "count", "detail"}
    assert ran.json["context"]["hardware"] == ["h100-sxm5-80gb"]
    assert "comparing with h100-sxm5-80gb, the profile's device 'NVIDIA H100 80GB HBM3'" in ran.err
    assert ran.json["candidates"][0]["targets"] == ["[launch gaps]"]


def test_csv_and_json_have_the_whole_table_by_operator_and_wide_text_too(perfmodel, bert):
    text = perfmodel("diagnose", bert, "--format", "csv").out
    header, *lines = text.splitlines()
    columns = header.split(",")
    wanted = {"name", "calls", "time_s", "fraction", "flop_per_s", "bytes_per_s", "arithmetic_intensity_flop_per_byte"}
    wanted |= {"efficiency", "limiter", "kernels", "predicted_time_s", "predicted_low_s", "predicted_high_s"}
    assert wanted | {"min_s", "median_s", "max_s"} <= set(columns)
    assert not any(" " in column for column in columns)
    rows = perfmodel("diagnose", bert, "--format", "json").json["operators"]
    assert len(rows) == len(lines)
    first = rows[0]
    assert first["calls"] * first["min_s"] <= first["time_s"] <= first["calls"] * first["max_s"]
    assert "By operator and shape" in perfmodel("diagnose", bert, "--wide").out
    assert "By operator and shape" not in perfmodel("diagnose", bert).out


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_trace_is_written_back_with_notes(perfmodel, bert, tmp_path, packed):
    out = tmp_path / f"noted.json{packed}"
    ran = perfmodel("diagnose", bert, "--annotate", out)
    assert ran.code == 0
    assert "61 GPU events with notes" in ran.err
    data = out.read_bytes()
    events = json.loads(gzip.decompress(data) if packed else data)["traceEvents"]
    noted = [event for event in events if "perfmodel" in (event.get("args") or {})]
    assert len(noted) == 61
    product = next(event["args"]["perfmodel"] for event in noted if "addmm" in event["args"]["perfmodel"]["operator"])
    assert product["bound_us"] < product["expected_low_us"] < product["expected_us"] < product["expected_high_us"]
    assert 0 < product["efficiency"] < 1
    counters = [event for event in events if event["ph"] == "C" and event["name"].startswith("perfmodel efficiency")]
    assert counters
    # a profiler's trace that was written back is read as before
    again = perfmodel("diagnose", out, "--format", "json").json
    assert again["operators"] == perfmodel("diagnose", bert, "--format", "json").json["operators"]


def test_notes_are_on_the_events_that_the_reader_counts(perfmodel, tmp_path):
    def work(name, start, duration, stream=7, cat="kernel"):
        arguments = {"device": 0, "stream": stream}
        return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": duration, "args": arguments}

    # a copy that starts with a kernel, work inside other work, and work that ends before it starts
    events = [work("a", 6, 20), work("Memcpy HtoD (Pageable -> Device)", 6, 5, 8, "gpu_memcpy"), work("b", 6, 3, 9)]
    events += [work("inside", 8, 2), work("a", 90, -2), work(None, 40, 2), work(["x"], 50, 2)]
    trace, out = tmp_path / "t.json", tmp_path / "noted.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    ran = perfmodel("diagnose", trace, "--annotate", out)
    assert (ran.code, "4 GPU events with notes" in ran.err) == (0, True)
    noted = [event for event in json.loads(out.read_bytes())["traceEvents"] if "perfmodel" in event["args"]]
    assert [event["args"]["perfmodel"]["operator"].split(" ")[0] for event in noted] == [
        "a",
        "Memcpy",
        "b",
        "(unnamed)",
    ]


@pytest.mark.parametrize("option", ["--annotate", "--plan-output"])
def test_standard_output_has_one_file(perfmodel, bert, tmp_path, option):
    ran = perfmodel("diagnose", bert, option, "-")
    assert (ran.code, ran.out) == (2, "")
    assert f"{option}: standard output holds the report or another file already. Name a file" in ran.err
    ran = perfmodel("diagnose", bert, option, "-", "-o", tmp_path / "report.txt")
    assert (ran.code, "Where" in ran.out) == (0, False)
    assert ran.out


def test_only_traces_are_written_back_and_never_over_themselves(perfmodel, tmp_path):
    table = tmp_path / "profile.csv"
    table.write_text("name,time_ms\nk,1\n")
    assert perfmodel("diagnose", table, "--annotate", tmp_path / "a.json").code == 2
    trace = tmp_path / "t.json"
    trace.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 5, "tid": 7, "args": {}}]}'
    )
    huge = trace.read_text().replace('"dur": 5', '"dur": 5' + "0" * 400)
    (tmp_path / "huge.json").write_text(huge[:-2] + ", " + trace.read_text().partition("[")[2])
    assert perfmodel("diagnose", tmp_path / "huge.json", "--annotate", tmp_path / "b.json").code in (0, 3)
    before = trace.read_bytes()
    ran = perfmodel("diagnose", trace, "--annotate", trace)
    assert (ran.code, trace.read_bytes()) == (2, before)
    assert "is also read by this command" in ran.err


@pytest.mark.parametrize("format_", ["table", "markdown"])
def test_every_format(perfmodel, bert, format_):
    ran = perfmodel("diagnose", bert, "--format", format_)
    assert ran.code == 0
    assert all(dimension in ran.out for dimension in ORDER)


def test_all_steps_and_groupings(perfmodel, data_dir):
    trace = data_dir / "traces" / "tracelens_h100_qwen1.5-0.5b_prefill.json.gz"
    inside = perfmodel("diagnose", trace, "--format", "json", "--by", "op").json
    whole = perfmodel("diagnose", trace, "--format", "json", "--by", "op", "--whole-trace").json
    assert whole["context"]["total_time_s"] > inside["context"]["total_time_s"]
    assert inside["rows"][0]["evidence"][0]["what"] == "aten::mm"


def test_the_plan_goes_to_roi(perfmodel, bert, tmp_path):
    plan = tmp_path / "plan.toml"
    assert perfmodel("diagnose", bert, "--plan-output", plan, "--effort", "cuda-graph=4:high").code == 0
    text = plan.read_text(encoding="utf-8")
    assert "dev_days = 4.0" in text
    assert 'risk = "high"' in text


def test_a_plan_that_exists_is_kept_since_somebody_may_have_edited_it(perfmodel, bert, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text("# mine", encoding="utf-8")
    ran = perfmodel("diagnose", bert, "--plan-output", plan)
    assert (ran.code, "exists already. Write to another file" in ran.err) == (2, True)
    assert plan.read_text(encoding="utf-8") == "# mine"


def test_a_run_without_candidates_writes_no_plan(perfmodel, data_dir, tmp_path):
    trace = data_dir / "traces" / "tracelens_sglang_qwen3-8b_decode_cudagraph_mi300.json.gz"
    ran = perfmodel("diagnose", trace, "--plan-output", tmp_path / "plan.toml")
    assert ran.code == 1
    assert "is not written" in ran.err
    assert not (tmp_path / "plan.toml").exists()


def test_a_plain_table(perfmodel, tmp_path):
    table = tmp_path / "profile.csv"
    table.write_text("name,time_ms\naten::mm,3\nrelu,1\n", encoding="utf-8")
    ran = perfmodel("diagnose", table, "--format", "json")
    times = {row["dimension"]: row["time_s"] for row in ran.json["rows"]}
    assert times["compute"] == pytest.approx(3e-3)
    assert times["idle"] is None
    assert "the profile names no device: pass --on HW" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("missing.json",), 3, "missing.json"),
        (("{table}", "--on", "h1000"), 2, "h1000"),
        (("{table}", "--by", "name"), 2, "shape"),
        (("{table}", "--effort", "graph=1"), 2, "cuda-graph"),
        (("{table}", "--plan-output", "plan.csv"), 2, ".toml"),
        (("{table}", "--plot", "plot.gif"), 2, ".png"),
    ],
)
def test_bad_input_has_one_message(perfmodel, tmp_path, arguments, code, said):
    table = tmp_path / "profile.csv"
    table.write_text("name,time_ms\na,3\n", encoding="utf-8")
    ran = perfmodel("diagnose", *(text.format(table=table) for text in arguments))
    assert ran.code == code
    assert said in ran.err
    assert ran.out == ""


def test_a_trace_of_the_cpu_alone(perfmodel, tmp_path):
    # two operators, 30 and 10 us, no work of a GPU
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration}
        for name, start, duration in (("aten::mm", 0, 30), ("aten::relu", 40, 10))
    ]
    trace = tmp_path / "cpu.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    ran = perfmodel("diagnose", trace, "--format", "json")
    assert ran.code == 0
    rows = {row["dimension"]: row["time_s"] for row in ran.json["rows"]}
    assert rows["other kernels"] == pytest.approx(40e-6)
    assert rows["launch"] is None
    assert any("no GPU work" in note for note in ran.json["notes"])


def test_a_machine_that_contradicts_the_profile_is_refused_unless_assumed(perfmodel, bert):
    ran = perfmodel("diagnose", bert, "--on", "a100-sxm4-80gb")
    assert ran.code == 2
    assert ran.err.count("perfmodel:") == 1
    assert "'NVIDIA H100 80GB HBM3' (h100-sxm5-80gb)" in ran.err
    assert perfmodel("diagnose", bert, "--on", "a100-sxm4-80gb", "--assume").code == 0
    assert perfmodel("diagnose", bert, "--on", "h100").code == 0
