"""`perfmodel train` and `perfmodel search train`: output, plots, what-ifs, money and messages."""

from __future__ import annotations

import csv
import json

import pytest

import perfmodel as pm
from perfmodel.render.plots.training import COLORS, training_plot
from perfmodel.training.meanings import MEANINGS
from perfmodel.training.micro_batch import PARTS
from perfmodel.training.study import Study
from perfmodel.training.unmeasured import EXCHANGES

LLAMA = ("train", "llama-3.1-8b", "--on", "h100", "--gpus", 8)
#: keys of the contract
KEYS = {
    "time_s", "time_low_s", "time_high_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu", "terms_s",
    "memory_bytes", "fits",
}  # fmt: skip


def test_a_step_has_the_keys_of_the_contract(perfmodel):
    ran = perfmodel(*LLAMA, "--format", "json")
    assert ran.code == 0
    assert ran.json["context"]["hardware"] == ["h100-sxm5-80gb"]
    (row,) = ran.json["rows"]
    assert set(row) >= KEYS
    assert sum(row["terms_s"].values()) == pytest.approx(row["time_s"])
    assert row["time_low_s"] < row["time_s"] < row["time_high_s"]
    assert row["tokens_per_s"] == pytest.approx(row["batch"] * row["seq"] / row["time_s"])
    assert row["mfu"] <= row["mfu_full_attention"] <= 1
    assert row["mfu"] == row["hfu"]  # nothing is computed anew
    assert sum(row["memory_bytes"].values()) == pytest.approx(row["memory_total_bytes"])
    assert {table for table in ran.json if table == "memory"}


def test_ranges_give_one_row_for_each_combination(perfmodel, tmp_path):
    path = tmp_path / "steps.csv"
    ran = perfmodel(*LLAMA, "--tp", "1/2/4", "--micro-batch", "1..2", "--batch", 64, "-o", path)
    assert ran.code == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["tp"], row["micro_batch"]) for row in rows] == [(t, b) for t in "124" for b in "12"]


def test_combinations_that_cannot_run_are_counted(perfmodel):
    ran = perfmodel(*LLAMA, "--tp", "1/2/3", "--format", "json")
    assert len(ran.json["rows"]) == 2
    assert any("1 combination cannot run" in note for note in ran.json["notes"])


def test_unequal_stages_and_experts(perfmodel):
    (row,) = perfmodel(*LLAMA, "--pp", 2, "--batch", 64, "--stages", "18,14", "--format", "json").json["rows"]
    assert row["plan"] == "pp2 dp4 stages18-14 zero1 mbs1"
    words = ("train", "mixtral-8x7b", "--on", "h100", "--gpus", 64, "--ep", 8, "--batch", 64, "--format", "json")
    rows = [perfmodel(*words, "--expert-imbalance", busy).json["rows"][0] for busy in (1, 1.5)]
    assert rows[0]["time_s"] < rows[1]["time_s"]


@pytest.mark.parametrize("framework", ["ddp-eager", "ddp-compile", "huggingface"])
def test_ddp_keeps_weights_gradients_and_both_moments_on_each_gpu(perfmodel, framework):
    """4 + 4 + 8 B a parameter, however many GPUs there are."""
    words = ("train", "gpt2", "--on", "h100", "--framework", framework, "--format", "json", "--gpus")
    for gpus in (1, 8):
        (row,) = perfmodel(*words, gpus).json["rows"]
        assert row["zero"] == 0
        assert row["memory_bytes"]["optimizer"] == pytest.approx(8 * row["parameters"])
        assert row["memory_low_bytes"] > 16 * row["parameters"]


def test_the_parts_of_memory_sum_to_its_total_where_pools_have_to_give_way(perfmodel):
    """What lives fits on the GPU, with its pools it does not: they have what is left."""
    words = ("train", "llama-3.1-8b", "--on", "h100", "--gpus", 8, "--framework", "fsdp2-compile", "--batch", 8)
    ran = perfmodel(*words, "--zero", 2, "--format", "json")
    (row,) = ran.json["rows"]
    assert row["fits"]
    assert row["memory_low_bytes"] < row["memory_total_bytes"] < row["memory_capacity_bytes"] < row["memory_high_bytes"]
    assert sum(row["memory_bytes"].values()) == pytest.approx(row["memory_total_bytes"])
    *_, total = ran.json["memory"]["rows"] if "rows" in ran.json["memory"] else ran.json["memory"]
    assert total["first"] == pytest.approx(row["memory_total_bytes"])
    assert "Pools have what is left" in perfmodel(*words, "--zero", 2).out
    assert "Pools have what is left" not in perfmodel(*words, "--zero", 3).out


@pytest.mark.parametrize(
    ("words", "copied"),
    [(("--framework", "ddp-eager", "--zero", 0), 2.0), (("--dtype", "fp8", "--zero", 0), 1.0), (("--zero", 1), 0.0)],
)
def test_copies_of_whole_weights_are_no_gathered_shards(perfmodel, words, copied):
    """Autocast keeps each weight in 16 bits beside it, Transformer Engine those of the layers in 8 bits twice."""
    ran = perfmodel("train", "gpt2", "--on", "h100", "--gpus", 8, *words, "--format", "json")
    parts = ran.json["rows"][0]["memory_bytes"]
    assert parts["gathered"] == 0
    assert (parts["copies"] > 0) == (copied > 0)
    assert parts["copies"] >= 0.6 * copied * ran.json["rows"][0]["parameters"]


@pytest.mark.parametrize(
    ("tokens", "said", "unit", "seconds"),
    [("1B", "1 B", "hours", 3600.0), ("15T", "15 T", "days", 86400.0), ("30M", "30 M", "minutes", 60.0)],
)
def test_the_time_of_a_run_is_in_a_unit_that_it_has_some_of(perfmodel, tokens, said, unit, seconds):
    ran = perfmodel(*LLAMA, "--tokens", tokens, "--format", "json")
    (note,) = (note for note in ran.json["notes"] if " tokens take " in note)
    time_s = ran.json["rows"][0]["run_time_s"]
    assert note == f"{said} tokens take {time_s / seconds:,.1f} {unit}."


def test_recomputation_costs_time_and_saves_memory(perfmodel):
    rows = perfmodel(*LLAMA, "--recompute", "none/full", "--format", "json").json["rows"]
    assert rows[0]["time_s"] < rows[1]["time_s"]
    assert rows[0]["memory_total_bytes"] > rows[1]["memory_total_bytes"]
    assert rows[1]["hfu"] > rows[1]["mfu"]


def test_what_lives_on_the_host_costs_time_and_saves_memory(perfmodel):
    words = ("--offload", "none/optimizer/activations,optimizer", "--offload-fraction", "50%", "--host-memory", "2TiB")
    rows = perfmodel(*LLAMA, *words, "--format", "json").json["rows"]
    assert [(row["offload"], row["offload_fraction"]) for row in rows] == [
        ("none", 1.0), ("optimizer", 0.5), ("optimizer,activations", 0.5),
    ]  # fmt: skip
    assert rows[0]["time_s"] < rows[1]["time_s"] < rows[2]["time_s"]
    assert rows[0]["memory_total_bytes"] > rows[1]["memory_total_bytes"] > rows[2]["memory_total_bytes"]
    assert 0 == rows[0]["host_memory_bytes"] < rows[1]["host_memory_bytes"] < rows[2]["host_memory_bytes"]
    assert "cpu_optimizer" in rows[1]["terms_s"]
    told = perfmodel(*LLAMA, "--offload", "optimizer", "--host-bandwidth", "300GB/s")
    assert "at 37.5 GB/s (as stated; 8 GPUs share the host)" in " ".join(told.out.split())


def test_documents_take_less_attention(perfmodel):
    whole, short = (
        perfmodel(*LLAMA, *words, "--format", "json").json["rows"][0]
        for words in ((), ("--documents", "500,1500", "--length-spread", "20%"))
    )
    assert (short["documents"], short["length_spread"], whole["documents"]) == ([500, 1500], 0.2, [])
    assert short["terms_s"]["attention"] < whole["terms_s"]["attention"]
    assert short["flop"] < whole["flop"]


def test_a_search_tries_the_host_where_it_is_told_to(perfmodel):
    words = (*LLAMA[1:], "--tp", 1, "--pp", 1, "--cp", 1, "--zero", 1, "--micro-batch", 1, "--format", "json")
    found = [perfmodel("search", "train", *words, *more).json["rows"] for more in ((), ("--offload", "none/optimizer"))]
    assert [{row["offload"] for row in rows} for rows in found] == [{"none"}, {"none", "optimizer"}]


def test_what_does_not_fit_comes_with_changes_that_make_it_fit(perfmodel):
    ran = perfmodel(*LLAMA, "--micro-batch", 8, "--format", "json")
    assert ran.json["rows"][0]["fits"] is False
    assert "--tp 8" in [row["change"] for row in ran.json["changes"]]


def test_money_and_the_run(perfmodel):
    ran = perfmodel(*LLAMA, "--price-per-gpu-hour", 2, "--tokens", "1T", "--format", "json")
    (row,) = ran.json["rows"]
    assert row["cost_per_step"] == pytest.approx(2 * 8 * row["time_s"] / 3600)
    assert row["run_time_s"] == pytest.approx(1e12 / row["tokens_per_s"])
    assert row["run_cost"] == pytest.approx(2 * 8 * row["run_time_s"] / 3600)
    (row,) = perfmodel(*LLAMA, "--price-per-gpu-hour", 2, "--format", "json").json["rows"]
    assert row["run_tokens"] == 20 * row["parameters"]


def test_the_cost_of_a_short_step_has_significant_digits(perfmodel):
    words = ("train", "gpt2", "--on", "h100", "--gpus", 8, "--price-per-gpu-hour", 2)
    cost = perfmodel(*words, "--format", "json").json["rows"][0]["cost_per_step"]
    assert 0 < cost < 0.005
    assert f"A step costs {cost:.4g}." in " ".join(perfmodel(*words).out.split())


def test_failures_and_checkpoints_lengthen_the_run(perfmodel):
    plain, failing = (
        perfmodel(*LLAMA, "--tokens", "1T", *more, "--format", "json").json
        for more in ((), ("--checkpoint-rate", "10GB/s", "--gpu-mtbf-hours", 100))
    )
    share = failing["run"][0]["fraction"]
    assert 0 < share < 1
    assert failing["rows"][0]["run_time_s"] == pytest.approx(plain["rows"][0]["run_time_s"] / share)


def test_checkpoints_of_adapters_are_small(perfmodel):
    whole, adapters = (
        perfmodel(*LLAMA, *more, "--checkpoint-rate", "10GB/s", "--format", "json").json["run"][0]["checkpoint_bytes"]
        for more in ((), ("--lora", 16))
    )
    assert 0 < adapters < 0.01 * whole


def test_what_ifs_are_terms(perfmodel):
    options = ("--batch", 64, "--jitter", "2%", "--loaders", 1, "--load-rate", 1, "--compress", "fp8", "--zero", 0)
    (row,) = perfmodel(*LLAMA, *options, "--format", "json").json["rows"]
    assert {"stragglers", "loading", "compression"} <= set(row["terms_s"])
    assert row["time_s"] == pytest.approx(64.0)  # one loader, one sequence a second


def test_unequal_gpus_share_the_batch_in_proportion(perfmodel):
    ran = perfmodel(*LLAMA, "--on", "a100-sxm4-80gb", "--batch", 128, "--seq", 2048, "--mixed", "--format", "json")
    shares = {row["gpu"].split()[-1]: row["samples"] for row in ran.json["mixed"]}
    assert sum(shares.values()) == 128
    assert shares["h100-sxm5-80gb"] > 1.5 * shares["a100-sxm4-80gb"]
    assert perfmodel(*LLAMA, "--mixed").code == 2


def test_a_machine_without_bf16_trains_in_fp16(perfmodel):
    words = ("train", "gpt2-xl", "--on", "v100-sxm2-32gb", "--gpus", 8, "--seq", 1024, "--dtype", "fp16")
    for framework in ("megatron", "fsdp2-compile", "huggingface", "deepspeed"):
        assert perfmodel(*words, "--framework", framework).code == 0


def test_the_terms_are_listed_on_request(perfmodel):
    alone = perfmodel(*LLAMA, "--explain").out
    assert "Terms of the step" in alone
    assert "matrix products of layers, forward and backward" in alone
    assert "Terms of the step" not in perfmodel(*LLAMA).out
    both = perfmodel(*LLAMA, "--tp", "1/2", "--explain").out
    terms = both.partition("Terms of each step")[2].splitlines()
    assert {line.split()[0] for line in terms[2:] if line} == {"dp8", "tp2"}


def test_every_term_has_a_meaning_and_a_colour():
    assert set(COLORS) == set(MEANINGS) >= {*PARTS, *EXCHANGES}


def test_a_bar_names_its_cluster_and_its_whole_plan():
    clusters = [pm.Cluster(name, gpus=1024) for name in ("h100-sxm5-80gb", "h200-sxm-141gb")]
    plan = pm.TrainingPlan(tp=8, pp=8, batch=1536, seq=2048)
    figure = training_plot(Study(tuple(pm.train("gpt3-175b", cluster, plan) for cluster in clusters)))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "1024 x h100-sxm5-80gb\ntp8 pp8 dp16 zero1 mbs1"
    assert labels[1].startswith("1024 x h200-sxm-141gb\ntp8")


def _hatched(figure):
    return [patch.get_y() + patch.get_height() / 2 for patch in figure.axes[0].patches if patch.get_hatch()]


def test_bars_of_steps_that_do_not_fit_are_pale_and_hatched():
    cluster = pm.Cluster("h100", gpus=64)
    plans = [pm.TrainingPlan(tp=tp, pp=8, batch=128, seq=2048, zero=1) for tp in (1, 8)]
    large, small = (pm.train("llama-3.1-70b", cluster, plan) for plan in plans)
    assert (large.fits, small.fits) == (False, True)
    figure = training_plot(Study((small, large)))
    assert _hatched(figure) == pytest.approx([1.0])  # the second row
    opacities = {round(patch.get_y()): patch.get_alpha() for patch in figure.axes[0].patches if not patch.get_hatch()}
    assert opacities[1] < opacities[0] == 1.0
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert [label.endswith("does not fit") for label in labels] == [False, True]
    renderer = figure.canvas.get_renderer()
    for text in figure.axes[0].texts:
        assert text.get_window_extent(renderer).x1 <= figure.bbox.x1
    (legend,) = figure.legends
    assert "does not fit in memory" in [text.get_text() for text in legend.get_texts()]
    assert "80 % interval" in [text.get_text() for text in legend.get_texts()]
    alone = training_plot(Study((large,)))
    assert len(_hatched(alone)) == 1
    assert all(axes.get_xlabel().endswith("[s]") for axes in alone.axes)


def test_no_bar_is_hatched_where_all_fit():
    step = pm.train("gpt2", pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=64, seq=1024))
    figure = training_plot(Study((step, step)))
    assert _hatched(figure) == []
    assert "does not fit in memory" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_line_fits_80_columns(perfmodel):
    for more in ((), ("--explain",), ("--tp", "1/2", "--pp", "1/2")):
        assert max(map(len, perfmodel(*LLAMA, *more).out.splitlines())) <= 80


@pytest.mark.parametrize("more", [(), ("--pp", 4, "--batch", 64), ("--tp", "1..8")])
def test_plots(perfmodel, tmp_path, more):
    path = tmp_path / "step.png"
    ran = perfmodel(*LLAMA, *more, "--plot", path)
    assert ran.code == 0
    assert path.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--tp", 3), "does not divide 8 GPUs. Nearest: tp=4"),
        (("--batch", 3), "does not divide by dp = 8 ranks. Nearest: batch=8"),
        (("--pp", 8, "--vp", 4, "--batch", 4), "Nearest: batch=8"),
        (("--pp", 4, "--vp", 3), "do not divide 32 layers. Nearest: vp=4"),
        (("--dtype", "mxfp8"), "h100-sxm5-80gb has no products of operands with scales"),
        (("--seq", 0), "seq = 0"),
        (("--tp", 0), "--tp: tp = 0 is below 1"),
        (("--gpus", 0), "--gpus: 0 is not a number of GPUs from 1 to 10^7. Write 8, "),
        (("--gpus", "8/100000000"), "--gpus: 100000000 is not a number of GPUs from 1 to 10^7"),
        (("--gpus", "nan"), "--gpus: nan is not a whole number"),
        (("--batch", "1e400"), "--batch: inf is not a whole number"),
        (("--recompute", "none/"), "--recompute: 'none/' has an empty item. Write none, or"),
        (("--stages", "16,,16"), "--stages: '16,,16' has an empty item. Write 16,16, or"),
        (("--recompute", "half"), "unknown recompute 'half'"),
        (("--offload", "weights"), "--offload: unknown offload 'weights'"),
        (("--offload", "parameters"), "Use zero = 3"),
        (("--offload", ""), "--offload: '' names nothing that lives on the host. Write none, or optimizer"),
        (("--offload", "none,activations"), "--offload: offload = none,activations has none beside activations. Write"),
        (("--offload", "optimizer", "--host-bandwidth", "0"), "--host-bandwidth: 0 is no host's: it is in bytes, at"),
        (("--cpu-threads", "4"), "cpu_threads = 4 is of the optimizer, and offload = none"),
        (("--offload", "optimizer", "--cpu-overlap", "later"), "unknown cpu_overlap 'later'"),
        (("--dispatch-dtype", "fp8"), "dispatch_dtype fp8 is of tokens among expert parallel ranks, and ep = 1"),
        (("--offload-fraction", "50%"), "or leave offload_fraction out"),
        (("--host-memory", "1TiB"), "--host-memory: nothing lives on the host. Write --offload optimizer"),
        (("--offload", "optimizer", "--host-memory", "lots"), "--host-memory: 'lots' is not a number with a unit"),
        (("--documents", "5,x"), "--documents: '5,x' is no list of tokens"),
        (("--documents", 0), "documents = 0 is not a whole number of tokens"),
        (("--length-spread", "50%"), "of documents, and there are none"),
        (("--framework", "megatrn"), "Did you mean 'megatron'? Allowed: cs336, ddp-compile, "),
        (("--framework", "zzz"), ", huggingface, huggingface-liger, llmq, megatron, megatron-2021, "),
        (("--optimizer", "adamw"), "Did you mean 'adam'?"),
        (("--dtype", "int3"), "unknown dtype"),
        (("--ep", 2), "no experts"),
        (("--tokens", "many"), "'many' is not a number"),
        (("--price-per-gpu-hour", -1), "not above 0"),
        (("--loaders", 3), "belong together"),
        (("--checkpoint-async",), "--checkpoint-rate is missing"),
        (("--restart", "60s"), "--checkpoint-rate is missing"),
        (("--checkpoint-rate", "0"), "a rate of 0 is not above 0. Write 40GB/s."),
        (("--checkpoint-rate", "1GB/s", "--restart", "10m"), "'10m' is not in s. Write it as in '2.4 us' or '10 min'"),
        (("--checkpoint-rate", "1GB/s", "--restart=-1"), "--restart: -1 is below 0"),
        (("--checkpoint-rate", "1GB/s", "--gpu-mtbf-hours", 0), "--gpu-mtbf-hours: 0 hours are not above 0"),
        (("--etp", 2), "etp = 2, and the model has no experts"),
        (("--compress", "zip"), "unknown compression"),
        (("--plot", "step.doc"), "not supported"),
        (("--tp", "a..b"), "not a whole number"),
        (("--tp", "1.5"), "not a whole number"),
        (("--stages", "16,x"), "'16,x' is no list of layers"),
        (("--pp", 2, "--stages", "16,15", "--batch", 64), "stages sum to 31 layers, the model has 32"),
        (("--dispatcher", "deepep"), "dispatcher deepep is among expert parallel ranks, and ep = 1"),
        (("--ep", 2, "--dispatcher", "deep"), "unknown dispatcher 'deep'"),
        (("--expert-imbalance", 1.5), "expert_imbalance is among expert parallel ranks, and ep = 1"),
    ],
)
def test_bad_input_is_one_message(perfmodel, more, said):
    ran = perfmodel(*LLAMA, *more)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_shape_without_quotes_is_told_how_to_write_it(perfmodel):
    ran = perfmodel("train", "layers=32", "hidden=4096", "heads=32", "--on", "h100")
    assert ran.code == 2
    assert "'layers=32 hidden=4096 heads=32', in quotes" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("train", "lama-3.1-8b", "--on", "h100"), 2, "Did you mean 'llama-3.1-8b'?"),
        (("train", "gpt2", "--on", "h100", "--seq", 4096), 2, "beyond the model's 1024 positions"),
        (("train", "llama-3.1-8b"), 2, "no machine is named"),
        (("train", "t5-small", "--on", "h100", "--cp", "2"), 2, "does not split the sequences of both"),
        (("train", "gpt2", "--on", "h100", "--encoder-seq", "512"), 2, "the model has no encoder"),
        (("train", "missing.json", "--on", "h100"), 3, "no such file"),
        (("train", "layers=2 hidden=64", "--on", "h100"), 2, "no heads and no vocab"),
    ],
)
def test_models_and_machines_that_are_none(perfmodel, words, code, said):
    ran = perfmodel(*words)
    assert ran.code == code
    assert said in ran.err


SEARCH = ("search", "train", "llama-3.1-8b", "--on", "h100", "--gpus", 8, "--batch", 64, "--micro-batch", "1/2")


def test_a_search_ranks_what_fits(perfmodel, tmp_path):
    path = tmp_path / "best.png"
    ran = perfmodel(*SEARCH, "--seq", 4096, "--tp", "1..4", "--top", 5, "--plot", path, "--format", "json")
    assert ran.code == 0
    rows = ran.json["rows"]
    assert len(rows) == 5
    assert set(rows[0]) >= KEYS | {"plan", "rank"}
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows)
    assert rows[0]["rank"] == 1
    assert ran.json["command"] == "search train"
    assert all(row["fits"] for row in rows)
    assert ran.json["context"]["considered"] >= ran.json["context"]["fit"]
    assert path.stat().st_size > 20_000


def test_only_top_shortens_what_programs_read_and_pages_sort(perfmodel):
    words = (*SEARCH, "--seq", 4096, "--tp", "1..4", "--zero", 1)
    every = perfmodel(*words, "--format", "json").json
    assert len(every["rows"]) == every["context"]["fit"] - every["context"]["tight"] > 10
    assert len(perfmodel(*words, "--format", "csv").out.splitlines()) == 1 + len(every["rows"])
    page = perfmodel(*words, "--format", "html").out
    assert all(json.dumps(row["plan"]) in page for row in every["rows"])
    assert (
        sum(
            "zero1 mbs" in line and line.startswith("|")
            for line in perfmodel(*words, "--format", "markdown").out.splitlines()
        )
        == 10
    )
    assert perfmodel(*words, "--top", 2, "--format", "json").json["rows"] == every["rows"][:2]


def test_a_search_compares_machines(perfmodel):
    ran = perfmodel(*SEARCH, "--on", "a100-sxm4-80gb", "--seq", 4096, "--top", 1000, "--format", "json")
    assert {row["hardware"] for row in ran.json["rows"]} == {"h100-sxm5-80gb", "a100-sxm4-80gb"}


def test_a_range_of_what_ranks_share_out_counts_one_by_one(perfmodel):
    ran = perfmodel(*SEARCH, "--seq", 4096, "--zero", "0..3", "--top", 1000, "--format", "json")
    assert {row["zero"] for row in ran.json["rows"]} == {0, 1, 2, 3}
    assert "not a rising range" in perfmodel(*SEARCH, "--zero", "3..1").err


def test_a_search_of_nothing_is_one_message(perfmodel):
    assert "one length" in perfmodel(*SEARCH, "--seq", "1024/2048").err
    ran = perfmodel(*SEARCH, "--tp", 3)
    assert ran.code == 2
    assert "no combination can run" in ran.err


def test_a_file_that_is_no_model_says_so(perfmodel):
    ran = perfmodel("train", "examples/training_plan.toml", "--on", "h100")
    assert ran.code == 3
    assert "has no model_type: it is no config.json of a model" in ran.err


def test_rows_say_in_what_they_differ(perfmodel):
    two = perfmodel(
        "train", "gpt2", "--on", "h100", "--on", "a100-sxm4-80gb", "--gpus", "8", "--batch", "64/128", "--seq", "1024"
    )
    heading, columns, *rows = two.out.splitlines()[:9]
    assert heading.startswith("gpt2, bf16")
    assert {"cluster", "batch"} <= set(columns.split())
    assert "seq" not in columns.split()
    assert any("8 x a100-sxm4-80gb" in row and " 128 " in row for row in rows)


def test_unequal_gpus_have_no_what_ifs(perfmodel):
    ran = perfmodel("train", "gpt2", "--on", "h100", "--on", "a100-sxm4-80gb", "--mixed", "--jitter", "2%")
    assert ran.code == 2
    assert "Leave --jitter" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--schedule", "zero-bubble", "--vp", "2"), "Change --vp"),
        (("--schedule", "interleaved", "--vp", "1"), "several stages a GPU"),
        (("--hsdp", "--zero", "1"), "Use zero = 2 or more"),
        (("--cp-algorithm", "ulysses", "--cp", "1"), "Use cp = 2 or more"),
    ],
)
def test_a_search_refuses_options_that_nothing_uses(perfmodel, words, said):
    ran = perfmodel("search", "train", "gpt2", "--on", "h100", "--gpus", "8", "--batch", "8", *words)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize("command", [("train",), ("search", "train")])
@pytest.mark.parametrize(
    ("option", "word", "shown"),
    [("--recompute", "selectiv-op", "selective-op"), ("--schedule", "zero_bubbl", "zero-bubble")],
)
def test_messages_have_the_spellings_of_the_help(perfmodel, command, option, word, shown):
    ran = perfmodel(*command, "gpt2", "--on", "h100", "--gpus", 8, "--pp", 2, option, word)
    assert ran.code == 2
    assert f"{option}: unknown" in ran.err
    assert f"Did you mean '{shown}'?" in ran.err
    assert shown.replace("-", "_") not in ran.err
    assert shown in perfmodel(*command, "--help").out


def test_both_spellings_of_an_option_are_accepted(perfmodel):
    words = (*LLAMA, "--pp", 2, "--format", "json")
    one, other = (
        perfmodel(*words, "--schedule", f"zero{mark}bubble", "--recompute", f"selective{mark}op").json["rows"]
        for mark in "-_"
    )
    assert one == other
    assert (one[0]["schedule"], one[0]["recompute"]) == ("zero_bubble", "selective_op")


@pytest.mark.waiting
def test_a_search_keeps_its_schedule(perfmodel):
    words = (
        "search",
        "train",
        "gpt2",
        "--on",
        "h100",
        "--gpus",
        "8",
        "--batch",
        "32",
        "--pp",
        "2/4",
        "--format",
        "json",
    )
    for schedule, found in (("gpipe", "gpipe"), ("zero-bubble", "zero_bubble"), ("interleaved", "interleaved")):
        rows = json.loads(perfmodel(*words, "--schedule", schedule).out)["rows"]
        assert {row["schedule"] for row in rows} == {found}


def test_a_single_step_says_first_what_most_of_it_is(perfmodel):
    ran = perfmodel("train", "llama-3.1-8b", "--on", "h100", "--gpus", "8", "--format", "json")
    step = json.loads(ran.out)
    terms = perfmodel("train", "llama-3.1-8b", "--on", "h100", "--gpus", "8", "--explain", "--format", "json").out
    largest = max(json.loads(terms)["terms"], key=lambda term: term["share"])
    assert step["notes"][0].startswith(f"Most of the step: {largest['term']} {100 * largest['share']:.0f} %, ")


def test_the_interval_of_a_step_stays_in_a_narrow_table(perfmodel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = perfmodel("train", "llama-3.1-8b", "--on", "h100", "--gpus", "8/16").out
    assert "80 % interval" in table
    assert "memory" in table
    assert "MFU" not in table, "neither the column nor the sentence that explains it"
