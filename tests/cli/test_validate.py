"""`perfmodel validate`: the contract of its output, its groups, its gate and its exit codes."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from perfmodel.accuracy.validate import judge
from perfmodel.api import judging
from perfmodel.hardware_catalog import hardware
from perfmodel.kernels import registry
from perfmodel.operators.elementwise import Elementwise
from perfmodel.prediction.predict import predict
from perfmodel.records.measurements import read_measurements
from perfmodel.render import table as table_format

V100 = hardware("v100-pcie-32gb")
KEYS = ["family", "hardware", "rows", "mape", "median_ape", "p90_ape", "bias", "coverage_80", "width_80", "bound_mape"]
HEADER = "hardware,op,dtype,kind,numel,rows,cols,time_s,timing,cache,implementation,flags\n"
ADD = "v100-pcie-32gb,elementwise,fp32,add,{0}000000,,,{0}.6e-5,event,warm,torch-2.1,\n"
NORM = "a100-pcie-40gb,layer_norm,fp32,,,4096,1024,6e-5,event,warm,torch-2.1,{}\n"


@pytest.fixture
def table(tmp_path):
    """A table of nine elementwise rows on one machine and two of layer_norm on another, one of them flagged."""
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "".join(map(ADD.format, range(1, 10))) + NORM.format("") + NORM.format("odd"))
    return path


@pytest.fixture
def composed(tmp_path):
    """A record of one kernel, of two that run several operators, and of one whose operators nobody states."""
    row = {
        "op": "elementwise", "hardware": "v100-pcie-32gb", "dtype": "fp32", "kernel": "torch.elementwise",
        "status": "ok", "measured_time_s": 1e-3, "params": {"numel": 10**7, "kind": "silu_mul"},
    }  # fmt: skip
    rows = [row, *({**row, "kernel": kernel, "composition_time_s": 1.0} for kernel in ("torch.silu_mul", "lost"))]
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "rows": rows}))
    return path


def test_compositions_are_judged_by_the_kernels_that_they_run(perfmodel, composed):
    ran = perfmodel("validate", composed, "--format", "json", "--worst", "2")
    assert [(row["family"], row["rows"]) for row in ran.json["rows"]] == [
        ("composition", 1), ("elementwise", 1), ("all", 2),
    ]  # fmt: skip
    places = {row["row"]: row for row in ran.json["worst"]}
    passes = [predict(Elementwise(numel=10**7, kind=kind, num_inputs=n), V100) for kind, n in (("silu", 1), ("mul", 2))]
    assert places["r.json:2"]["predicted_time_s"] == pytest.approx(sum(p.predicted_time_s for p in passes))
    assert places["r.json:2"]["predicted_time_s"] > 1.5 * places["r.json:1"]["predicted_time_s"]
    (left_out,) = ran.json["context"]["skipped"]
    assert left_out == {
        "reason": "a composition of several kernels: no kernel 'lost' of elementwise is known",
        "rows": 1,
        "first": f"{composed}:3",
    }
    assert "run several operators one after another" in " ".join(perfmodel("validate", composed).out.split())


def test_compositions_are_counted_where_torch_is_not_installed(perfmodel, composed, monkeypatch):
    def missing(operator):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(registry, "find_kernels", missing)
    ran = perfmodel("validate", composed, "--format", "json")
    assert [(row["family"], row["rows"]) for row in ran.json["rows"]] == [("elementwise", 1)]
    (left_out,) = ran.json["context"]["skipped"]
    assert left_out["rows"] == 2
    assert "torch is not installed" in left_out["reason"]


def test_json_rows_have_the_keys_of_the_contract(perfmodel, table):
    ran = perfmodel("validate", table, "--format", "json")
    assert ran.code == 0
    assert (ran.json["schema_version"], ran.json["command"]) == (2, "validate")
    assert [list(row) for row in ran.json["rows"]] == [KEYS] * 3
    assert [(row["family"], row["hardware"], row["rows"]) for row in ran.json["rows"]] == [
        ("elementwise", "v100-pcie-32gb", 9),
        ("layer_norm", "a100-pcie-40gb", 1),
        ("all", "all", 10),
    ]
    assert all(0 <= row["mape"] < 10 and -1 < row["bias"] < 10 for row in ran.json["rows"])
    context = ran.json["context"]
    assert context["hardware"] == ["a100-pcie-40gb", "v100-pcie-32gb"]
    assert context["skipped"] == [{"reason": "flagged odd", "rows": 1, "first": f"{table}:12"}]
    assert any("flagged odd" in note and f"{table}:12" in note for note in ran.json["notes"])


def test_figures_are_fractions_in_data_and_percentages_for_people(perfmodel, table):
    (row,) = perfmodel("validate", table, "--on", "a100-pcie-40gb", "--format", "json").json["rows"]
    out = perfmodel("validate", table, "--on", "a100-pcie-40gb").out
    assert f"{100 * row['mape']:.1f} %" in out
    assert f"{100 * row['bound_mape']:.1f} %" in out
    (as_csv,) = csv.DictReader(io.StringIO(perfmodel("validate", table, "--on", "a100-pcie-40gb", "-f", "csv").out))
    assert float(as_csv["mape"]) == row["mape"]
    assert "MAPE of the datasheet roofline" in perfmodel("validate", table, "-f", "markdown").out


@pytest.mark.slow
@pytest.mark.waiting
def test_several_workers_judge_the_same(perfmodel, table, tmp_path):
    """The rows that are left out are counted over all files, and a machine is missed only where no file has it."""
    other = tmp_path / "other.csv"
    other.write_text(HEADER + NORM.format("odd"))
    command = ("validate", table, other, "--by", "table", "--format", "json")
    alone, together = perfmodel(*command), perfmodel(*command, "--workers", 2)
    assert alone.json == together.json
    assert together.json["context"]["skipped"] == [{"reason": "flagged odd", "rows": 2, "first": f"{table}:12"}]
    assert perfmodel(*command, "--workers", 2, "--on", "v100-pcie-32gb").code == 0
    for message in ("h100", tmp_path / "none.csv"):
        words = ("--on", message) if message == "h100" else (message,)
        alone, together = perfmodel(*command, *words), perfmodel(*command, *words, "--workers", 2)
        assert (alone.code, alone.err) == (together.code, together.err)
        assert str(message) in alone.err


def test_rows_that_are_faster_than_their_bound_are_counted_and_judged(perfmodel, tmp_path):
    """A product of 1.1 TFLOP takes an H100 1.1 ms at its peak; a clock may boost by a tenth, and no more."""
    path = tmp_path / "fast.csv"
    row = "h100,gemm,bf16,8192,8192,8192,{}\n"
    path.write_text(
        "hardware,op,dtype,m,n,k,time_s\n" + "".join(map(row.format, ("1.6e-3", "1.05e-3", "1e-6", "2e-6")))
    )
    ran = perfmodel("validate", path, "--format", "json")
    assert (ran.code, ran.json["rows"][0]["rows"], ran.json["context"]["faster_than_bound"]) == (0, 4, 2)
    assert any(f"2 rows faster than the bound (first: {path}:4)" in note for note in ran.json["notes"])


def test_known_reasons_to_beat_the_bound_are_not_among_them(perfmodel, tmp_path):
    """Winograd's algorithm needs 4/9 of the FLOP of a convolution by 3 x 3 filters, and warm data no device memory."""
    path = tmp_path / "known.csv"
    # 59 GFLOP take a V100 3.8 ms at its peak; 4 MB, which its L2 holds, 4.4 us from device memory
    path.write_text(
        "hardware,op,dtype,n,c,h,w,k,r,s,padding,kind,numel,time_s,cache\n"
        "v100,conv2d,fp32,64,256,28,28,256,3,3,1,,,2.6e-3,cold\n"
        "v100,elementwise,fp32,,,,,,,,,relu,500000,3e-6,warm\n"
    )
    context = perfmodel("validate", path, "--format", "json").json["context"]
    assert (context["skipped"], context["faster_than_bound"]) == ([], 0)


@pytest.mark.parametrize(("column", "sizes"), [("model", ""), ("name", ", hidden, layers, heads, ffn, vocab")])
def test_what_a_table_of_training_runs_lacks_is_said(perfmodel, tmp_path, column, sizes):
    """The catalog has the sizes of a model that is named."""
    path = tmp_path / "runs.csv"
    path.write_text(f"{column},hardware,gpus,tp,pp,dp,batch,seq,dtype,step_s\nllama,h100,8,1,1,8,64,4096,bf16,3.0\n")
    ran = perfmodel("validate", path)
    assert ran.code == 3
    assert f"has no column num_gpus, gbs, step_time_s{sizes}" in ran.err
    assert "data_formats.md" in ran.err


@pytest.fixture
def own_record(tmp_path):
    """A function that writes a record of five additions on a machine that only the specification in it knows."""

    def write(name: str, bandwidth: str):
        spec = {
            "name": "my-board", "vendor": "none", "architecture": "none",
            "memory": {"hbm": {"bandwidth": bandwidth}}, "peak": {"vector": {"fp32": "10 TFLOP/s"}},
        }  # fmt: skip
        rows = [
            {"op": "elementwise", "hardware": "my-board", "dtype": "fp32", "status": "ok",
             "kernel": "torch.elementwise", "params": {"numel": 10**6 * n, "kind": "add"}, "measured_time_s": n * 2e-5}
            for n in range(1, 6)
        ]  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps({"schema_version": 2, "command": "bench", "context": {"spec": spec}, "rows": rows}))
        return path

    return write


def test_a_record_is_judged_on_the_machine_in_it(perfmodel, table, own_record):
    fast, slow = own_record("fast.json", "1 TB/s"), own_record("slow.json", "500 GB/s")
    ran = perfmodel("validate", fast, table, slow, "--by", "table", "--format", "json")
    assert ran.code == 0, ran.err
    rows = {row["table"]: row for row in ran.json["rows"]}
    assert [rows[name]["rows"] for name in ("fast.json", "slow.json", "t.csv", "all")] == [5, 5, 10, 20]
    # 12 MB over 1 TB/s are 12 us of 20, over half the bandwidth 24
    assert rows["fast.json"]["bound_mape"] == pytest.approx(0.4, abs=0.01)
    assert rows["slow.json"]["bound_mape"] == pytest.approx(0.2, abs=0.01)
    # a machine of --on comes first
    ran = perfmodel("validate", fast, table, "--on", "v100-pcie-32gb")
    assert "machines that are not among those of --on" in " ".join(ran.out.split())


def test_a_wrong_specification_in_a_record_is_named(perfmodel, own_record):
    ran = perfmodel("validate", own_record("r.json", "fast"))
    assert (ran.code, "r.json: context.spec" in ran.err) == (3, True), ran.err


def test_ctrl_c_keeps_the_tables_that_were_judged(perfmodel, table, tmp_path, monkeypatch):
    more = [tmp_path / f"{name}.csv" for name in "abc"]
    for path in more:
        path.write_text(HEADER + NORM.format(""))
    whole = judging._judge_file

    def interrupted(task):
        if task.path.endswith("b.csv"):
            raise KeyboardInterrupt
        return whole(task)

    monkeypatch.setattr(judging, "_judge_file", interrupted)
    ran = perfmodel("validate", table, *more, "--format", "json", "--fail-on", "mape>0%")
    assert ran.code == 130
    assert "2 of 4 files were read" in ran.err
    assert ran.json["rows"][-1]["rows"] == 11
    assert [path.rpartition("/")[2] for path in ran.json["context"]["tables"]] == ["t.csv", "a.csv"]
    ran = perfmodel("validate", more[1], "--format", "json")
    assert (ran.code, ran.out) == (130, "")


def test_the_table_fits_a_narrow_terminal(table):
    read = read_measurements(table)
    report = judge([read], hardware).report(by=("family", "hardware"), worst=2)
    for width in (60, 80, 120):
        lines = table_format.render(report, width=width).splitlines()
        assert max(map(len, lines)) <= width
    assert {"MAPE", "coverage", "width", "roofline"} <= set(
        table_format.render(report, width=80).splitlines()[1].split()
    )


def test_flagged_rows_are_judged_when_asked_for(perfmodel, table):
    ran = perfmodel("validate", table, "--flagged", "--format", "json")
    assert ran.json["rows"][-1]["rows"] == 11
    assert ran.json["context"]["skipped"] == []


def test_the_grouping_is_chosen(perfmodel, table):
    rows = perfmodel("validate", table, "--by", "regime,kind", "--format", "json").json["rows"]
    assert set(rows[0]) == {*KEYS, "regime", "kind"}
    assert sum(row["rows"] for row in rows if "all" not in (row["regime"], row["kind"])) == 10
    assert {row["family"] for row in rows} == {"all"}
    (row,) = perfmodel("validate", table, "--by", "all", "--format", "json").json["rows"]
    assert row["rows"] == 10
    for by, message in (("regmie", "Did you mean 'regime'?"), ("", "names no key"), ("op,", "'op,' has an empty item")):
        ran = perfmodel("validate", table, "--by", by)
        assert (ran.code, ran.out) == (2, "")
        assert message in ran.err


@pytest.mark.parametrize("header", [
    "model,hardware,tp,pp,ep,wdtype,kvdtype,isl,osl,value,unit,meaning,engine,requests",
    "hardware,num_gpus,gbs,seq,step_time_s",
])  # fmt: skip
def test_a_grouping_of_published_runs_is_checked_before_they_are_predicted(perfmodel, tmp_path, header):
    """No run of the table can be predicted, which is said only of a grouping that exists."""
    runs = tmp_path / "runs.csv"
    runs.write_text(header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")
    wrong, right = (perfmodel("validate", runs, "--by", by) for by in ("sauce,hardware", "source,hardware"))
    assert (wrong.code, wrong.out, right.code) == (2, "", 3)
    assert "Did you mean 'source'?" in wrong.err
    assert "no row that can be judged" in right.err


def test_the_explanations_of_the_worst_rows_stand_below_them(perfmodel, table):
    worst = perfmodel("validate", table, "--worst", 2).out.partition("Worst rows\n")[2]
    assert worst.partition("\nexplanation\n")[2].startswith("1  ")


def test_the_worst_rows_are_listed_with_their_explanation(perfmodel, table):
    ran = perfmodel("validate", table, "--worst", 2, "--format", "json")
    worst = ran.json["worst"]
    assert len(worst) == 2
    assert worst[0]["place"].startswith(f"{table}:")
    assert worst[0]["ratio"] == pytest.approx(worst[0]["predicted_time_s"] / worst[0]["measured_time_s"])
    assert worst[0]["explanation"]
    out = perfmodel("validate", table, "--worst", 2).out
    assert worst[0]["row"] in out
    assert "Worst rows" in out
    assert "worst" not in perfmodel("validate", table, "--format", "json").json
    assert perfmodel("validate", table, "--worst", -1).code == 2


def test_a_gate_fails_with_1_and_says_which_group(perfmodel, table):
    passed = perfmodel("validate", table, "--fail-on", "mape>1000%", "--fail-on", "rows<1")
    assert (passed.code, passed.err) == (0, "")
    failed = perfmodel("validate", table, "--fail-on", "mape>1000%", "--fail-on", "rows<9")
    assert failed.code == 1
    assert failed.err.splitlines() == ["layer_norm a100-pcie-40gb: rows is 1, so rows<9 fails."]
    assert failed.out == passed.out


@pytest.mark.parametrize(
    ("by", "group"), [("none", "all rows"), ("hardware", "all rows"), ("dtype", "fp32"), ("kind,op", "add elementwise")]
)
def test_a_gate_names_a_group_by_its_labels_alone(perfmodel, table, by, group):
    ran = perfmodel("validate", table, "--by", by, "--fail-on", "rows>0")
    assert f"{group}: rows is " in ran.err, ran.err
    assert "all all" not in ran.err


def test_one_group_of_all_rows_has_no_labels(perfmodel, table):
    heading = perfmodel("validate", table, "--by", "none").out.splitlines()[1]
    assert heading.split()[0] == "rows"


@pytest.mark.parametrize("limit", ["mape", "mape>x", "mpe>8%"])
def test_a_limit_that_says_nothing_is_wrong_usage(perfmodel, table, limit):
    ran = perfmodel("validate", table, "--fail-on", limit)
    assert (ran.code, ran.out) == (2, "")
    assert "--fail-on" in ran.err


def test_rows_of_unknown_hardware_and_operators_are_named(perfmodel, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        HEADER
        + ADD.format(1)
        + ADD.format(2).replace("v100-pcie-32gb", "v100-pice-32gb")
        + ADD.format(3).replace("elementwise", "elementwize")
        + ADD.format(4).replace(",,,", ",2,3,")
    )
    ran = perfmodel("validate", path)
    assert ran.code == 0
    assert "on 1 measured row" in ran.out
    for part in (
        f"Left out: 1 row: unknown hardware 'v100-pice-32gb'. Did you mean 'v100-pcie-32gb'? (first: {path}:3).",
        f"Left out: 1 row: unknown operator 'elementwize'. Did you mean 'elementwise'? (first: {path}:4).",
        f"Left out: 1 row: elementwise: numel is not rows x cols (first: {path}:5).",
    ):
        assert "".join(part.split()) in "".join(ran.out.split())  # a long path may be wrapped anywhere


def test_on_judges_the_rows_of_one_machine_with_the_users_own_figures(perfmodel, table, tmp_path):
    theirs = perfmodel("validate", table, "--on", "v100-pcie-32gb", "--format", "json").json
    assert [row["rows"] for row in theirs["rows"]] == [9]
    assert theirs["context"]["skipped"][-1]["reason"] == "measured on machines that are not among those of --on"
    spec = tmp_path / "my_gpu.toml"
    spec.write_text(
        'name = "v100-pcie-32gb"\nvendor = "me"\narchitecture = "new"\n'
        '[memory.hbm]\nbandwidth = "9 GB/s"\n[peak.vector]\nfp32 = "10 TFLOP/s"\n'
    )
    mine = perfmodel("validate", table, "--on", spec, "--format", "json").json
    assert mine["rows"][0]["rows"] == 9
    # a hundredth of the bandwidth: every prediction is far too long
    assert mine["rows"][0]["bias"] > 10 > theirs["rows"][0]["bias"]
    ran = perfmodel("validate", table, "--on", "h100")
    assert ran.code == 2
    assert ran.err == (
        "perfmodel: --on: no row was measured on h100-sxm5-80gb. The rows are of a100-pcie-40gb, v100-pcie-32gb.\n"
    )


def _without_machine(text):
    return "".join(line.partition(",")[2] for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_on_stands_for_a_column_of_machines_that_the_table_lacks(perfmodel, tmp_path, suffix):
    """The rows are those of a table whose column names the machine; a blank cell of a column is one without it."""
    text = HEADER + "".join(map(ADD.format, range(1, 10)))
    tables = {"named": text, "lacking": _without_machine(text), "blank": text.replace("\nv100-pcie-32gb,", "\n,")}
    found = {}
    for name, content in tables.items():
        path = tmp_path / f"{name}.csv{suffix}"
        path.write_bytes(gzip.compress(content.encode()) if suffix else content.encode())
        found[name] = perfmodel("validate", path, "--on", "v100-pcie-32gb", "--format", "json").json
    assert found["lacking"]["rows"] == found["blank"]["rows"] == found["named"]["rows"]
    assert not any("without a machine" in note for note in found["named"]["notes"])
    for name in ("lacking", "blank"):
        assert any("9 rows without a machine; taken as v100-pcie-32gb" in note for note in found[name]["notes"])


def test_a_machine_that_a_row_names_is_not_replaced_by_that_of_on(perfmodel, table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(HEADER + ADD.format(1).replace("v100-pcie-32gb", "t4"))
    ran = perfmodel("validate", other, "--on", "v100-pcie-32gb")
    assert (ran.code, ran.err) == (2, "perfmodel: --on: no row was measured on v100-pcie-32gb. The rows are of t4.\n")


def test_several_machines_of_on_do_not_stand_for_a_missing_column(perfmodel, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(_without_machine(HEADER + ADD.format(1)))
    for on in ((), ("--on", "v100-pcie-32gb,t4")):
        ran = perfmodel("validate", path, *on)
        assert (ran.code, ran.out) == (3, "")
        assert "has no column hardware" in ran.err
        assert "--on HW states one for all rows" in ran.err


def test_on_stands_for_the_machine_of_published_runs(perfmodel, tmp_path):
    header, row = "hardware,num_gpus,gbs,seq,step_time_s,model,dtype", "h100-sxm5-80gb,8,64,4096,6.5,llama-3.1-8b,bf16"
    named, lacking = tmp_path / "t.csv", tmp_path / "u.csv"
    named.write_text(f"{header}\n{row}\n")
    lacking.write_text(_without_machine(f"{header}\n{row}\n"))
    command = ("--on", "h100", "--by", "hardware", "--format", "json")
    assert perfmodel("validate", lacking, *command).json["rows"] == perfmodel("validate", named, *command).json["rows"]
    ran = perfmodel("validate", lacking)
    assert ran.code == 3
    assert "has no column hardware" in ran.err
    assert "--on HW states one machine for all runs" in ran.err


def test_rows_of_other_machines_than_those_of_on_are_one_line(perfmodel, table):
    with table.open("a") as stream:
        stream.writelines(ADD.format(1).replace("v100-pcie-32gb", machine) for machine in ("t4", "l4", "h100"))
    skipped = perfmodel("validate", table, "--on", "v100-pcie-32gb", "--format", "json").json["context"]["skipped"]
    assert [one["rows"] for one in skipped if "--on" in one["reason"]] == [4]


def test_gzip_and_several_tables(perfmodel, table, tmp_path):
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    ran = perfmodel("validate", table, packed, table, "--by", "table", "--format", "json")
    assert [(row["table"], row["rows"]) for row in ran.json["rows"]] == [("t.csv", 10), ("t.csv.gz", 10), ("all", 20)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b"name,time_ms\na,1\n", "has no column hardware"),
        (b"\x7fELF\x00\x00", "NUL"),
        (gzip.compress(HEADER.encode() * 9, mtime=0)[:-9], "is not a whole gzip file"),
        ((HEADER + ADD.format("x")).encode(), "line 2, column"),
        ((HEADER + ADD.format(1).replace("v100", "w100")).encode(), "unknown hardware 'w100-pcie-32gb'"),
        ((HEADER + ADD.format(1).replace("v100", "w100")).encode(), "with --on FILE.toml; calibrate -o writes one."),
        ((HEADER + NORM.format("odd")).encode(), "1 row: flagged odd"),
        ((HEADER + ADD.format(1).replace("elementwise", "warp")).encode(), "unknown operator 'warp'"),
    ],
)
def test_a_wrong_file_exits_with_3_and_one_message(perfmodel, tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    ran = perfmodel("validate", path, "--plot", tmp_path / "p.png", "-o", tmp_path / "o.json")
    assert (ran.code, ran.out) == (3, "")
    assert message in ran.err
    assert str(path) in ran.err
    assert len(ran.err.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Missing argument"),
        (("none.csv",), 3, "none.csv: no such file"),
        ((".",), 3, "directory"),
        (("{table}", "--on", "zx81"), 2, "unknown hardware 'zx81'"),
        (("{table}", "--plot", "p.gif"), 2, ".png, .svg, .pdf"),
        (("{table}", "-o", "p.gif"), 2, "names no format"),
        (("{table}", "--plot", "/none/p.png"), 2, "its folder does not exist"),
    ],
)
def test_wrong_usage(perfmodel, table, arguments, code, message):
    ran = perfmodel("validate", *(part.format(table=table) for part in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_output_and_plot_go_to_files(perfmodel, table, tmp_path):
    ran = perfmodel("validate", table, "-o", tmp_path / "o.md", "--plot", tmp_path / "p.svg")
    assert (ran.code, ran.out) == (0, "")
    assert "elementwise" in (tmp_path / "o.md").read_text()
    assert "predicted time" in (tmp_path / "p.svg").read_text()


def test_the_open_tables_of_normalisations(perfmodel, data_dir):
    tables = [data_dir / "measurements" / f"neusight_{name}_fp32.csv.gz" for name in ("layer_norm",)]
    rows = perfmodel("validate", *tables, "--format", "json").json["rows"]
    assert rows[-1]["rows"] == 6104
    assert all(row["mape"] < row["bound_mape"] for row in rows)


def test_tables_of_several_kinds_are_told_apart(perfmodel):
    """Each kind by its first table, in the order of the command line."""
    folder = Path(__file__).parents[2] / "examples" / "published"
    kernels, steps, loads = (folder / f"{name}.csv" for name in ("fifth", "training", "serving_arrivals"))
    ran = perfmodel("validate", kernels, folder / "sixth.csv", steps, loads)
    assert ran.code == 2
    held = f"{kernels} holds measured calls, {steps} holds runs of training, {loads} holds runs of serving."
    assert f"the tables are of several kinds: {held} Validate one kind at a time." in ran.err
