"""`perfmodel search serve`: ranked deployments, what limits each, objectives, prices, and wrong input."""

from __future__ import annotations

import pytest

MODEL = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"
SMALL = ("search", "serve", MODEL, "--on", "h100", "--isl", "128", "--osl", "32", "--batch", "1..16")


def test_deployments_are_ranked_by_tokens_a_second_and_gpu(perfmodel):
    ran = perfmodel(*SMALL, "--tp", "1/2", "--weights", "bf16/fp8", "--kv", "bf16", "--format", "json")
    assert ran.code == 0
    rows = ran.json["rows"]
    assert len(rows) == 4
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    rates = [row["tokens_per_s_per_gpu"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    assert all({"plan", "limiter", "stops_at", "ttft_s", "tpot_s", "kv_bytes"} <= set(row) for row in rows)
    assert {row["plan"]["tp"] for row in rows} == {1, 2}


def test_what_is_named_twice_is_ranked_once(perfmodel):
    options = ("--weights", "bf16/bf16", "--kv", "bf16", "--format", "json")
    rows = perfmodel(*SMALL, "--on", "h100-sxm5-80gb", "--tp", "1/2/1", "--pp", "1/1", *options).json["rows"]
    assert sorted(row["plan"]["tp"] for row in rows) == [1, 2]


def test_top_shortens_what_programs_read_too_and_says_how_many_there_are(perfmodel):
    words = (*SMALL, "--tp", "1/2", "--weights", "bf16/fp8", "--kv", "bf16", "--top", "1")
    assert [row["rank"] for row in perfmodel(*words, "--format", "json").json["rows"]] == [1]
    assert "3 more deployments: --top 4 lists them." in perfmodel(*words).out


def test_a_quantised_checkpoint_is_tried_as_it_is_stored(perfmodel):
    options = ("--on", "h100", "--isl", "128", "--osl", "32", "--batch", "4", "--tp", "1", "--kv", "bf16", "-f", "json")
    tried = {}
    for name, model in (("stored", "gpt-oss-20b"), ("plain", MODEL)):
        document = perfmodel("search", "serve", model, *options).json
        tried[name] = {row["plan"]["weights"] for row in document["rows"]}
        assert any("Weights in mxfp4, as the catalog has it" in text for text in document["notes"]) == (
            name == "stored"
        )
    assert tried == {"stored": {"mxfp4"}, "plain": {"bf16", "fp8"}}


def test_a_ranking_says_which_machines_are_less_sure(perfmodel):
    """Runs on machines of a vendor of whom none was fitted took longer over their predictions than others."""
    said = "A lead of the latter below"
    options = ("--isl", "128", "--osl", "32", "--batch", "4", "--tp", "1", "--weights", "bf16", "--format", "json")
    both, alone, alike = (
        [note for note in perfmodel("search", "serve", MODEL, "--on", on, *options).json["notes"] if said in note]
        for on in ("h100,mi300x", "mi300x", "h100,h200")
    )
    (note,) = both
    assert note.index("h100") < note.index("mi300x")
    assert (alone, alike) == ([], [])


def test_prices_and_a_load_change_the_ranking_and_say_how_many_gpus(perfmodel):
    ran = perfmodel(
        *("search", "serve", MODEL, "--on", "h100,l40s", "--isl", "128", "--osl", "32", "--batch", "8", "--tp", "1"),
        *("--weights", "bf16", "--kv", "bf16", "--price-per-gpu-hour", "h100=1000,l40s=1", "--for-qps", "5000"),
        *("--format", "json"),
    )
    rows = ran.json["rows"]
    assert [row["plan"]["hardware"] for row in rows] == ["l40s", "h100-sxm5-80gb"]
    assert rows[0]["cost_per_million_tokens"] < rows[1]["cost_per_million_tokens"]
    for row in rows:
        assert (row["gpus_for_load"] - 1) * row["requests_per_s"] < 5000 <= row["gpus_for_load"] * row["requests_per_s"]


@pytest.mark.waiting
def test_a_machine_without_a_price_is_named(perfmodel):
    search = (
        "search",
        "serve",
        MODEL,
        "--on",
        "h100,l40s",
        "--batch",
        "8",
        "--tp",
        "1",
        "--weights",
        "bf16",
        "-f",
        "json",
    )
    priced = perfmodel(*search, "--price-per-gpu-hour", "h100=2").json
    assert [row["hardware"] for row in priced["rows"]][-1] == "l40s"
    said = "No price of l40s: deployments there have no cost{}. Add l40s=PRICE to --price-per-gpu-hour."
    assert said.format(" and rank last") in priced["notes"]
    by_rate = perfmodel(*search, "--price-per-gpu-hour", "h100=2", "--rank", "throughput").json
    assert said.format("") in by_rate["notes"]
    for complete in (("--price-per-gpu-hour", "2"), ("--price-per-gpu-hour", "h100=2,l40s=1"), ()):
        assert not any("No price" in note for note in perfmodel(*search, *complete).json["notes"])


def test_objectives_choose_the_load_of_each_deployment(perfmodel):
    options = ("--tp", "1", "--weights", "bf16", "--kv", "bf16", "--format", "json")
    good = perfmodel(*SMALL, *options, "--slo", "ttft=1s,tpot=1s")
    assert good.code == 0
    assert good.json["rows"][0]["concurrency"] == 16
    assert good.json["rows"][0]["stops_at"] == "--batch"
    bad = perfmodel(*SMALL, *options, "--slo", "tpot=1us")
    assert bad.code == 1
    assert bad.json["rows"] == []
    told = " ".join(perfmodel(*SMALL, *options[:-2], "--slo", "tpot=1us").out.split())
    assert "No deployment meets p95 tpot <= 1 us; the lowest means of one user are TTFT " in told
    alone = perfmodel(*SMALL[:-2], "--batch", "1", "--length-spread", "0.2", *options).json["rows"][0]
    lowest = float(told.partition("TPOT ")[2].split()[0]) * 1e-6
    assert lowest == pytest.approx(alone["tpot_s"]["mean"], rel=0.01)


@pytest.mark.parametrize(("slo", "noted"), [("tpot=1ns,ttft=10s,mean", True), ("tpot=1ns,ttft=1ns,mean", False)])
def test_an_objective_of_a_time_that_no_answer_has_is_said_of_deployments_that_meet_it(perfmodel, slo, noted):
    ran = perfmodel(*SMALL, "--osl", "1", "--kv", "bf16", "--weights", "bf16", "--slo", slo, "--format", "json")
    assert ran.code == (0 if noted else 1)
    assert any("no tpot: such an objective is met" in note for note in ran.json["notes"]) == noted


def test_the_spread_that_nobody_asked_for_leaves_a_prefix_whole(perfmodel):
    """Agents and RAG: nearly all of the prompt is a prefix; within 20 % of its length some would be shorter than it."""
    options = ("--tp", "1", "--weights", "bf16", "--kv", "bf16", "--slo", "ttft=1s,tpot=1s", "--prefix", "1000")
    found = perfmodel(*SMALL[:5], "--isl", "1024", "--osl", "32", "--batch", "4", *options, "--format", "json")
    assert found.code == 0
    assert found.json["rows"][0]["concurrency"] == 4
    assert any("lengths behind the prefix" in note for note in found.json["notes"])


def test_experts_are_shared_by_default_where_a_model_has_some(perfmodel):
    options = ("--on", "h100", "--batch", "8", "--tp", "1/2", "--kv", "bf16", "--weights", "bf16", "-f", "json")
    shape = f"{MODEL} experts=8 top_k=2 expert_ffn=1024"
    shared, fixed, dense = (
        perfmodel("search", "serve", model, *options, *more).json
        for model, more in ((shape, ()), (shape, ("--dp", "1")), (MODEL, ()))
    )
    plans = {(row["plan"]["tp"], row["plan"]["ep"], row["plan"]["dp"]) for row in shared["rows"]}
    alone = {(1, 1, 1), (2, 1, 1)}
    assert plans == alone | {(1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 2, 1), (2, 4, 2), (2, 8, 4)}
    assert any("ep = tp x dp" in note for note in shared["notes"])
    fewer = perfmodel("search", "serve", shape, *options, "--gpus", "4").json
    assert {tuple(row["plan"][size] for size in ("tp", "ep", "dp")) for row in fewer["rows"]} == {
        plan for plan in plans if plan[0] * plan[2] <= 4
    }
    wide = perfmodel("search", "serve", shape.replace("experts=8", "experts=32"), *options, "--gpus", "16").json
    assert {(1, 16, 16), (2, 16, 8)} <= {
        tuple(row["plan"][size] for size in ("tp", "ep", "dp")) for row in wide["rows"]
    }
    for document in (fixed, dense):
        assert {(row["plan"]["tp"], row["plan"]["ep"], row["plan"]["dp"]) for row in document["rows"]} == alone
        assert not any("ep = tp x dp" in note for note in document["notes"])


#: 16 layers of 1.56e9 parameters are 50 GB in bf16: four L4 (24 GB) hold them, in fp8 two, and one in neither
LARGE = "layers=16 hidden=8192 heads=64 kv_heads=8 ffn=57344 vocab=32000 positions=4096"


def _plans(document):
    return {(row["plan"]["tp"], row["plan"]["pp"]) for row in document["rows"]}


def test_stages_are_tried_where_gpus_exceed_a_node(perfmodel):
    options = ("--on", "h100", "--isl", "128", "--osl", "32", "--batch", "8", "--weights", "bf16", "--kv", "bf16")
    search = ("search", "serve", MODEL, *options, "--format", "json")
    wide, node, fixed = (
        perfmodel(*search, *more).json for more in (("--gpus", "16"), ("--gpus", "8"), ("--gpus", "16", "--pp", "1"))
    )
    sizes = (1, 2, 4, 8)
    alone = {(tp, 1) for tp in sizes}
    # the model has eight layers: no pipeline is longer
    assert _plans(wide) == {(tp, pp) for tp in sizes for pp in sizes if tp * pp <= 16}
    assert (_plans(node), _plans(fixed)) == (alone, alone)
    said = "--gpus 16 is more than a node of h100 has, 8"
    assert [any(said in note for note in document["notes"]) for document in (wide, node, fixed)] == [True, False, False]


def test_stages_are_tried_where_one_does_not_hold_the_weights(perfmodel):
    search = ("search", "serve", LARGE, "--on", "l4", "--batch", "1", "--kv", "bf16", "--tp", "1/2", "-f", "json")
    both = perfmodel(*search).json
    held = {(row["plan"]["weights"], row["plan"]["tp"] * row["plan"]["pp"]) for row in both["rows"]}
    assert {gpus for weights, gpus in held if weights == "bf16"} == {4}
    assert ("fp8", 2) in held
    assert any("No plan of one stage on l4 holds bf16: pipelines of up to 4 GPUs" in note for note in both["notes"])
    fixed = perfmodel(*search, "--pp", "2").json
    assert {row["plan"]["pp"] for row in fixed["rows"]} == {2}
    few = perfmodel(*search, "--gpus", "2").json
    assert {row["plan"]["weights"] for row in few["rows"]} == {"fp8"}
    assert not any("No plan of one stage" in note for note in few["notes"]), "no pipeline of two GPUs holds bf16"


def test_plans_that_do_not_fit_are_one_reason_with_the_nearest(perfmodel):
    search = ("search", "serve", LARGE, "--on", "l4", "--batch", "1", "--kv", "bf16", "--weights", "bf16")
    notes = perfmodel(*search, "--tp", "1/2/4", "--pp", "1", "--format", "json").json["notes"]
    (note,) = (note for note in notes if note.startswith("Impossible"))
    assert note.startswith("Impossible (2; l4 tp2 pp1 ep1 dp1 bf16): the model does not fit: ")


def test_a_model_without_keys_is_tried_in_no_format_of_them(perfmodel):
    search = ("search", "serve", "mamba-130m", "--on", "h100", "--batch", "4", "--tp", "1", "--weights", "bf16")
    document = perfmodel(*search, "--format", "json").json
    assert [row["plan"]["tp"] for row in document["rows"]] == [1]
    assert not any("Impossible" in note for note in document["notes"])
    assert perfmodel(*search, "--kv", "fp8").code == 2


def test_of_plans_that_do_not_fit_the_error_names_the_nearest(perfmodel):
    search = ("search", "serve", LARGE, "--on", "l4", "--batch", "1", "--kv", "bf16", "--weights", "bf16")
    ran = perfmodel(*search, "--tp", "1/2", "--pp", "1")
    assert ran.code == 2
    said = " ".join(ran.err.split())
    assert "none of the 2 deployments is possible; l4 tp2 pp1 ep1 dp1 bf16: the model does not fit" in said


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        (f"{MODEL} experts=8 top_k=2 expert_ffn=1024", {1}),  # copies that share experts take the GPUs of two nodes
        ("whisper-tiny", {1}),  # engines have no pipeline of an encoder
    ],
)
def test_models_that_have_no_use_for_stages_get_none(perfmodel, model, stages):
    search = ("search", "serve", model, "--on", "h100", "--isl", "8", "--osl", "32", "--batch", "8", "--gpus", "16")
    rows = perfmodel(*search, "--weights", "bf16", "--kv", "bf16", "--format", "json").json["rows"]
    assert {row["plan"]["pp"] for row in rows} == stages


def test_the_recommendation_says_all_that_sets_a_deployment_up(perfmodel):
    """Also where one plan alone is left, which the table does not name."""
    search = ("search", "serve", MODEL, "--on", "h100", "--isl", "128", "--osl", "32", "--batch", "512")
    ran = perfmodel(*search, "--tp", "1", "--weights", "fp8", "--kv", "fp8")
    (said,) = (line for line in ran.out.splitlines() if "users at once" in line)
    assert said.startswith("h100-sxm5-80gb tp1 fp8 kv fp8 serves 512 users at once: ")
    rate = said.split(": ")[1].split()[0]
    assert float(rate) > 10_000
    assert rate.isdigit(), "as in the table, without an exponent"


def test_serve_meets_the_objectives_with_the_users_that_a_search_found(perfmodel):
    """The note of the search has the options of `serve` for the same load."""
    options = ("--tp", "1", "--weights", "bf16", "--kv", "bf16", "--slo", "ttft=60ms,tpot=20ms", "--format", "json")
    model = ("llama-3.1-8b", "--on", "h100", "--isl", "1024", "--osl", "64")
    found = perfmodel("search", "serve", *model, "--batch", "1..256", *options).json
    (row,) = found["rows"]
    (note,) = (note for note in found["notes"] if note.startswith("The load is that of"))
    said = note.partition("`serve ")[2].partition("`")[0].split()
    served = perfmodel("serve", *model, *options, *said, "--concurrency", f"{row['concurrency']:.0f}").json
    (point,) = served["rows"]
    assert point["slo_met"]
    assert point["ttft_s"] == row["ttft_s"]
    steady = perfmodel("search", "serve", *model, "--batch", "1", *options[:6], "--format", "json").json
    assert not any("The load is that of" in note for note in steady["notes"])


@pytest.mark.waiting
@pytest.mark.parametrize("by", [(), ("--price-per-gpu-hour", "3"), ("--for-qps", "900")])
def test_the_first_rows_are_those_of_all_with_any_number_of_workers(perfmodel, by):
    options = (
        "--tp",
        "1/2",
        "--weights",
        "bf16/fp8",
        "--kv",
        "bf16/fp8",
        "--slo",
        "ttft=1s,tpot=1s",
        *by,
        "-f",
        "json",
    )
    every = perfmodel(*SMALL, *options).json
    first = perfmodel(*SMALL, *options, "--top", "2").json
    assert len(every["rows"]) == 8
    assert first["rows"] == every["rows"][:2]
    assert any("cannot be among these" in note for note in first["notes"])
    assert not any("cannot be among these" in note for note in every["notes"])
    assert perfmodel(*SMALL, *options, "--top", "2", "--workers", "2").json == first


def test_an_interruption_keeps_the_deployments_that_are_known(perfmodel, monkeypatch):
    """What an interrupted simulation says of the objectives is not taken for an answer."""
    from perfmodel.serving.load import TabledClock

    decode_s = TabledClock.decode_s
    calls, most = 0, 10**9

    def counted(self, sequences, context):
        nonlocal calls
        calls += 1
        if calls > most:
            raise KeyboardInterrupt
        return decode_s(self, sequences, context)

    monkeypatch.setattr(TabledClock, "decode_s", counted)
    command = (*SMALL, "--tp", "1/2", "--weights", "bf16", "--kv", "bf16", "--slo", "ttft=1s,tpot=1s", "-f", "json")
    whole = perfmodel(*command)
    calls, most = 0, 7 * calls // 12  # in the first simulation of three of the second deployment
    half = perfmodel(*command)
    assert (whole.code, half.code) == (0, 130)
    (known,) = half.json["rows"]
    assert {**known, "rank": 0} in [{**row, "rank": 0, "deployment": known["deployment"]} for row in whole.json["rows"]]
    assert any("Interrupted: 1 of 2 deployments" in note for note in half.json["notes"])
    calls, most = 0, 10**9
    first = perfmodel(*command, "--top", "1")
    calls, most = 0, calls - 10  # as the interval of the best one is simulated
    known = perfmodel(*command, "--top", "1")
    assert (first.code, known.code) == (0, 130)
    assert known.json["rows"][0]["plan"] == first.json["rows"][0]["plan"]
    assert known.json["rows"][0]["tpot_s"]["mean"] == first.json["rows"][0]["tpot_s"]["mean"]
    calls, most = 0, 10
    nothing = perfmodel(*command)
    assert (nothing.code, nothing.out) == (130, "")


def test_states_and_the_share_of_the_memory_are_those_that_are_asked_for(perfmodel):
    def served(model, *options):
        fixed = ("--on", "h100", "--tp", 1, "--weights", "fp8", "--kv", "fp8", "--batch", 64, "--format", "json")
        return perfmodel("search", "serve", model, *fixed, *options).json["rows"][0]

    narrow, wide = (served("qwen3.5-9b", "--states", states) for states in ("bf16", "fp32"))
    assert (narrow["states"], wide["states"]) == ("bf16", "fp32")
    assert narrow["output_tokens_per_s"] > wide["output_tokens_per_s"]  # a step reads half of the bytes
    # 45 % of 80 GB, less 8 GB of weights, is less than half of 90 % of it without them
    assert 2 * served("qwen3-8b", "--memory-utilization", "45%")["kv_tokens"] < served("qwen3-8b")["kv_tokens"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--states", "bf16"), "keeps no states"),
        (("--rank", "costs"), "Did you mean 'cost'"),
        (("--rank", "cost"), "needs --price-per-gpu-hour"),
        (("--rank", "gpus"), "needs --for-qps"),
        (("--price-per-gpu-hour", "h100=cheap"), "'h100=cheap' is no price"),
        (("--price-per-gpu-hour", "h100=2,"), "'h100=2,' has an empty item. Write h100=2, or"),
        (("--price-per-gpu-hour", "h1000=2"), "h1000"),
        (("--tp", "8", "--gpus", "4"), "needs more than 4 GPUs"),
        (("--price-per-gpu-hour", "l40s=2"), "l40s has a price and is not searched"),
        (("--length-spread", "30", "--slo", "tpot=1s"), "'30' has no per cent sign and is 1 or more. Write 30%"),
        (("--policy", "no-evict"), "--policy has no effect: without objectives the steady state is used"),
        (("--tp", "3"), "does not divide"),
        (("--tp", "1..64+0.001"), "tp"),
        (("--isl", "0"), "--isl: '0' is below 1."),
        (("--prefix", "-1"), "--prefix: '-1' is below 0."),
        (("--prefix", "500"), "perfmodel: prefix: a cached prefix of 500 tokens is not shorter than the prompt of 128"),
        (("--nic", "0"), "perfmodel: nic: '0' is not a rate"),
        (("--tp", "3/5"), "none of the 8 deployments is possible. (4) tp=3 does not divide"),
    ],
)
def test_wrong_input_has_one_message(perfmodel, options, message):
    ran = perfmodel(*SMALL, *options)
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
