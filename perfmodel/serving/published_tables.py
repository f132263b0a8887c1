"""Readers of the tidy tables of inference runs: each turns a row into a `Case`."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace

from perfmodel.accuracy.run_table import Run
from perfmodel.serving.laboratories import laboratories
from perfmodel.serving.published_case import (
    RATE,
    TPOT,
    TTFT,
    Case,
    Setup,
    SkipRun,
    engine_of,
    format_of,
    given,
    graphs,
    model_of,
    positive,
    triton,
    whole,
)
from perfmodel.serving.releases import release_of
from perfmodel.serving.speculation import Speculation

#: mean of lengths that are uniform between 0.8 and 1.0 of the nominal ones
_UNIFORM = 0.9
#: requests of a closed-loop benchmark for each user, where the table does not tell: the default of InferenceX
WAVES = 10.0
#: ... and in tables of other laboratories whose prompts and answers all have one length: 2 reads half of a run's
#: prompts together. Benchmarks of vLLM and SGLang start all users at once, and in the simulation these stay in step
#: for the whole run, as one catches up with another in the steps that read prompts. First tokens of 48 sources (193
#: figures, examples/published) are the least off with 1.5 to 2 among 1 to 10: some clients, AIPerf for one, do not
#: start so
WAVES_IN_STEP = 2.0
#: engines whose runs of DeepSeek-R1 predict several tokens at once, which the dumps do not tell: they take 1.2 to 2
#: times less than DeepSeek-V3, the same network, with the same version, machine and load
GUESSING = frozenset({("trtllm", "1.1.0rc2.post2"), ("trtllm", "1.2.0rc6.post3")})
#: three tokens of the model's own heads; the acceptance is that of these runs, on a grid of 0.5 to 0.7
MULTI_TOKEN = Speculation(3, 0.55)
#: SGLang in runs of InferenceX on Blackwell looks for new requests every 10 steps below 16 users, and every 30 from
#: there: their times to the first token double between 8 and 16 users, by half of 30 steps, and those on Hopper, and of
#: other engines, do not. Half of the runs chose 25 to 30 among 10 to 40, and 1 to 10 among 1 to 20
RECEIVING, FEW_USERS, RECEIVE_STEPS = ("b200", "b300", "gb200", "gb300"), 16, (10.0, 30.0)
#: the format of the weights in the name of a run whose column does not tell it ("..._sglang_bf16_agg_1024x1024_c4")
_NAMED = re.compile(r"_(bf16|fp16|fp8|fp4)_")
#: what llama-bench calls a test: reading a prompt or decoding, of so many tokens, behind so many
_TEST = re.compile(r"(pp|tg)(\d+)(?:\s*@\s*d(\d+))?(?:\s|$)")
#: GPUs of the largest engine that is not spread over servers
_LARGEST = 16


def _engine(run: Run, offline: bool = False) -> tuple[str, str]:
    """Return profile and release of a run's engine: the release stands behind the name, or in a column of its own."""
    engine, version = engine_of(run.text("engine", "TensorRT-LLM " + run.text("version")), offline)
    return engine, version or release_of(run.text("engine_version"), engine)


def offline(run: Run) -> Case:
    """Return a run of maximum throughput: all requests at once, of one length."""
    engine, version = _engine(run, offline=True)
    value, isl, osl = positive(run, "value", "isl", "osl")
    tp, pp, ep = (whole(run, name) for name in ("tp", "pp", "ep"))
    # TensorRT-LLM 1.0 is run with attention in copies where the experts are spread (assumed: the throughput is twice
    # what replicated keys and values allow)
    dp = tp if ep > 1 and ep == tp and version >= "1" else 1
    setup = Setup(
        run.text("model"), run.text("hardware"), tp // dp, pp, ep, dp, engine, version,
        format_of(run.text("wdtype")), format_of(run.text("kvdtype", run.text("wdtype"))),
    )  # fmt: skip
    per_gpu = "per gpu" in (run.text("unit") + run.text("meaning")).lower()
    measured = {RATE: value * (setup.gpus if per_gpu else 1)}
    return Case(run, setup, "steady", isl, osl, measured, requests=run.number("requests"))


def static(run: Run) -> Case:
    """Return a run of one batch at a time."""
    batch, isl, osl, value = positive(run, "batch", "isl", "osl", "value")
    version = run.text("version") or "0.5"
    dtype = format_of(run.text("dtype"))
    engine = engine_of(run.text("engine", "TensorRT-LLM"), offline=True)[0]
    setup = Setup(
        run.text("model"), run.text("hardware"), whole(run, "tp"), engine=engine, version=version,
        weights=dtype, kv=dtype if dtype == "fp8" else "bf16",
    )  # fmt: skip
    if run.text("kind") == "ttft":
        return Case(run, setup, "static", isl, osl, {TTFT: value / 1e3}, users=batch)
    gpus = setup.gpus if run.text("per") == "gpu" else 1
    return Case(run, setup, "static", isl, osl, {RATE: value * gpus}, users=batch)


def online(run: Run) -> Case:
    """Return a run with random arrivals."""
    isl, osl, requests = positive(run, "isl_mean", "osl_mean", "requests")
    engine, version = _engine(run)
    setup = Setup(
        run.text("model"), run.text("hardware"), whole(run, "tp"), engine=engine, version=version,
        weights=format_of(run.text("wdtype")), kv=format_of(run.text("kvdtype", run.text("wdtype"))),
    )  # fmt: skip
    measured = _milliseconds(run, "ttft_mean_ms", "itl_mean_ms")
    if run.number("output_tok_s") > 0:
        measured[RATE] = run.number("output_tok_s")
    if not measured:
        raise SkipRun("none of ttft_mean_ms, itl_mean_ms and output_tok_s is above 0")
    at_once = run.text("qps").lower() in ("inf", "infinite")
    qps = math.inf if at_once else positive(run, "qps")[0]
    talks = run.text("lengths").lower() == "sharegpt"
    return Case(run, setup, "open", isl, osl, measured, requests=requests, qps=qps, conversations=talks)


def _milliseconds(run: Run, ttft: str, tpot: str) -> dict[str, float]:
    """Return the times that two columns have [s], without those that are blank or not above 0."""
    columns = {TTFT: ttft, TPOT: tpot}
    return {name: run.number(column) / 1e3 for name, column in columns.items() if run.number(column) > 0}


def by_concurrency(run: Run) -> Case:
    """Return a run with a constant number of users."""
    trap, lengths = run.text("trap"), run.text("lengths")
    for word, reason in (("queued", "the server queued: its batch is not known"), ("prefix", "prompts were cached")):
        if word in trap:
            raise SkipRun(reason)
    isl, osl, users = positive(run, "isl", "osl", "concurrency")
    engine, version = _engine(run)
    random = lengths.startswith("uniform")
    setup = _shared(run, engine, version, random)
    if engine == "sglang" and random and setup.hardware.startswith(RECEIVING):
        setup = replace(setup, receive_steps=RECEIVE_STEPS[int(users >= FEW_USERS)])
    share = _UNIFORM if random else 1.0
    measured = _milliseconds(run, "measured_ttft_ms", "measured_tpot_ms")
    unknown = not _weights(run)
    # SGLang's rows without a dtype are of a benchmark with one request for each user: their time to the first token is
    # that of all prompts
    in_step = lengths == "fixed" and not run.text("source").startswith(laboratories().names)
    waves = 1.0 if engine == "sglang" and unknown and not random else WAVES_IN_STEP if in_step else WAVES
    labels = {"dtype_known": "no" if unknown else "yes", "lengths": "uniform" if random else "fixed"}
    return Case(run, setup, "steady", share * isl, share * osl, measured, users, users * waves, labels=labels)


def _weights(run: Run) -> str:
    """Return the format of a run's weights, from its column or its name; "" where neither tells."""
    told = run.text("wdtype")
    if told not in ("", "unknown"):
        return told
    named = _NAMED.search(run.text("id"))
    return named[1] if named else ""


def _shared(run: Run, engine: str, version: str, random: bool) -> Setup:
    """Return the deployment of a row with tp, attention_dp, moe_tp and ep."""
    model = run.text("model")
    tp, dp, ep, moe_tp = (whole(run, name) for name in ("tp", "attention_dp", "ep", "moe_tp"))
    config = model_of(model)
    if not config.experts:
        ep, dp = 1, 1
    elif random and moe_tp > 1 and ep > 1 and tp * dp == moe_tp * ep:
        # the dumps give tp and ep of an engine; their product was taken for its GPUs
        tp, dp = max(1, tp // ep), max(1, dp // ep)
    if tp * dp > _LARGEST:
        raise SkipRun(f"{tp * dp} GPUs: several engines, or one over several servers")
    weights = _weights(run) or ("fp8" if engine == "sglang" else "bf16")
    narrow = "fp8" if weights in ("fp8", "nvfp4") else "bf16"
    if "gpt-oss" in model.lower():
        weights, narrow = "mxfp4", "bf16"
    if config.kv_lora and weights == "fp8":  # DeepSeek's own checkpoint has scales for blocks of 128 x 128
        weights = "fp8_block"
    guessed = MULTI_TOKEN if (engine, version) in GUESSING and model.endswith("R1") else None
    return Setup(
        model, run.text("hardware"), tp, whole(run, "pp"), ep, dp, engine, version, format_of(weights), narrow,
        speculation=guessed,
    )  # fmt: skip


def batches(run: Run) -> Case:
    """Return a run of LMDeploy's benchmark: a batch of one length, prefill included unless its unit says otherwise."""
    batch, isl, osl, value = positive(run, "batch", "isl", "osl", "value")
    engine, version = _engine(run)
    setup = Setup(
        run.text("model"), run.text("hardware"), whole(run, "tp"), engine=engine, version=version,
        weights=format_of(run.text("wdtype")), kv=format_of(run.text("kvdtype", run.text("wdtype"))),
    )  # fmt: skip
    # A rate of decode alone is a time per token, in a table that may state it, too.
    measured = {TPOT: batch / value} if "decode only" in run.text("unit") else {RATE: value}
    for name, column in ((TTFT, "ftl_mean_s"), (TPOT, "tpot_p50_s")):
        if run.text(column):
            measured[name] = run.number(column)
    return Case(run, setup, "static", isl, osl, measured, users=batch)


def single_stream(run: Run) -> Case:
    """Return a run on one consumer GPU: decode of a short answer, or reading one prompt."""
    batch, value = positive(run, "batch", "tok_per_s")
    test, (engine, version) = run.text("test"), engine_of(run.text("engine", "llama.cpp"))
    if "lmdeploy" in run.text("source").lower():
        engine = "lmdeploy"
    version = version or release_of(run.text("engine_version"), engine)
    setup = Setup(
        run.text("model"), run.text("hardware"), engine=engine, version=version, weights=format_of(run.text("wdtype"))
    )
    if test.startswith("batch"):
        # the first rows of a prompt together: weights are read once, no keys before them
        return Case(run, setup, "static", 1.0, 2.0, {TPOT: batch / value}, users=batch)
    match = _TEST.match(test)
    if match is None and test[:2] in ("pp", "tg"):
        raise SkipRun(f"test {test!r} is none of pp512, tg128 and tg128@d2048")
    kind, tokens, depth = match.groups() if match else ("tg", "128", None)
    if kind == "tg":
        return Case(run, setup, "static", float(depth or 1), float(tokens), {TPOT: batch / value}, users=batch)
    if depth:
        raise SkipRun("a prompt behind others that are in the cache")
    return Case(run, setup, "static", float(tokens), 1.0, {TTFT: batch * float(tokens) / value}, users=batch)


#: columns that a table has -> reader of a row
READERS: tuple[tuple[frozenset[str], Callable[[Run], Case]], ...] = (
    (frozenset({"model", "hardware", "concurrency", "measured_ttft_ms", "measured_tpot_ms"}), by_concurrency),
    (frozenset({"model", "hardware", "qps", "ttft_mean_ms", "itl_mean_ms"}), online),
    (frozenset({"kind", "model", "hardware", "batch", "isl", "osl", "value", "per"}), static),
    (frozenset({"model", "hardware", "batch", "isl", "osl", "value", "engine"}), batches),
    (frozenset({"model", "hardware", "isl", "osl", "value", "meaning", "requests"}), offline),
    (frozenset({"model", "hardware", "wdtype", "tok_per_s", "test"}), single_stream),
)
#: columns of a table with one row a request, which is replayed as a whole
REQUEST_COLUMNS = frozenset({"model", "hardware", "request", "input", "output", "queued_s", "first_s", "last_s"})


def reader_of(columns: Collection[str]) -> Callable[[Run], Case] | None:
    """Return the reader of a table with these columns, None if there is none."""
    reader = next((reader for needed, reader in READERS if needed <= set(columns)), None)
    return None if reader is None else functools.partial(_with_server, reader)


def _with_server(reader: Callable[[Run], Case], run: Run) -> Case:
    """Return what a row says, who ran it, and the limits of its server where the row tells them."""
    case = reader(run)
    return replace(case, setup=replace(
        case.setup, laboratory=run.text("source"), max_num_seqs=given(run, "max_num_seqs"),
        max_batched_tokens=given(run, "max_num_batched_tokens"), max_model_len=given(run, "max_model_len"),
        graph=graphs(run), triton=triton(run),
    ))  # fmt: skip
