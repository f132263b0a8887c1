"""`perfmodel serve`: the contract of its output, its objectives, its plots, and one message for each wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.serving import load, stability, study

MODEL = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"
SMALL = ("serve", MODEL, "--on", "h100", "--isl", "128", "--osl", "32")
KEYS = {
    *("concurrency", "batch", "ttft_s", "tpot_s", "output_tokens_per_s", "tokens_per_s_per_gpu", "kv_bytes", "limiter"),
    *("deployment", "hardware", "tp", "requests_per_s", "terms_s", "latency_s", "queued_s", "itl_s", "kv_share"),
}


def test_json_has_the_keys_of_the_contract(perfmodel):
    ran = perfmodel(*SMALL, "--concurrency", "1..8", "--format", "json")
    assert ran.code == 0
    assert [row["concurrency"] for row in ran.json["rows"]] == [1, 2, 4, 8]
    for row in ran.json["rows"]:
        assert set(row) >= KEYS
        for name in ("ttft_s", "tpot_s"):
            assert {"mean", "p50", "p95", "p99", "mean_low", "mean_high", "p99_low", "p99_high"} <= set(row[name])
            assert row[name]["mean_low"] < row[name]["mean"] < row[name]["mean_high"]
        assert row["output_tokens_per_s"] == pytest.approx(row["requests_per_s"] * 32)
    rates = [row["output_tokens_per_s"] for row in ran.json["rows"]]
    assert rates == sorted(rates)


def test_weights_are_by_default_as_the_checkpoint_stores_them(perfmodel, data_dir):
    """DeepSeek-V3 has 671 GB in fp8: in 16 bits eight H200 do not hold it."""
    load = ("--on", "h200", "--tp", "8", "--isl", "128", "--osl", "4", "--concurrency", "1", "--format", "json")
    file = data_dir / "hf_configs" / "deepseek-ai__DeepSeek-V3.json"
    for model, said in ((file, "as the config says"), ("deepseek-v3", "as the catalog has it")):
        note = f"Weights in fp8_block, {said}; --weights chooses another format."
        ran = perfmodel("serve", model, *load)
        assert ran.code == 0
        assert [row["weights"] for row in ran.json["rows"]] == ["fp8_block"]
        assert note in ran.json["notes"]
    chosen = perfmodel("serve", "deepseek-v3", *load, "--weights", "fp8")
    assert chosen.json["rows"][0]["weights"] == "fp8"
    assert not any("Weights in" in text for text in chosen.json["notes"])
    named = perfmodel("serve", "deepseek-v3-nvfp4", *load)
    assert "Weights in nvfp4, as the name says; --weights chooses another format." in named.json["notes"]
    too_large = perfmodel("serve", "deepseek-v3", *load, "--weights", "bf16")
    assert too_large.code == 2
    assert "does not fit" in too_large.err


def test_a_date_stands_for_a_release_and_a_note_says_which(perfmodel):
    note = "The version 'March 2024' stands for vllm 0.3, the oldest release that may be meant."
    load = ("--concurrency", "4", "--steady", "--format", "json")
    dated, numbered, today = (perfmodel(*SMALL, *load, *more) for more in (
        ("--engine-version", "March 2024"), ("--engine-version", "0.3"), (),
    ))  # fmt: skip
    assert note in dated.json["notes"]
    assert dated.json["rows"] == numbered.json["rows"] != today.json["rows"]
    assert not any("stands for" in text for text in numbered.json["notes"])
    found = perfmodel(
        "search", *SMALL, "--tp", "1", "--batch", "4", "--engine-version", "March 2024", "--format", "json"
    )
    assert note in found.json["notes"]


def test_layers_over_several_hosts_exchange_over_the_network_that_is_given(perfmodel):
    load = ("--tp", "2", "--isl", "128", "--osl", "4", "--concurrency", "1", "--format", "json")
    alone = perfmodel("serve", MODEL, "--on", "h100", *load)
    spread = ("serve", MODEL, "--on", "h100", *load, "--gpus-per-node", "1")
    slow, fast = (perfmodel(*spread, "--nic", rate) for rate in ("25Gb/s", "800Gb/s"))
    exchanges = [ran.json["rows"][0]["terms_s"]["exchange"] for ran in (alone, fast, slow)]
    assert exchanges == sorted(exchanges)
    note = "Layers over 2 hosts of h100-sxm5-80gb exchange at 25Gb/s a GPU (--nic)"
    assert any(text.startswith(note) for text in slow.json["notes"])
    assert not any("Layers over" in text for text in alone.json["notes"])
    wrong = perfmodel(*spread, "--nic", "fast")
    assert (wrong.code, "400 Gb/s" in wrong.err) == (2, True)
    unknown = perfmodel("serve", MODEL, "--on", "rtx-4090", *load, "--gpus-per-node", "1")
    assert (unknown.code, "--nic 400Gb/s" in unknown.err) == (2, True)


def test_a_draft_keeps_its_own_format_unless_one_is_chosen(perfmodel):
    load = ("--on", "h100", "--isl", "64", "--osl", "4", "--concurrency", "1", "--explain", "--format", "json")
    pair = ("serve", "gpt-oss-20b", "--speculate", "2:0.5", "--draft", MODEL)
    stored, chosen = (perfmodel(*pair, *load, *more) for more in ((), ("--weights", "mxfp4")))
    assert stored.code == chosen.code == 0
    sizes = [sum(part["bytes"] for part in ran.json["memory"] if part["part"] == "weights") for ran in (stored, chosen)]
    assert sizes[0] > sizes[1], "a dense draft in 16 bits is larger than one in 4"


def test_a_checkpoint_of_an_unknown_kind_is_taken_in_16_bits_and_said_to_be(perfmodel, data_dir, tmp_path):
    document = json.loads((data_dir / "hf_configs" / "meta-llama__Meta-Llama-3.1-8B.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document | {"quantization_config": {"quant_method": "quark"}}))
    load = ("--on", "h100", "--isl", "64", "--osl", "4", "--concurrency", "1", "--format", "json")
    ran = perfmodel("serve", path, *load)
    assert [row["weights"] for row in ran.json["rows"]] == ["bf16"]
    assert any("in a way that is not read (quark): taken as bf16. --weights" in text for text in ran.json["notes"])


def test_the_steady_state_is_that_of_the_simulation(perfmodel):
    arguments, spread = (*SMALL, "--concurrency", "8", "--format", "json"), ("--length-spread", "0.3")
    loads = (*spread, "--num-requests", "400"), ("--steady",)
    simulated, steady = (perfmodel(*arguments, *more).json["rows"][0] for more in loads)
    assert set(steady) == set(simulated), "what a formula does not know is null, and not absent"
    assert (steady["queued_s"], steady["busy_share"]) == (None, None)
    assert steady["tpot_s"]["mean"] == pytest.approx(simulated["tpot_s"]["mean"], rel=0.1)
    assert steady["output_tokens_per_s"] == pytest.approx(simulated["output_tokens_per_s"], rel=0.1)


def test_shares_are_percentages_or_fractions(perfmodel):
    fractions = ("--length-spread", "0.2", "--memory-utilization", "0.5", "--watermark", "0.05", "--speculate", "4:0.7")
    percentages = ("--length-spread", "20%", "--memory-utilization", "50%", "--watermark", "5%", "--speculate", "4:70%")
    one, other = (perfmodel(*SMALL, "--concurrency", "4", "-f", "json", *more) for more in (fractions, percentages))
    assert one.code == other.code == 0
    assert one.json["rows"] == other.json["rows"]


def test_a_larger_estimate_lets_fewer_enter_at_first(perfmodel):
    load = ("--isl", "100", "--osl", "400", "--concurrency", "16", "--num-requests", "16", "-f", "json")
    tight = ("serve", MODEL, "--on", "h100", "--engine", "sglang", "--kv-tokens", "4000", *load)
    asked = (("--conservativeness", "0.3"), (), ("--conservativeness", "1.4"))
    waits = [perfmodel(*tight, *more).json["rows"][0]["ttft_s"]["mean"] for more in asked]
    assert waits[0] < waits[1] < waits[2]


def test_explain_adds_the_terms_of_the_mean_step_and_the_memory(perfmodel):
    ran = perfmodel(*SMALL, "--concurrency", "4", "--explain", "--format", "json")
    terms = ran.json["terms"]
    assert sum(row["share"] for row in terms) == pytest.approx(1.0)
    assert {"weights", "kv", "host"} <= {row["term"] for row in terms}
    assert {row["part"] for row in ran.json["memory"]} >= {"weights", "keys and values"}


@pytest.mark.parametrize(
    "words",
    [
        ("mixtral-8x7b", "--tp", 2, "--concurrency", 1),
        ("mixtral-8x7b", "--tp", 2, "--concurrency", 16),
        ("llama-3.1-8b", "--concurrency", 64),
        ("llama-3.1-8b", "--concurrency", 4, "--engine", "hf-eager"),
    ],
)
def test_the_terms_of_the_mean_step_are_those_of_the_steady_state(perfmodel, words):
    """A step of a few prompt tokens would load more experts than any step does."""
    run = ("serve", *words, "--on", "h100", "--format", "json")
    simulated, steady = (perfmodel(*run, *more).json["rows"][0] for more in ((), ("--steady",)))
    total, expected = (sum(row["terms_s"].values()) for row in (simulated, steady))
    assert total == pytest.approx(expected, rel=0.15)
    assert total == pytest.approx(simulated["tpot_s"]["mean"], rel=0.2)
    largest = max(steady["terms_s"], key=steady["terms_s"].get)
    assert simulated["terms_s"][largest] == pytest.approx(steady["terms_s"][largest], rel=0.15)


def test_objectives_set_the_exit_code_and_find_the_largest_load(perfmodel):
    good = perfmodel(*SMALL, "--concurrency", "1..16", "--slo", "ttft=10s,tpot=1s,p99", "--format", "json")
    assert good.code == 0
    assert good.json["largest_load"][0]["concurrency"] == 16
    told = " ".join(perfmodel(*SMALL, "--concurrency", "16", "--slo", "ttft=10s").out.split())
    assert "up to 16 users" in told
    assert "no larger load was tried" in told
    assert all(row["slo_met"] and row["attainment"] == 1 for row in good.json["rows"])
    bad = perfmodel(*SMALL, "--concurrency", "1..16", "--slo", "tpot=1ns")
    assert bad.code == 1
    assert "No deployment meets p95 tpot <= 1 ns" in bad.out


def test_without_given_loads_the_largest_one_fills_the_caches_of_all_replicas(perfmodel):
    """Each of two caches has room for 12 sequences of 112 tokens, in blocks of 16: no power of two, and 24 in all."""
    lengths = ("serve", MODEL, "--on", "h100", "--isl", "102", "--osl", "20", "--kv-tokens", 12 * 112)
    ran = perfmodel(*lengths, "--replicas", 2, "--slo", "ttft=10s,tpot=1s", "--format", "json")
    assert ran.json["largest_load"][0]["concurrency"] == 24
    assert [row["concurrency"] for row in ran.json["rows"]] == [1, 2, 4, 8]


@pytest.mark.parametrize("more", [(), ("--steady",)])
def test_an_objective_of_a_time_that_no_answer_has_is_met_and_said(perfmodel, more):
    words = ("serve", MODEL, "--on", "h100", "--isl", "128", "--osl", "1", "--concurrency", "2", "--format", "json")
    ran = perfmodel(*words, "--slo", "tpot=1ns,ttft=10s,mean", *more)
    assert ran.code == 0
    (row,) = ran.json["rows"]
    assert row["slo_met"]
    assert row["tpot_s"]["mean"] is None
    assert row["latency_s"]["mean"] == pytest.approx(row["ttft_s"]["mean"])
    assert any("no tpot: such an objective is met" in note for note in ran.json["notes"])
    assert perfmodel(*words, "--slo", "ttft=1ns,mean", *more).code == 1


def test_a_first_token_is_as_doubtful_in_a_simulation_as_in_the_steady_state(perfmodel):
    # One user waits for nobody: both views have the same time, and the engine's file states the same doubt of it.
    words = ("serve", "llama-3.1-8b", "--on", "h100", "--concurrency", 1, "--format", "json")
    simulated, steady = (perfmodel(*words, *more).json["rows"][0]["ttft_s"] for more in ((), ("--steady",)))
    for key in ("mean", "mean_low", "mean_high"):
        assert simulated[key] == pytest.approx(steady[key], rel=0.02)
    assert simulated["p99_high"] / simulated["p99"] == pytest.approx(simulated["mean_high"] / simulated["mean"])


@pytest.mark.waiting
def test_a_load_above_the_capacity_is_said_before_a_thousand_requests_show_it(perfmodel):
    words = ("serve", "llama-3.1-8b", "--on", "h100", "--format", "json")
    document = perfmodel(*words, "--qps", "8/24").json
    below, above = document["rows"]
    assert below["growth_per_s"] is None
    assert above["growth_per_s"] > 0
    assert above["capacity_per_s"] == pytest.approx(21.5, rel=0.05)
    assert any("is above the capacity of about" in note for note in document["notes"])
    assert any("near the capacity have 10,000 requests" in note for note in document["notes"])
    # a thousand alone end before the cache is full, and the option keeps them so few
    few = perfmodel(*words, "--qps", "24", "--num-requests", "1000").json
    assert few["rows"][0]["ttft_s"]["mean"] < 0.1 * above["ttft_s"]["mean"]
    assert not any("10,000 requests" in note for note in few["notes"])


def test_users_that_start_together_are_said_to(perfmodel):
    words = ("serve", "llama-3.1-8b", "--on", "h100", "--concurrency", "1/16", "--num-requests", 64)
    assert "--spread-start leaves this out" in perfmodel(*words).out.replace("\n", " ")
    for more in (("--spread-start",), ("--concurrency", "1/2")):
        assert "All users start at once" not in perfmodel(*words, *more).out
    assert "All users start at once" not in perfmodel(*words[:4], "--steady").out


def test_a_draft_that_is_often_right_makes_tokens_faster(perfmodel):
    arguments = (*SMALL, "--concurrency", "1", "--format", "json")
    plain, wrong, right = (
        perfmodel(*arguments, *more).json["rows"][0]["tpot_s"]["mean"]
        for more in ((), ("--speculate", "4:0"), ("--speculate", "4:0.9"))
    )
    assert right < plain <= wrong


@pytest.mark.waiting
def test_processes_give_the_same_results(perfmodel):
    arguments = (*SMALL, "--tp", "1/2", "--concurrency", "1..4", "--slo", "ttft=1s,tpot=1s", "--format", "json")
    assert perfmodel(*arguments, "--workers", "2").json == perfmodel(*arguments).json


def test_a_price_gives_the_cost_of_tokens_and_the_gpus_of_a_load(perfmodel):
    ran = perfmodel(
        *SMALL, "--concurrency", "8", "--price-per-gpu-hour", "3.6", "--for-qps", "1000", "--format", "json"
    )
    (row,) = ran.json["rows"]
    assert row["cost_per_million_tokens"] == pytest.approx(3.6 / 3600 / row["output_tokens_per_s"] * 1e6)
    assert row["requests_per_money"] == pytest.approx(1000 * row["requests_per_s"])
    assert "1000 requests/s need" in ran.json["notes"][-1]


def test_a_machine_that_is_named_twice_is_one(perfmodel):
    ran = perfmodel(*SMALL, "--on", "h100-sxm5-80gb,l40s", "--concurrency", "1", "--steady", "--format", "json")
    assert [row["hardware"] for row in ran.json["rows"]] == ["h100-sxm5-80gb", "l40s"]


@pytest.mark.waiting
def test_all_requests_that_are_asked_for_are_simulated(perfmodel, monkeypatch):
    """Also more than perfmodel takes where nobody says how many."""
    simulated = []

    def simulate(deployment, requests, *fleet, **more):
        simulated.append(requests)
        return load.simulate_fleet(deployment, requests, *fleet, **more)

    monkeypatch.setattr(study, "simulate_fleet", simulate)
    count = stability.LONG + 500
    ran = perfmodel(*SMALL, "--osl", "2", "--qps", "50", "--num-requests", count, "--format", "json")
    assert ran.code == 0
    assert [len(requests) for requests in simulated] == [ran.json["rows"][0]["num_requests"]] == [count]


def test_a_load_above_capacity_is_said(perfmodel):
    ran = perfmodel(*SMALL, "--qps", "100000", "--max-num-seqs", "4", "--num-requests", "200")
    assert ran.code == 0
    assert "is above the capacity of about" in " ".join(ran.out.split())


def test_a_file_of_requests_is_replayed(perfmodel, tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output,user\n0.2,100,5,a\n0,200,9,b\n")
    of_file = ("serve", MODEL, "--on", "h100", "--requests", trace)
    ran = perfmodel(*of_file, "--format", "json")
    (row,) = ran.json["rows"]
    assert (row["isl"], row["osl"]) == (150, 7)
    assert any("sorted by arrival" in note for note in ran.json["notes"])
    lengths = perfmodel(*of_file, "--concurrency", "2", "--num-requests", "20", "--format", "json")
    assert lengths.json["rows"][0]["osl"] == 7


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("--concurrency", "1/16", "--slo", "tpot=1s"), "pareto"),
        (("--qps", "1/4", "--num-requests", "50"), "load"),
        (("--concurrency", "1/16"), "steps"),
    ],
)
def test_plots_are_written(perfmodel, tmp_path: Path, options, kind):
    paths = tmp_path / "plot.svg", tmp_path / "time.svg"
    ran = perfmodel(*SMALL, *options, "--plot", paths[0], "--plot-kind", kind, "--timeline", paths[1])
    assert ran.code == 0
    wanted = {"pareto": "front", "load": "mean", "steps": "interval"}[kind]
    assert f'id="{wanted}"' in paths[0].read_text()
    assert 'id="KV cache in use"' in paths[1].read_text()


@pytest.mark.parametrize(
    ("text", "rates"),
    [("0.5..4", [0.5, 1, 2, 4]), ("0.1..0.3+0.1", [0.1, 0.2, 0.3]), ("1..4", [1, 2, 4]), ("0.5/2", [0.5, 2])],
)
def test_ranges_of_rates_may_start_below_one(text, rates):
    from perfmodel.cli._serving_input import rates as parsed

    assert parsed(text) == tuple(rates)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tp", "3"), "tp=3 does not divide"),
        (("--isl", "5000"), "longer than the model's 4096 positions"),
        (("--qps", "0"), "never sends one"),
        (("--qps", "0..4"), "is not a rising range within 0.001 to 2^53. Write --qps 1..8, say."),
        (("--qps", "4", "--burstiness", "3"), "a burstiness of 3 is none of poisson gaps. Add --spacing gamma."),
        (("--memory-utilization", "90"), "'90' has no per cent sign and is 1 or more. Write 90% for per cent."),
        (("--memory-utilization", "150%"), "a share of the memory of 1.5 is not within 0 to 1"),
        (("--memory-utilization", "nan"), "'nan' is not a percentage or a fraction. Write 5% or 0.05."),
        (("--prefix", "-5"), "--prefix: '-5' is below 0."),
        (("--osl", "0.5"), "--osl: '0.5' is below 1."),
        (("--qps", "1e12"), "a rate of 1e+12 requests a second is not possible. Give rates up to 1e+09, or inf"),
        (("--plot-kind", "load"), "Add --plot FILE.png"),
        (("--for-qps", "0"), "a rate of 0 requests a second is not possible"),
        (("--for-qps", "1e300"), "at most 1e+09"),
        (("--engine-version", "abc"), "'abc' is no version, and no date. Write 0.6.3, 2025-06 or June 2025, say."),
        (("--engine-version", "March 2025"), "'March 2025' may be 0.7.1 to 0.8, which differ from 0.8 on."),
        (("--concurrency", "0"), "0 is no whole number from 1"),
        (("--ep", "inf"), "inf is no whole number from 1"),
        (("--osl", "1e300", "--concurrency", "1"), "not possible"),
        (("--num-requests", "99999999999", "--concurrency", "1"), "a load of 99999999999 requests is not possible"),
        (("--concurrency", "2", "--qps", "2"), "are two loads"),
        (("--kv-tokens", "64", "--concurrency", "1"), "never fit"),
        (("--engine", "vlm"), "Did you mean 'vllm'"),
        (("--policy", "dynamics"), "Did you mean 'dynamic'"),
        (("--max-wait", "1s", "--concurrency", "1"), "only dynamic batches"),
        (("--policy", "dynamic", "--max-wait", "100", "--concurrency", "1"), "Write 100ms or 100s."),
        (("--routing", "random", "--replicas", "2", "--qps", "1"), "unknown routing"),
        (("--slo", "tftt=1s"), "Did you mean 'ttft'"),
        (("--percentiles", "50,101"), "'101' is no percentile"),
        (("--length-spread", "20", "--concurrency", "1"), "Write 20% for per cent."),
        (("--length-spread", "200%", "--concurrency", "1"), "not within 0 to 1"),
        (("--watermark", "5", "--concurrency", "1"), "Write 5% for per cent."),
        (("--spacing", "poison", "--qps", "1"), "Did you mean 'poisson'"),
        (("--prefix", "128", "--concurrency", "1"), "not shorter than the shortest prompt"),
        (("--price-per-gpu-hour", "0"), "not above 0"),
        (("--plot", "a.gif"), "suffix"),
        (("--plot-kind", "paretto"), "Did you mean 'pareto'"),
        (("--steady", "--timeline", "a.png"), "nor a time line"),
        (("--speculate", "four"), "is no number of tokens with an acceptance"),
        (("--speculate", "4:70", "--concurrency", "1"), "Write 70% for per cent."),
        (("--speculate", "4:150%", "--concurrency", "1"), "not within 0 to 1"),
        (("--draft", "llama-3.2-1b"), "needs --speculate"),
        (("--sampling", "multi", "--concurrency", "1"), "unknown sampling"),
        (("--steady", "--concurrency", "1", "--slo", "tpot=1s"), "has means only"),
        (("--steady", "--qps", "1"), "neither arrivals nor a time line"),
        (("--steady", "--num-requests", "9"), "--num-requests has no effect: the steady state has means"),
        (("--spacing", "uniform", "--concurrency", "1"), "only requests at a rate have gaps. Add --qps."),
        (("--spread-start", "--qps", "1"), "--spread-start has no effect"),
        (("--kv-link", "50 GB/s"), "computed by the same GPUs. Add --prefill-replicas 1"),
        (("--routing", "least-loaded"), "there is one deployment"),
        (("--routing", "least-loaded", "--replicas", "2", "--concurrency", "4"), "users stay with their replica"),
        (("--routing", "least-loaded", "--dp", "2", "--concurrency", "4"), "users stay with their replica"),
        (("--kv-tokens", "4096", "--memory-utilization", "0.9"), "--kv-tokens says what the cache holds"),
        (("--requests", "a.csv"), "--isl and --osl have no effect: the lengths stand in --requests"),
        (("--policy", "no-evict", "--preemption", "swap"), "preempts nothing"),
        (("--on", "h1000"), "unknown hardware 'h1000'"),
        (("--weights", "fp8/fp7"), "unknown weight format 'fp7'. Did you mean 'fp8'"),
        (("--weights", "int4/fp8/"), "--weights: 'int4/fp8/' has an empty item. Write int4/fp8, or"),
        (("--kv", "/fp8"), "--kv: '/fp8' has an empty item. Write fp8, or"),
        (("--tp", "1//2"), "--tp: '1//2' has an empty item. Write 1/2, or"),
        (("--percentiles", "50,,99"), "--percentiles: '50,,99' has an empty item. Write 50,99, or"),
        (("--on", "h100,"), "--on: 'h100,' has an empty item. Write h100, or"),
        (("--kv", "fp8/fp4"), "unknown format of keys and values 'fp4'"),
        (("--policy", "static", "--watermark", "0.1"), "admits whole batches"),
        (("--engine", "sglang", "--watermark", "0.1"), "has no watermark. Use --conservativeness"),
        (("--engine", "vllm", "--conservativeness", "1"), "does not estimate answers. Add --policy new-token-ratio"),
    ],
)
def test_wrong_input_has_one_message(perfmodel, options, message):
    ran = perfmodel(*SMALL, *options)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
    assert ran.err.count("perfmodel:") == 1


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would(perfmodel):
    ran = perfmodel("serve", "llama-3.1-70b", "--on", "h100")
    assert ran.code == 2
    assert "does not fit" in ran.err
    assert "more than" in ran.err
    assert "tp x pp" in ran.err
    several = perfmodel("serve", "llama-3.1-70b", "--on", "h100", "--tp", "1/4", "--concurrency", "2")
    assert several.code == 0
    assert "left out: h100 tp1" in several.err


def test_an_interrupted_run_prints_what_was_simulated(perfmodel, monkeypatch):
    from perfmodel.serving.load import TabledClock

    calls = 0
    decode_s = TabledClock.decode_s

    def interrupted(self, sequences, context):
        nonlocal calls
        calls += 1
        if calls > 300:
            raise KeyboardInterrupt
        return decode_s(self, sequences, context)

    monkeypatch.setattr(TabledClock, "decode_s", interrupted)
    ran = perfmodel(*SMALL, "--qps", "5/10", "--format", "json")
    assert ran.code == 130
    assert len(ran.json["rows"]) == 1
    assert any("interrupted" in note for note in ran.json["notes"])


@pytest.mark.parametrize("model", ["bert-large", "t5-small"])
def test_encoders_are_not_served(perfmodel, model):
    ran = perfmodel("serve", model, "--on", "h100", "--steady")
    assert ran.code == 2
    assert f"{model} has an encoder" in ran.err


@pytest.mark.parametrize(("count", "said"), [("3", True), ("8", False)])
def test_users_who_send_nothing_are_said_to(perfmodel, count, said):
    ran = perfmodel("serve", MODEL, "--on", "h100", "--isl", "32", "--osl", "4", "--concurrency", "1/8",
                    "--num-requests", count, "--format", "json")  # fmt: skip
    note = f"8 users send {count} requests in all, as --num-requests says: some of them none."
    assert (note in ran.json["notes"]) == said
