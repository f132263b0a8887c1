"""Deployments and loads from the options of `serve` and `search serve`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.core.lists import list_items
from perfmodel.core.units import parse_duration, parse_fraction, parse_quantity
from perfmodel.errors import UsageError
from perfmodel.operators.parse import parse_sizes
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.points import CONCURRENCY, QPS, REQUESTS, Workload
from perfmodel.serving.precision import kv_bytes, weight_format
from perfmodel.serving.speculation import Speculation

#: most deployments of one command
_MOST_DEPLOYMENTS = 5000
#: largest whole number of an option
_LARGEST = 1_000_000
#: highest rate that is asked for: the largest known services have some 10^5 requests a second
_MOST_QPS = 1e9
#: lowest rate at which a range may start
_LEAST_QPS = 1e-3


@dataclass(frozen=True)
class Spec:
    """A deployment by names, which another process can build; see `perfmodel.serving.deployment.Deployment`.

    ``speculate`` holds the tokens of a draft and the probability that one is kept, ``draft`` its model, whose weights
    are as ``draft_weights`` says: None for those of the model, "" for those of its own checkpoint.
    """

    model: str
    machine: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    engine: str = "vllm"
    engine_version: str = ""
    weights: str = "bf16"
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_tokens: int | None = None
    utilization: float | None = None
    graph: bool | None = None
    sampling: str = "greedy"
    speculate: tuple[int, float] | None = None
    draft: str = ""
    draft_weights: str | None = None
    dispatcher: str = ""
    gpus_per_node: int | None = None
    nic: str | None = None
    states: str = ""
    batch_overlap: bool = False

    @property
    def name(self) -> str:
        """A short name for messages."""
        return f"{self.machine} tp{self.tp} pp{self.pp} ep{self.ep} dp{self.dp} {self.weights}"

    @property
    def parallel(self) -> Parallel:
        """How the GPUs share the model."""
        return Parallel(self.tp, self.pp, self.ep, self.dp)

    def deployment(self) -> Deployment:
        """Return the deployment.

        Raises
        ------
        UsageError, InputFileError
            When a name is unknown, a file is wrong, or the deployment is impossible.
        """
        from perfmodel.hardware_catalog import hardware
        from perfmodel.workloads.catalog import find_model

        machine = hardware(self.machine)
        hosts: dict[str, Any] = {"gpus_per_node": self.gpus_per_node, "nic": self.nic}
        speculation = None
        if self.speculate is not None:
            weights = self.weights if self.draft_weights is None else self.draft_weights
            own = (self.tp, self.pp, 1, self.dp, self.engine, self.engine_version, weights, self.kv)
            draft = Deployment(find_model(self.draft), machine, *own, **hosts) if self.draft else None
            speculation = Speculation(*self.speculate, draft)
        return Deployment(
            find_model(self.model), machine, self.tp, self.pp, self.ep, self.dp, self.engine, self.engine_version,
            self.weights, self.kv, self.max_num_seqs, self.max_batched_tokens, self.kv_tokens, self.utilization,
            self.graph, self.sampling, speculation, dispatcher=self.dispatcher, states=self.states,
            batch_overlap=self.batch_overlap, **hosts,
        )  # fmt: skip


def specs_of(
    model: str,
    machines: Sequence[str],
    engine: str,
    sizes: dict[str, str | None],
    formats: dict[str, str | None],
    **same: Any,
) -> list[Spec]:
    """Return the deployments of all combinations of machines, numbers of GPUs and formats.

    Parameters
    ----------
    model, machines, engine : names.
    sizes : option -> range or list of whole numbers, or None for the default.
    formats : option -> formats, divided by a slash; None for weights as the checkpoints have them.
    same : values of `Spec` that all share.

    Raises
    ------
    UsageError
        When there is no machine, a number is no whole number above 0, or there are too many combinations.
    """
    if not machines:
        raise UsageError("--on is missing.", remedy="Add --on h100; `perfmodel hardware list` shows the names.")
    axes: dict[str, list[Any]] = {"machine": _machines(machines)}
    for key, text in sizes.items():
        numbers = [None] if text is None else whole_numbers(text, f"--{key.replace('_', '-')}")
        axes[key] = list(dict.fromkeys(numbers))
    if formats.get("weights") is None:
        formats, same = formats | {"weights": stored_weights(model)[0]}, same | {"draft_weights": ""}
    for key, text in formats.items():
        axes[key] = list(dict.fromkeys(list_items(text or "", "/", place=f"--{key}")))
        for word in axes[key]:
            _ = kv_bytes(word) if key == "kv" else weight_format(word)
    total = math.prod(map(len, axes.values()))
    if total > _MOST_DEPLOYMENTS:
        raise UsageError(f"{total} deployments are too many; at most {_MOST_DEPLOYMENTS}.", remedy="Shorten a range.")
    return [
        Spec(model, engine=engine, **dict(zip(axes, values, strict=True)), **same)
        for values in itertools.product(*axes.values())
    ]


def told_release(engine: str, text: str) -> tuple[str, tuple[str, ...]]:
    """Return the release of an engine that ``--engine-version`` stands for, and a note where it tells a date.

    Raises
    ------
    UsageError, InputFileError
        When it tells no release, or the engine is unknown.
    """
    from perfmodel.serving.releases import find_release

    release = find_release(text, engine)
    if release == text.strip().lower().removeprefix("v"):
        return release, ()
    return release, (f"The version {text!r} stands for {engine} {release}, the oldest release that may be meant.",)


def stored_weights(model: str, usual: str = "") -> tuple[str, tuple[str, ...]]:
    """Return the format of the weights where no option chooses one, and a note that says why it is not the usual one.

    Parameters
    ----------
    model : as `perfmodel.workloads.catalog.find_model` takes it.
    usual : formats for a checkpoint in 16 bits; bf16 if empty.

    Raises
    ------
    UsageError, InputFileError
        When the model is unknown, or its file is wrong.
    """
    from perfmodel.workloads.catalog import find_model, source_of_format
    from perfmodel.workloads.quantization import OTHER

    config = find_model(model)
    if not config.stored:
        return usual or config.usual_weights, ()
    if config.stored == OTHER:
        said = f" ({config.stored_words})" if config.stored_words else ""
        note = f"The config says that the weights are quantised in a way that is not read{said}: taken as bf16."
        return config.usual_weights, (f"{note} --weights names their format.",)
    reason = f"Weights in {config.stored}, {source_of_format(model)}"
    return config.stored, (f"{reason}; --weights chooses another format.",)


def model_remarks(model: str) -> tuple[str, ...]:
    """Return the remarks on a model: which parts are not counted, and which files contradict its configuration."""
    from perfmodel.workloads.catalog import find_model

    return find_model(model).remarks


def _machines(names: Sequence[str]) -> list[str]:
    """Return the first name of each machine; a name that no machine has is no deployment that is left out."""
    from perfmodel.hardware_catalog import hardware

    return list({hardware(name).name: name for name in reversed(names)}.values())[::-1]


def whole_numbers(text: str, place: str) -> list[int]:
    """Return the whole numbers above 0 of a text.

    Raises
    ------
    UsageError
        When one is none.
    """
    values = parse_sizes(text, place=place, key=place.removeprefix("--"))
    for value in values:
        if not 1 <= value <= _LARGEST or value != int(value):
            raise UsageError(
                f"{value:g} is no whole number from 1 to {_LARGEST}.", place=place, remedy="Write 1, 1/2/4 or 1..8."
            )
    return [int(value) for value in values]


def rates(text: str) -> tuple[float, ...]:
    """Return the rates of ``--qps``, which may be infinite.

    Raises
    ------
    UsageError
        When one is not above 0.
    """
    if text.strip() == "inf":
        return (math.inf,)
    values = parse_sizes(text, place="--qps", key="qps", least=_LEAST_QPS)
    for value in values:
        if not value > 0:
            raise UsageError(
                f"a rate of {value:g} requests a second never sends one.", place="--qps", remedy="Give rates above 0."
            )
        if value > _MOST_QPS:
            raise UsageError(
                f"a rate of {value:g} requests a second is not possible.",
                place="--qps",
                remedy=f"Give rates up to {_MOST_QPS:g}, or inf for requests that all arrive at once.",
            )
    return tuple(map(float, values))


def check_rate(for_qps: float | None) -> None:
    """Raise a UsageError for a rate of ``--for-qps`` that no fleet serves."""
    if for_qps is not None and not 0 < for_qps <= _MOST_QPS:
        raise UsageError(
            f"a rate of {for_qps:g} requests a second is not possible.",
            place="--for-qps",
            remedy=f"Give a rate above 0, at most {_MOST_QPS:g}.",
        )


def speculation_of(text: str | None, draft: str) -> tuple[int, float] | None:
    """Return tokens and acceptance of a text as "4:0.7" or "4:70%".

    Raises
    ------
    UsageError
        When it is none, or a draft model has no such text.
    """
    if text is None:
        if draft:
            raise UsageError("--draft needs --speculate.", remedy="Add --speculate 4:0.7: tokens and acceptance.")
        return None
    tokens, _, acceptance = text.partition(":")
    if not (tokens.strip().isdecimal() and acceptance.strip()):
        raise UsageError(
            f"{text!r} is no number of tokens with an acceptance.", place="--speculate", remedy="Write 4:0.7."
        )
    return int(tokens), parse_fraction(acceptance, "--speculate")


def percentiles_of(text: str) -> tuple[float, ...]:
    """Return the percentiles of a text as "50,95,99".

    Raises
    ------
    UsageError
        When one is no number from 0 to 100.
    """
    values = []
    for word in list_items(text, ",", place="--percentiles"):
        try:
            value = float(word.removeprefix("p"))
        except ValueError:
            value = math.nan
        if not 0 < value <= 100:
            raise UsageError(f"{word!r} is no percentile.", place="--percentiles", remedy="Write 50,95,99.")
        values.append(value)
    return tuple(values)


def workload_of(workload: Workload, requests: str | None, load: str) -> tuple[Workload, tuple[str, ...]]:
    """Return the workload with the requests of a file, if one is given, and what its reader noted.

    Raises
    ------
    InputFileError
        When the file is wrong, or has no arrivals and the load has none either.
    """
    if requests is None:
        return workload, ()
    from perfmodel.serving.arrivals import read_requests

    read = read_requests(requests, need_times=load == REQUESTS)
    isl, osl = (float(lengths.mean()) for lengths in (read.requests.prompt, read.requests.output))
    return replace(workload, trace=read.requests, isl=isl, osl=osl), read.notes


def fleet_of(
    policy: str,
    rules: Mapping[str, Any],
    max_wait: str | None,
    replicas: int,
    prefill_replicas: int,
    routing: str,
    kv_link: str | None,
) -> Fleet:
    """Return how many deployments serve together, and by which rules, from the options.

    Parameters
    ----------
    policy, rules : name of the scheduler's policy, and values that differ from it; None keeps a value.
    max_wait : longest time that the oldest request waits for a batch to fill, as "100ms".
    replicas, prefill_replicas, routing : see `perfmodel.serving.load.Fleet`.
    kv_link : bandwidth between prefill and decode, as "50 GB/s".

    Raises
    ------
    UsageError
        When a time or a bandwidth is none.
    """
    wait_s = None if max_wait is None else parse_duration(max_wait, place="--max-wait")
    link = None if kv_link is None else parse_quantity(kv_link, "B/s", place="--kv-link")
    return Fleet(policy, (*rules.items(), ("max_wait_s", wait_s)), replicas, prefill_replicas, routing, link)


def load_of(concurrency: str | None, qps: str | None, requests: str | None) -> tuple[str, tuple[float, ...]]:
    """Return the kind of load and its values from the options; clients if none is given.

    Raises
    ------
    UsageError
        When two kinds are given, or a value is impossible.
    """
    if concurrency is not None and qps is not None:
        raise UsageError("--concurrency and --qps are two loads.", remedy="Give one of them.")
    if qps is not None:
        return QPS, rates(qps)
    if concurrency is not None:
        return CONCURRENCY, tuple(map(float, whole_numbers(concurrency, "--concurrency")))
    return (REQUESTS, ()) if requests is not None else (CONCURRENCY, ())
