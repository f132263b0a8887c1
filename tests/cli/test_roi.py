"""`perfmodel roi`: the contract of its output, its options and its exit codes."""

import csv
import io
from pathlib import Path

import pytest

from perfmodel.formats import read_profile
from perfmodel.investment.economics import Economics
from perfmodel.investment.plan import read_plan
from perfmodel.investment.ranking import rank_candidates
from perfmodel.render import table as table_format

EXAMPLES = Path(__file__).parents[2] / "examples"
ABC = (EXAMPLES / "profile_abc.csv", "--plan", EXAMPLES / "plan_abc.toml")
KEYS = {
    *("name", "time_s", "fraction", "local_speedup", "overall_speedup", "time_saved_s", "max_overall_speedup"),
    *("dev_days", "roi_per_day", "payback_days", "net_value", "verdict", "rank", "targets", "yearly_saving"),
}


def test_json_has_the_keys_of_the_contract(perfmodel):
    ran = perfmodel("roi", *ABC, "--format", "json")
    assert ran.code == 0
    assert ran.json["schema_version"] == 2
    assert ran.json["command"] == "roi"
    assert ran.json["context"]["total_time_s"] == pytest.approx(0.1)
    assert [row["name"] for row in ran.json["rows"]] == ["fuse A and B", "A 2x", "B 3x", "C 10x"]
    assert all(set(row) >= KEYS for row in ran.json["rows"])


def test_money_of_a_training_plan_is_that_of_its_own_gpus(perfmodel):
    plan = EXAMPLES / "training_plan.toml"  # gpus = 32
    words = ("roi", plan, "--price-per-gpu-hour", 2, "--format", "json")
    own, same, twice = (perfmodel(*words, *more) for more in ((), ("--gpus", 32), ("--gpus", 64)))
    assert own.json["rows"] == same.json["rows"]
    saved = [row["yearly_saving"] for row in own.json["rows"]]
    assert max(saved) > 0
    assert [row["yearly_saving"] for row in twice.json["rows"]] == pytest.approx([2 * each for each in saved])
    assert "2 runs of" in twice.err
    refused = perfmodel(*words, "--gpus", 48)
    assert refused.code == 2
    assert "which has gpus = 32" in refused.err


def test_csv_has_the_same_rows(perfmodel):
    rows = list(csv.DictReader(io.StringIO(perfmodel("roi", *ABC, "--format", "csv").out)))
    assert [float(row["overall_speedup"]) for row in rows] == pytest.approx([15 / 11, 4 / 3, 1.25, 1 / 0.91])


def test_markdown_and_table_show_the_order(perfmodel):
    for format_ in ("markdown", "table"):
        out = perfmodel("roi", *ABC, "--format", format_).out
        separator = " | " if format_ == "markdown" else "  "
        starts = [out.index(f"{n}{separator}{name}") for n, name in enumerate(("fuse", "A 2x", "B 3x", "C 10x"), 1)]
        assert starts == sorted(starts)
        assert "do first" in out


@pytest.mark.parametrize("economics", [None, Economics(8, 2, 1000)])
@pytest.mark.parametrize("example", ["abc", "gpt2"])
def test_the_table_fits_a_narrow_terminal(example, economics):
    profile = read_profile(EXAMPLES / f"profile_{example}.csv")
    ranking = rank_candidates(profile, read_plan(EXAMPLES / f"plan_{example}.toml"), economics)
    lines = table_format.render(ranking.report(), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    shown = {"name", "overall"} | ({"yearly", "payback", "net"} if economics else {"saved", "ROI/day"})
    header = next(line for line in lines if line.startswith("#"))
    assert shown <= set(header.split())
    assert "verdict" not in header
    below = lines[lines.index("verdict") + 1 :]
    verdicts = {row.verdict for row in ranking.rows}
    assert all(any(line.endswith(verdict) for line in below) for verdict in verdicts), "each in one line, by number"


def test_a_profile_alone_shows_the_ceilings(perfmodel):
    rows = perfmodel("roi", EXAMPLES / "profile_gpt2.csv", "--format", "json").json["rows"]
    assert rows[0]["max_overall_speedup"] == pytest.approx(500 / 120)
    assert rows[1]["overall_speedup"] == pytest.approx(500 / 440)


def test_a_claim_that_contradicts_the_profile_is_said(perfmodel):
    ran = perfmodel("roi", EXAMPLES / "profile_gpt2.csv", "--plan", EXAMPLES / "plan_gpt2.toml", "--format", "json")
    assert "420 ms, not 380 ms" in ran.json["rows"][0]["verdict"]


def test_money_is_per_gpu_hour(perfmodel, tmp_path):
    (tmp_path / "p.csv").write_text("name,time_s\ntraining,1\n")
    (tmp_path / "p.toml").write_text('[[candidates]]\nname="all"\ntargets=["*"]\nspeedup=3\ndev_days=4\n')
    options = ("--gpus", 8, "--price-per-gpu-hour", 10, "--hours-per-year", 720, "--format", "json")
    ran = perfmodel("roi", tmp_path / "p.csv", "--plan", tmp_path / "p.toml", "--dev-day-cost", 1000, *options)
    row = ran.json["rows"][0]
    assert row["yearly_saving"] == pytest.approx(38_400)
    assert row["net_value"] == pytest.approx(34_400)
    without = perfmodel("roi", tmp_path / "p.csv", "--plan", tmp_path / "p.toml", *options).json
    assert without["rows"][0]["net_value"] is None
    assert any("--dev-day-cost" in note for note in without["notes"])


def test_hours_default_to_a_whole_year(perfmodel):
    ran = perfmodel("roi", *ABC, "--gpus", 1, "--price-per-gpu-hour", 1, "--format", "json")
    assert ran.json["rows"][1]["yearly_saving"] == pytest.approx(8760 / 4)


def test_top_leaves_rows_out_and_says_so(perfmodel):
    ran = perfmodel("roi", *ABC, "--top", 2, "--format", "json")
    assert len(ran.json["rows"]) == 2
    assert any("2 more rows" in note for note in ran.json["notes"])


def test_output_goes_to_a_file_in_the_format_of_its_suffix(perfmodel, tmp_path):
    ran = perfmodel("roi", *ABC, "-o", tmp_path / "roi.md")
    assert (ran.code, ran.out) == (0, "")
    assert "fuse A and B" in (tmp_path / "roi.md").read_text()


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--gpus", 8), "--price-per-gpu-hour is missing"),
        (("--price-per-gpu-hour", 2), "--gpus is missing"),
        (("--dev-day-cost", 2), "--gpus and --price-per-gpu-hour are missing"),
        (("--hours-per-year", 2), "--gpus and --price-per-gpu-hour are missing"),
        (("--gpus", 0, "--price-per-gpu-hour", 2), "gpus is 0"),
        (("--gpus", 1, "--price-per-gpu-hour", 2, "--hours-per-year", 9000), "A year has 8760 hours"),
        (("--top", 0), "--top"),
        (("--horizon-years", 2), "--gpus and --price-per-gpu-hour are missing"),
        (("--gpus", 1, "--price-per-gpu-hour", 2, "--horizon-years", 0), "horizon_years is 0"),
        (
            ("--gpus", 1, "--price-per-gpu-hour", 2, "--discount-rate", "ten"),
            "--discount-rate: 'ten' is not a percentage",
        ),
        (("--rank", "payback"), "ranking by payback needs prices"),
        (("--rank", "gain"), "unknown ranking 'gain'"),
        (("--days", 0), "days is 0"),
        (("--output", "nowhere/roi.json"), "its folder does not exist"),
        (("--output", "roi.docx"), "names no format"),
        (("--candidates", "diagnosis"), "Did you mean 'diagnose'"),
        (("--effort", "fuse"), "is not an effort"),
        (("--on", "a1000"), "a1000"),
        (("--gpus", "many"), "--gpus"),
        (("--to", "h100", "--to", "h200"), "--to: the command takes one machine"),
    ],
)
def test_wrong_options_exit_with_2_and_say_which(perfmodel, options, missing):
    ran = perfmodel("roi", *ABC, *options)
    assert (ran.code, ran.out) == (2, "")
    assert missing in ran.err


@pytest.mark.parametrize(
    ("profile", "plan", "message"),
    [
        ("name,latency\na,1\n", None, "no unit"),
        ("name,time_ms\na,-1\n", None, "negative"),
        ("", None, "empty"),
        ("name,time_ms\na,1\n", "[[candidates]]\nname = 'x'\ntargets = ['b']\nspeedup = 2", "target 'b'"),
        ("name,time_ms\na,1\n", "[[candidates]]\nname = 'x'\ntargets = ['a']\nspeedup = 0", "speedup is 0"),
        ("name,time_ms\na,1\n", "[[candidates", "not valid TOML"),
    ],
)
def test_a_wrong_file_exits_with_3_and_is_named(perfmodel, tmp_path, profile, plan, message):
    (tmp_path / "p.csv").write_text(profile)
    (tmp_path / "plan.toml").write_text(plan or "")
    ran = perfmodel("roi", tmp_path / "p.csv", *(("--plan", tmp_path / "plan.toml") if plan else ()))
    assert (ran.code, ran.out) == (3, "")
    assert message in ran.err
    assert str(tmp_path) in ran.err


def test_help_names_the_units_and_an_example(perfmodel):
    ran = perfmodel("roi", "--help")
    assert ran.code == 0
    text = " ".join(ran.out.replace("│", " ").split())
    assert "perfmodel roi profile.csv --plan plan.toml" in text
    assert "not of the fleet" in text
    assert "8760" in text


def test_a_budget_picks_the_set(perfmodel):
    ran = perfmodel("roi", *ABC, "--days", 5, "--format", "json")
    done = [row["name"] for row in ran.json["rows"] if row["cumulative_time_s"] is not None]
    assert done == ["A 2x", "B 3x"]  # 55 ms; fused and A: 56.7 ms in 3 days
    assert ran.json["context"]["decision"].startswith("Within 5 days do 'A 2x', 'B 3x': 1.818x overall")


def test_sensitivity_is_a_table_of_its_own(perfmodel):
    money = ("--gpus", 8, "--price-per-gpu-hour", 10, "--dev-day-cost", 1000, "--horizon-years", 3)
    ran = perfmodel("roi", *ABC, *money, "--discount-rate", "10%", "--sensitivity", "--format", "json")
    rows = {row["assumption"]: row for row in ran.json["sensitivity"]}
    assert set(rows) >= {"local speedup", "development days", "price per GPU-hour", "GPUs", "horizon [years]"}
    assert rows["development days"]["instead"] == "A 2x"
    without = perfmodel("roi", *ABC, "--format", "json").json
    assert "sensitivity" not in without


def test_a_month_saves_38400(perfmodel, tmp_path):
    (tmp_path / "p.csv").write_text("name,time_s\ntraining,1\n")
    (tmp_path / "p.toml").write_text('[[candidates]]\nname="all"\ntargets=["*"]\nspeedup=3\ndev_days=4\n')
    options = ("--gpus", 8, "--price-per-gpu-hour", 10, "--hours-per-year", 720, "--dev-day-cost", 1000)
    out = perfmodel("roi", tmp_path / "p.csv", "--plan", tmp_path / "p.toml", *options).out
    assert "38400" in out
    assert "net value 34,400 over a year" in out


def test_markdown_is_a_page_for_a_pull_request(perfmodel, tmp_path):
    perfmodel("roi", *ABC, "--sensitivity", "-o", tmp_path / "roi.md")
    lines = (tmp_path / "roi.md").read_text().splitlines()
    assert lines[0] == "### ROI of 4 candidates on profile_abc.csv: 100 ms in 4 entries"
    assert lines[2].startswith("**Decision:** Do 'fuse A and B' first")
    assert "- Machine for the bounds: none named, so nothing is bounded" in lines
    assert any(line.startswith("### Sensitivity of the decision") for line in lines)


def test_the_machine_comes_from_the_profile_and_bounds_its_parts(perfmodel, data_dir):
    trace = data_dir / "traces" / "tracelens_h100_qwen1.5-0.5b_prefill.json.gz"
    ran = perfmodel("roi", trace, "--candidates", "none", "--format", "json")
    assert ran.json["context"]["hardware"] == ["h100-sxm5-80gb"]
    rows = {row["name"]: row for row in ran.json["rows"]}
    product = rows["aten::mm(8944x1024, 1024x2816) bf16"]
    # 2 x 8944 x 1024 x 2816 FLOP at 989.4 TFLOP/s are 52.1 us, 48 times; measured 4.055 ms: 62 %, at most 1.62x
    assert product["efficiency"] == pytest.approx(0.617, abs=0.005)
    assert product["max_local_speedup"] == pytest.approx(1.62, abs=0.01)
    assert product["verdict"].endswith("at 62 % of its bound: at most 1.62x locally, 1.047x overall")


def test_a_wish_is_flagged_and_counted_with_the_bound_unless_told_otherwise(perfmodel, tmp_path, data_dir):
    trace = data_dir / "traces" / "tracelens_h100_qwen1.5-0.5b_prefill.json.gz"
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[[candidates]]\nname = "4x products"\ntargets = ["aten::mm(8944x1024, 1024x2816) bf16"]\nspeedup = 4\n'
        'dev_days = 3\n[[candidates]]\nname = "fp8"\ntargets = ["aten::mm(8944x1024, 1024x2816) bf16"]\nspeedup = 4\n'
        'kind = "dtype"\n'
    )
    rows = perfmodel("roi", trace, "--plan", plan, "--format", "json").json["rows"]
    by_name = {row["name"]: row for row in rows}
    wish, changed = by_name["4x products"], by_name["fp8"]
    assert "claims 4x, physics allows 1.62x" in wish["verdict"]
    assert wish["local_speedup"] == pytest.approx(1.62, abs=0.01)
    assert (changed["local_speedup"], changed["dev_days"]) == (4.0, 1.0)  # days of its kind
    told = perfmodel("roi", trace, "--plan", plan, "--as-claimed", "--format", "json").json["rows"]
    assert {row["name"]: row["local_speedup"] for row in told}["4x products"] == 4.0


def test_what_is_all_of_the_time_has_no_factor(perfmodel, tmp_path):
    profile, plan, scenario = tmp_path / "one.csv", tmp_path / "plan.toml", tmp_path / "steps.toml"
    profile.write_text("name,time_ms\na,5\n")
    plan.write_text('[[candidates]]\nname = "x"\ntargets = ["a"]\nnew_time = "0 s"\ndev_days = 1\n')
    scenario.write_text('[[steps]]\nname = "x"\nkind = "remove"\ntargets = ["a"]\n')
    for command in (
        ("roi", profile, "--on", "h100"),
        ("roi", profile, "--plan", plan),
        ("whatif", profile, scenario),
    ):
        ran = perfmodel(*command)
        assert ran.code == 0
        assert "infx" not in ran.out
    assert "it is all of the time" in perfmodel("roi", profile, "--on", "h100", "--wide").out
    assert "no time left after 1 step" in perfmodel("whatif", profile, scenario).out


def test_an_empty_path_is_said_to_be(perfmodel):
    ran = perfmodel("roi", "")
    assert (ran.code, ran.err) == (3, "perfmodel: the path is empty. Is the variable in the command line set?\n")


@pytest.mark.parametrize("kind", ["even", "slow_rank"])
def test_people_see_ten_parts_of_a_job_with_and_without_a_candidate(perfmodel, kind):
    traces = Path(__file__).parents[1] / "diagnosis" / "ranks" / "traces" / f"fsdp_2_{kind}"
    ranks = sorted(traces.glob("rank*.json.gz"))
    text = perfmodel("roi", *ranks).out
    document = perfmodel("roi", *ranks, "--format", "json").json
    headroom = text[text.index("Headroom of each part") :]
    assert len([line for line in headroom.splitlines() if line[:2].strip().isdigit() and "%" in line]) == 10
    rows = document["rows" if kind == "even" else "parts"]
    assert len(rows) > 100, "JSON has all"
    assert f"{len(rows) - 10} more rows (" in headroom
    assert f"--top {len(rows)} lists them." in headroom
    every = perfmodel("roi", *ranks, "--top", len(rows)).out
    assert "more rows" not in every
    assert all(f"\n{row['rank']:3}  " in every for row in rows)


def test_a_profile_of_few_parts_is_listed_whole(perfmodel):
    ran = perfmodel("roi", EXAMPLES / "profile_gpt2.csv")
    assert "more rows" not in ran.out
