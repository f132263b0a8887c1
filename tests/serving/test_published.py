"""Published runs: readers of the tables, runs that are left out, errors on the open rows, the fit of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.errors import InputFileError
from perfmodel.files import read_document
from perfmodel.hardware_catalog import hardware
from perfmodel.serving.engine import QUANTITIES, Engine, engine_names, find_engine, read_engine
from perfmodel.serving.engine_file import write_engine
from perfmodel.serving.fit_engine import engine_cases, fit_engine
from perfmodel.serving.laboratories import ITSELF
from perfmodel.serving.published import KEYS, judge, recognises
from perfmodel.serving.published_case import Case, engine_of
from perfmodel.serving.published_tables import reader_of
from perfmodel.workloads.catalog import find_model

OFFLINE = "model,hardware,tp,pp,ep,wdtype,kvdtype,isl,osl,value,unit,meaning,engine,requests\n"
ROW = "{model},{hardware},{tp},1,1,fp8,fp8,128,2048,21109,{unit},offline,TensorRT-LLM 0.17,3000\n"


def table(folder: Path, **cells: str) -> Path:
    path = folder / "runs.csv"
    values = {"model": "llama-3.1-8b", "hardware": "h100", "tp": "1", "unit": "output tok/s"} | cells
    path.write_text(OFFLINE + ROW.format(**values))
    return path


def case_of(folder: Path, row: dict[str, str]) -> Case:
    """Return what a table with one row says."""
    path = folder / "runs.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    (run,) = read_run_table(path).runs
    reader = reader_of(tuple(row))
    assert reader is not None
    return reader(run)


def test_tables_are_recognised_by_their_columns() -> None:
    assert recognises(OFFLINE.strip().split(","))
    assert not recognises(("hardware", "op", "dtype", "m", "n", "k", "time_s"))
    assert not recognises(("hardware", "num_gpus", "gbs", "seq", "step_time_s"))


def test_a_rate_of_each_gpu_counts_for_all(tmp_path: Path) -> None:
    whole = judge(read_run_table(table(tmp_path, tp="2")), hardware).rows[0]
    each = judge(read_run_table(table(tmp_path, tp="2", unit="output tok/s per GPU")), hardware).rows[0]
    assert each.measured == 2 * whole.measured
    assert each.predicted == whole.predicted


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "no-such-model"}, "unknown model"),
        ({"hardware": "no-such-gpu"}, "no-such-gpu"),
        ({"tp": "3"}, "does not divide"),
        ({"model": "llama-3.1-405b"}, "does not fit"),
    ],
)
def test_runs_that_cannot_be_predicted_are_counted(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    runs = judge(read_run_table(table(tmp_path, **cells)), hardware)
    assert not runs.rows
    assert runs.skipped[0].rows == 1
    assert reason in runs.skipped[0].reason


def test_an_engine_that_nobody_knows_gets_the_widest_interval(tmp_path: Path) -> None:
    text = table(tmp_path).read_text().replace("TensorRT-LLM 0.17", "brand-new 1.0")
    (tmp_path / "other.csv").write_text(text)
    known = judge(read_run_table(tmp_path / "runs.csv"), hardware).rows[0]
    other = judge(read_run_table(tmp_path / "other.csv"), hardware).rows[0]
    assert other.label("engine") == "generic"
    assert other.high / other.low > known.high / known.low


@pytest.mark.parametrize("name", engine_names())
def test_profiles_are_read_and_written(name: str, tmp_path: Path) -> None:
    profile = find_engine(name)
    write_engine(profile, tmp_path / "engine.toml")
    again = read_engine(tmp_path / "engine.toml")
    for key, value in vars(profile).items():
        other = getattr(again, key)
        assert other == pytest.approx(value) if isinstance(value, float) else other == value
    assert profile.sources, "each profile says where its constants come from"


#: keys that describe a profile, and constants that are fitted or assumed, not read
_LABELS = {"name", "title", "family", "since", "until", "sources", "errors"}
_FITTED = {
    *("host", "host_sequence", "launch", "prompt_launch", "gap", "front_end", "hot", "experts_start_s"),
    *("exchange_slower", "slower", "imbalance", "balance_steps"),
}


@pytest.mark.parametrize("name", engine_names())
def test_each_constant_has_its_source_and_each_fitted_one_its_error(name: str) -> None:
    path = Path(__file__).resolve().parents[2] / "engine_specs" / "serving" / f"{name}.toml"
    document = read_document(path)
    given = set(document) - _LABELS
    assert not given - set(document["sources"])
    assert given & _FITTED == set(document["errors"])


def test_versions_choose_among_profiles() -> None:
    assert [find_engine("vllm", version).name for version in ("0.5.4", "0.6.3", "0.8")] == [
        "vllm-0.5",
        "vllm-v0",
        "vllm",
    ]
    assert find_engine("vllm", "0.19.0").name == "vllm"
    assert find_engine("trtllm", "0.14").name == "trtllm-triton"
    assert find_engine("trtllm", "1.2.0rc6").name == "trtllm"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 'x'", "has no name"),
        ("name = 'x'\nhots = 3", "unknown key 'hots'"),
        ("name = 'x'\nhost = '3 GB'", "host"),
        ("name = 'x'\nreserve = 3", "is no bool"),
        ("name = 'x'\nscheduler = 'chunk'", "unknown scheduler 'chunk'"),
        ("name = 'x'\nutilization = -0.5", "not a finite number"),
    ],
)
def test_wrong_profiles_say_why(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "engine.toml"
    path.write_text(text)
    with pytest.raises(Exception, match=message):
        read_engine(path)


def concurrency_table(folder: Path, made: Callable[[float], float]) -> Path:
    header = (
        "engine,engine_version,model,hardware,wdtype,tp,isl,osl,concurrency,measured_ttft_ms,measured_tpot_ms,lengths"
    )
    users = (1, 2, 4, 8, 16, 32, 64)
    rows = (f"vllm,0.12.0,llama-3.1-8b,h100,bf16,1,512,256,{n},100,{made(n):.6g},fixed" for n in users)
    path = folder / "users.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_rows_group_by_who_published_them(tmp_path: Path) -> None:
    lines = concurrency_table(tmp_path, lambda users: 10.0).read_text().splitlines()
    named = [f"{line},{word}" for line, word in zip(lines, ["source", *"aab"], strict=False)]
    (tmp_path / "named.csv").write_text("\n".join(named) + "\n")
    runs = judge(read_run_table(tmp_path / "named.csv"), hardware)
    found = {row["source"]: row["rows"] for row in runs.by(("source",)) if row["quantity"] == "tpot_s"}
    assert found == {"a": 2, "b": 1, "all": 3}
    assert set(runs.keys) == set(KEYS)


def test_the_fit_finds_the_host_of_a_run_that_was_made_with_it(tmp_path: Path) -> None:
    first = judge(read_run_table(concurrency_table(tmp_path, lambda users: 1.0)), hardware)
    predicted = iter([1e3 * row.predicted for row in first.rows if row.quantity == "tpot_s"])
    slower = read_run_table(concurrency_table(tmp_path, lambda users: next(predicted) + 2.0))
    profile = find_engine("vllm")
    fit = fit_engine(engine_cases([slower], profile), profile, hardware)
    assert fit.error < 0.02 < fit.error_before
    assert fit.engine.host_s == pytest.approx(profile.host_s + 2e-3, abs=5e-4)
    assert fit.engine.sources["host"] == "perfmodel calibrate on 7 runs of users"
    assert fit.engine.sources["scheduler"] == profile.sources["scheduler"]


def test_too_few_runs_are_not_fitted(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="too few"):
        engine_cases([read_run_table(table(tmp_path))], find_engine("vllm"))


@pytest.mark.waiting
def test_open_rows_of_maximum_throughput(data_dir: Path) -> None:
    runs = judge(read_run_table(data_dir / "e2e_serving" / "trtllm_max_throughput.csv"), hardware)
    dense = [row for row in runs.rows if row.label("kind") == "dense" and row.label("engine") == "trtllm-offline"]
    errors = np.abs([row.ratio - 1 for row in dense])
    assert len(dense) > 200
    assert errors.mean() < 0.07
    assert np.quantile(errors, 0.9) < 0.15


@pytest.mark.waiting
def test_replay_of_every_request(data_dir: Path) -> None:
    runs = judge(read_run_table(data_dir / "e2e_serving" / "llmservingsim_vllm_requests.csv"), hardware)
    errors = [abs(row.ratio - 1) for row in runs.rows if row.quantity.startswith(("tpot", "latency"))]
    assert len(errors) == 8
    assert np.mean(errors) < 0.06


def test_profiles_have_defaults_that_are_plain() -> None:
    assert Engine("x").hot_on("wgmma") == 1.0
    assert Engine("x", library="vllm").attention_on("tcgen05") == "vllm"


def test_every_key_of_a_profile_is_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    for key in [*(item.name for item in fields(Engine) if item.name not in _INTERNAL), *QUANTITIES]:
        assert f"`{key}`" in page or f"`[{key}]`" in page, key
    for name in engine_names():
        assert f"`{name}`" in page


#: attributes that a file has under another name, without the unit
_INTERNAL = {name for name, _ in QUANTITIES.values()}


def test_a_build_without_a_version_is_the_newest() -> None:
    assert engine_of("trtllm gpt-oss-dev") == ("trtllm", "")
    assert engine_of("deepspeed-inference 0.7.3") == ("deepspeed-inference", "0.7.3")
    assert engine_of("deepspeed-mii 0.2") == ("generic", "0.2")
    assert engine_of("sglang v0.5.9") == ("sglang", "0.5.9")


@pytest.mark.parametrize("text", ["0.6.3.dev109+gcb3b2b9b (rocm)", "v0.10.0 (ROCm 6.4)", "1", "1.2.0rc6.post3"])
def test_a_version_may_have_words_behind_it(text: str) -> None:
    assert engine_of(f"trtllm {text}")[1] == text.lower().removeprefix("v")


@pytest.mark.parametrize(
    ("told", "version", "profile"),
    [
        ("main of 2024-03-28", "0.3", "vllm-0.5"),
        ("2024 (about 0.5)", "0.5", "vllm-0.5"),
        ("October 2025", "0.10", "vllm"),
        ("March 2025", "", "vllm"),  # 0.8 came out within it
        ("2024 (unknown)", "", "vllm"),
    ],
)
def test_a_run_told_by_a_date_has_the_release_of_that_time(
    tmp_path: Path, told: str, version: str, profile: str
) -> None:
    row = {
        "source": "somebody", "engine": "vllm", "engine_version": told, "model": "llama-3.1-8b", "hardware": "h100",
        "wdtype": "bf16", "tp": "1", "isl": "100", "osl": "100", "concurrency": "8", "measured_ttft_ms": "",
        "measured_tpot_ms": "9", "lengths": "fixed",
    }  # fmt: skip
    setup = case_of(tmp_path, row).setup
    deployed = setup.deployment(hardware, 200)
    assert (setup.version, deployed.profile.name) == (version, profile)
    assert deployed.release_known is bool(version)


@pytest.mark.parametrize(
    ("wdtype", "name", "weights"),
    [
        ("unknown", "qwen3_5_b200_sglang_bf16_agg_1024x1024_c4_cfg587", "bf16"),
        ("", "run_fp4_8192x1024", "nvfp4"),
        ("fp8", "qwen3_5_b200_sglang_bf16_agg_1024x1024_c4_cfg587", "fp8"),
        ("unknown", "some_run", "fp8"),  # SGLang's, as those of Qwen3-32B in the open table
    ],
)
def test_the_name_of_a_run_tells_the_format_that_its_column_does_not(
    tmp_path: Path, wdtype: str, name: str, weights: str
) -> None:
    row = {
        "id": name, "engine": "sglang", "engine_version": "0.5.9", "model": "qwen3.5-397b-a17b", "hardware": "b200",
        "wdtype": wdtype, "tp": "8", "pp": "1", "attention_dp": "1", "moe_tp": "8", "ep": "1", "isl": "1024",
        "osl": "1024", "concurrency": "4", "measured_ttft_ms": "200", "measured_tpot_ms": "8", "lengths": "uniform",
    }  # fmt: skip
    case = case_of(tmp_path, row)
    assert case.setup.weights == weights
    assert case.labels["dtype_known"] == ("no" if name == "some_run" else "yes")


@pytest.mark.parametrize(
    ("source", "lengths", "waves"),
    [
        ("somebody", "fixed", 2.0),  # whose users start at once, with lengths all alike, and stay in step
        ("somebody", "uniform 0.8-1.0", 10.0),
        ("somebody", "sharegpt", 10.0),
        ("ai-dynamo/aiconfigurator silicon_sample.csv", "fixed", 10.0),
    ],
)
def test_users_with_lengths_all_alike_stay_in_step_in_other_laboratories(
    tmp_path: Path, source: str, lengths: str, waves: float
) -> None:
    row = {
        "source": source, "engine": "vllm", "engine_version": "0.10.0", "model": "llama-3.1-8b", "hardware": "h100",
        "wdtype": "bf16", "tp": "1", "isl": "1024", "osl": "1024", "concurrency": "32", "measured_ttft_ms": "500",
        "measured_tpot_ms": "10", "lengths": lengths,
    }  # fmt: skip
    assert case_of(tmp_path, row).requests == 32 * waves


@pytest.mark.parametrize(
    "cells", [{}, {"max_num_seqs": "40", "max_num_batched_tokens": "512", "max_model_len": "4096"}]
)
def test_the_limits_of_a_server_hold_where_a_row_tells_them(tmp_path: Path, cells: dict[str, str]) -> None:
    row = {
        "source": "somebody", "engine": "vllm", "engine_version": "0.7.2", "model": "llama-3.1-8b", "hardware": "h100",
        "tp": "1", "wdtype": "bf16", "kvdtype": "bf16", "requests": "100", "isl_mean": "200", "osl_mean": "200",
        "qps": "inf", "ttft_mean_ms": "", "itl_mean_ms": "20", "output_tok_s": "", "max_num_seqs": "",
        "max_num_batched_tokens": "", "max_model_len": "",
    }  # fmt: skip
    found = case_of(tmp_path, row | cells).setup.deployment(hardware, 401)
    told = (found.sequence_limit, found.token_budget, found.config.positions)
    assert told == ((40, 512, 4096) if cells else (256, 2048, 131072))
    # 4096 tokens of context are read prompts first, 131072 in chunks
    assert found.profile.scheduler == ("prefill_first" if cells else "chunked_recompute")


def test_users_that_start_at_once_with_lengths_all_alike_stay_in_step() -> None:
    """In the tenth wave their first tokens come as late as in the first, and sooner where lengths differ."""
    deployment = pm.Deployment(find_model("llama-3.1-8b"), pm.hardware("h100"), engine="vllm", laboratory=ITSELF)
    alike, differing = (
        pm.simulate(deployment, pm.closed_loop(32, 320, 1024, 256, spread=spread), interval=False).ttft_s
        for spread in (0.0, 0.3)
    )
    assert 0.7 < alike[-32:].mean() / alike[:32].mean() < 1.3
    assert differing[-32:].mean() < 0.5 * alike[-32:].mean()
