"""`perfmodel analyze`: the contract's keys, the formats, and what wrong usage gets."""

from __future__ import annotations

import csv
import io
import json

import pytest

KEYS = {
    *("op", "name", "params", "dtype", "count", "hardware", "flop", "bytes_read", "bytes_written", "limiter", "advice"),
    *("arithmetic_intensity_flop_per_byte", "ridge_point_flop_per_byte", "bound_time_s", "predicted_time_s"),
    *("predicted_time_low_s", "predicted_time_high_s", "attainable_flop_per_s", "attainable_bytes_per_s"),
}
GEMM = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=fp16")
ON = ("--on", "a100-sxm4-40gb")


def test_json_rows_have_the_keys_of_the_contract(perfmodel):
    ran = perfmodel("analyze", *GEMM, *ON, "--format", "json")
    assert ran.code == 0
    document = ran.json
    assert (document["schema_version"], document["command"]) == (2, "analyze")
    assert document["context"]["hardware"] == ["a100-sxm4-40gb"]
    assert document["context"]["perfmodel"]
    (row,) = document["rows"]
    assert set(row) >= KEYS
    assert (row["op"], row["hardware"], row["dtype"], row["limiter"]) == ("gemm", "a100-sxm4-40gb", "fp16", "compute")
    assert row["params"] | {"m": 4096, "n": 4096, "k": 4096, "batch": 1} == row["params"]
    assert row["flop"] == 2 * 4096**3
    assert row["bound_time_s"] == pytest.approx(440.5e-6, rel=1e-3)


def test_a_sweep_over_two_machines_has_a_row_a_point(perfmodel):
    ran = perfmodel("analyze", "gemm", "m=64..512", "n=8/16", "k=4", *ON, "--on", "v100", "--format", "json")
    rows = ran.json["rows"]
    assert len(rows) == 2 * 4 * 2
    assert {row["hardware"] for row in rows} == {"a100-sxm4-40gb", "v100-sxm2-32gb"}
    assert all(isinstance(row["params"]["m"], int) for row in rows)


def test_formats_agree(perfmodel):
    rows = list(csv.DictReader(io.StringIO(perfmodel("analyze", *GEMM, *ON, "--format", "csv").out)))
    document = perfmodel("analyze", *GEMM, *ON, "-f", "json").json
    assert float(rows[0]["bound_time_s"]) == document["rows"][0]["bound_time_s"]
    assert "| gemm m=4096 n=4096 k=4096 fp16 |" in perfmodel("analyze", *GEMM, *ON, "-f", "markdown").out
    assert "440.5 us" in perfmodel("analyze", *GEMM, *ON).out


@pytest.mark.parametrize(("suffix", "start"), [("json", "{"), ("csv", "op,"), ("md", "###"), ("txt", "Bound")])
def test_the_suffix_of_the_output_chooses_the_format(perfmodel, tmp_path, suffix, start):
    path = tmp_path / f"out.{suffix}"
    ran = perfmodel("analyze", *GEMM, *ON, "-o", path)
    assert (ran.code, ran.out) == (0, "")
    assert str(path) in ran.err
    assert path.read_text().startswith(start)


def test_output_to_a_dash_is_stdout(perfmodel):
    assert json.loads(perfmodel("analyze", *GEMM, *ON, "--format", "json", "-o", "-").out)["rows"]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((*GEMM,), 2, "--on is missing"),
        ((), 2, "Missing argument"),
        (("gem", "m=1", *ON), 2, "Did you mean 'gemm'?"),
        (("gemm", "m=1", "n=1", "kk=1", *ON), 2, "Did you mean 'k'?"),
        (("gemm", "m=0", "n=1", "k=1", *ON), 2, "below 1"),
        (("gemm", "m=-1", "n=1", "k=1", *ON), 2, "below 1"),
        (("gemm", "m=1e30", "n=1", "k=1", *ON), 2, "above 2^53"),
        (("gemm", "m=1.5", "n=1", "k=1", *ON), 2, "not a whole number"),
        (("gemm", "m=1", "n=1", "k=1", "dtype=fp8", *ON), 2, "no peak for dtype 'fp8'"),
        (("gemm", "m=1", "n=1", "k=1", "dtype=fp17", *ON), 2, "unknown dtype 'fp17'"),
        ((*GEMM, "--on", "a100-smx4-40gb"), 2, "Did you mean 'a100-sxm4-40gb'?"),
        ((*GEMM, "--on", "zx81"), 2, "of `perfmodel hardware list`"),
        ((*GEMM, "--on", "none.toml"), 3, "none.toml: no such file"),
        (("none.yaml", *ON), 3, "none.yaml: no such file"),
        ((*GEMM, *ON, "--format", "xml"), 2, "xml"),
        ((*GEMM, *ON, "--on"), 2, "--on"),
        ((*GEMM, *ON, "-o", "out.xml"), 2, "names no format"),
        ((*GEMM, *ON, "-o", "/none/out.json"), 2, "its folder does not exist"),
        ((*GEMM, *ON, "-o", "/proc/out.json"), 2, "cannot be written"),
        ((*GEMM, *ON, "--plot", "/none/out.png"), 2, "its folder does not exist"),
        ((*GEMM, *ON, "--plot", "out.gif"), 2, "gif"),
        ((*GEMM, *ON, "--foo"), 2, "--foo"),
        ((*GEMM, *ON, "--workers", "0"), 2, "0 workers are impossible"),
        ((*GEMM, *ON, "--scheduler", "here"), 2, "no address"),
        ((*GEMM, *ON, "--measured", "1ms", "--workers", "2"), 2, "belongs to one call"),
    ],
)
def test_wrong_usage_gets_one_message_and_the_exit_code(perfmodel, arguments, code, part):
    ran = perfmodel("analyze", *arguments)
    assert ran.code == code
    assert part in ran.err
    assert ran.err.startswith("perfmodel: ")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_bad_files_name_the_file(perfmodel, tmp_path):
    for name, text in {
        "empty.toml": "",
        "cut.json": '[{"op": "gemm", "m"',
        "zero.yaml": "- {op: gemm, m: 0, n: 1, k: 1}",
    }.items():
        (tmp_path / name).write_text(text)
        ran = perfmodel("analyze", tmp_path / name, *ON)
        assert ran.code == 3
        assert name in ran.err
    ran = perfmodel("analyze", f"{tmp_path}/", *ON)
    assert (ran.code, "directory" in ran.err) == (3, True)


def test_the_users_own_machine_works_like_a_name(perfmodel, tmp_path):
    spec = tmp_path / "my_gpu.toml"
    spec.write_text(
        'name = "mine"\nvendor = "me"\narchitecture = "new"\n'
        '[memory.hbm]\nbandwidth = "1 TB/s"\n[peak.vector]\nfp32 = "10 TFLOP/s"\n'
    )
    rows = perfmodel("analyze", "elementwise", "numel=1e9", "--on", spec, "--format", "json").json["rows"]
    assert rows[0]["hardware"] == "mine"
    assert rows[0]["bound_time_s"] == pytest.approx(12e-3)


def test_machines_of_one_name_are_both_shown(perfmodel, tmp_path):
    """A calibration keeps the name of its machine: beside that, and beside another, it has the name of its file."""
    folders = tmp_path / "mine.toml", tmp_path / "again" / "mine.toml"
    folders[1].parent.mkdir()
    for count, path in enumerate(folders):
        path.write_text(
            'name = "v100-sxm2-32gb"\nvendor = "me"\narchitecture = "new"\n'
            f'[memory.hbm]\nbandwidth = "{count + 1} TB/s"\n[peak.vector]\nfp32 = "10 TFLOP/s"\n'
        )
    words = ("analyze", "elementwise", "numel=1e9", "--format", "json", "--on", "v100,v100-sxm2-32gb")
    rows = perfmodel(*words, "--on", folders[0], "--on", folders[1]).json["rows"]
    assert [row["hardware"] for row in rows] == ["v100-sxm2-32gb", "mine", str(folders[1])]
    assert rows[1]["bound_time_s"] == pytest.approx(12e-3)
    assert rows[2]["bound_time_s"] == pytest.approx(6e-3)
    # alone it keeps the name that it has
    assert perfmodel(*words[:-1], folders[0]).json["rows"][0]["hardware"] == "v100-sxm2-32gb"


def test_a_library_that_nobody_measured_is_a_warning(perfmodel) -> None:
    words = ("analyze", "gemm", "m=512", "n=512", "k=512", "dtype=bf16", "--on", "h100-sxm5-80gb", "--format", "json")
    ran = perfmodel(*words, "--library", "nonsense")
    assert ran.code == 0
    assert (
        "no table of gemm_bf16 for h100-sxm5-80gb has rows of library 'nonsense' (measured: sglang, torch, trtllm"
        in ran.err
    )
    assert ran.json["rows"][0]["not_seen"] == ["library"]
    # a call without a library may be of any that was measured; kernels of another are less sure
    ends = [perfmodel(*words, *more).json["rows"][0] for more in ((), ("--library", "nonsense"))]
    widths = [row["predicted_time_high_s"] / row["predicted_time_low_s"] for row in ends]
    assert 1.2 * widths[0] < widths[1]
    assert not perfmodel(*words, "--library", "trtllm").err
    assert perfmodel(*words, "--library", "VLLM").err.strip().endswith("Did you mean 'vllm'?")


@pytest.mark.parametrize("query", [("seq_q=4096", "causal=true"), ("seq_q=1", "seq_kv=4096")])
@pytest.mark.parametrize("machine", ["h100", "a100", "b200", "mi300x"])
@pytest.mark.parametrize(
    "library",
    [
        "fa1",
        "fa2",
        "fa3",
        "fa4",
        "flashinfer",
        "triton",
        "cudnn",
        "efficient",
        "trtllm_gen",
        "torch/fa2",
        "torch/cudnn",
    ],
)
def test_a_kernel_of_attention_that_is_documented_is_not_taken_for_another(perfmodel, library, machine, query) -> None:
    ran = perfmodel("analyze", "attention", "heads=32", "head_dim=128", "dtype=bf16", *query, "--on", machine,
                    "--library", library)  # fmt: skip
    assert "Did you mean" not in ran.err
    assert "nobody measured" not in ran.err
    if "no table" in ran.err:
        assert "it is predicted as this kernel is built, with the constants of " in ran.err


def test_a_library_measured_on_some_machines_is_missed_on_others_by_name(perfmodel) -> None:
    words = ("analyze", "attention", "heads=32", "seq_q=1024", "head_dim=64", "dtype=fp32", "--library", "torch")
    assert "has rows of library" not in perfmodel(*words, "--on", "h100").err
    assert "no table of attention_prefill for t4 has rows of library 'torch'" in perfmodel(*words, "--on", "t4").err


@pytest.mark.parametrize("library", ["triton", "inductor", "liger"])
def test_a_library_that_is_known_is_no_misspelt_one(perfmodel, library) -> None:
    ran = perfmodel("analyze", *GEMM, "--on", "h100", "--library", library)
    assert ran.err.strip().endswith("was not measured.")


FP8 = ("gemm", "m=512", "n=512", "k=512", "dtype=fp8")


@pytest.mark.parametrize("more", [(), ("--measured", "10us"), ("--plot", "times.png")])
def test_a_machine_that_cannot_run_an_operator_does_not_hide_the_others(perfmodel, tmp_path, more) -> None:
    more = [tmp_path / word if word.endswith(".png") else word for word in more]
    ran = perfmodel("analyze", *FP8, *ON, "--on", "h100", "--on", "v100", *more, "--format", "json")
    assert ran.code == 0
    assert [row["hardware"] for row in ran.json["rows"]] == ["h100-sxm5-80gb"]
    told = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
    assert len(told) == 2
    assert "gemm on a100-sxm4-40gb left out: a100-sxm4-40gb has no peak for dtype 'fp8'" in told[0]
    assert "v100" in told[1]


def test_one_line_tells_all_operators_that_a_machine_lacks_for_one_reason(perfmodel) -> None:
    ran = perfmodel("analyze", *GEMM, *FP8, *FP8, *ON, "--on", "h100", "--format", "json")
    assert [row["hardware"] for row in ran.json["rows"]] == ["a100-sxm4-40gb"] + 3 * ["h100-sxm5-80gb"]
    assert ran.err.count("left out") == 1


def test_where_no_machine_can_run_it_there_is_one_error(perfmodel) -> None:
    ran = perfmodel("analyze", *FP8, *ON, "--on", "v100")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("perfmodel: a100-sxm4-40gb has no peak for dtype 'fp8'")
    assert len(ran.err.splitlines()) == 1


def test_explain_says_what_the_interval_is_made_of(perfmodel) -> None:
    words = ("analyze", "gemm", "m=512", "n=512", "k=512", "dtype=bf16", "--on", "l4", "--explain", "--format", "json")
    rows = perfmodel(*words, "--library", "trtllm").json["interval"]
    assert [row["source"] for row in rows] == ["shape", "machine"]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)


def test_a_measured_value_is_explained_drawn_and_warned_about_as_a_prediction_is(perfmodel, tmp_path):
    plots = tmp_path / "roofline.png", tmp_path / "terms.png"
    words = ("analyze", *GEMM, *ON, "--measured", "700us", "--library", "torh")
    drawn = perfmodel(*words, "--plot", plots[0])
    explained = perfmodel(*words, "--explain", "--plot", plots[1], "--format", "json")
    assert (drawn.code, explained.code) == (0, 0)
    assert all(plot.stat().st_size > 10_000 for plot in plots)
    assert "Did you mean 'torch'?" in drawn.err
    assert explained.json["terms"][0]["term"] == "math"
    assert explained.json["rows"][0]["achieved_flop_per_s"] == pytest.approx(2 * 4096**3 / 700e-6)
