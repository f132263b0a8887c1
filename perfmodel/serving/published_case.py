"""What a row of a table of inference runs says: a deployment, a load, and measured quantities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from perfmodel.accuracy.run_table import Run
from perfmodel.core.hardware import Hardware
from perfmodel.errors import PerfModelError, UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.engine import GENERIC, Engine, engine_names, find_engine
from perfmodel.serving.releases import release_of
from perfmodel.serving.speculation import Speculation
from perfmodel.workloads.catalog import find_model
from perfmodel.workloads.model_config import ModelConfig

TTFT, TPOT, RATE = "ttft_s", "tpot_s", "output_tokens_per_s"
#: words in an engine's name -> name of its profile
_ENGINES = {
    "tensorrt": "trtllm",
    "trtllm": "trtllm",
    "trt-llm": "trtllm",
    "turbomind": "lmdeploy",
    "lmdeploy": "lmdeploy",
    "nano": "nano-vllm",
    "llama.cpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "deepspeed-inference": "deepspeed-inference",
    "hf": "hf-eager",
    "transformers": "hf-eager",
    "huggingface": "hf-eager",
}
#: how the tables name formats -> name of the format
_FORMATS = {"fp4": "nvfp4", "": "bf16", "unknown": "bf16", "none": "bf16", "auto": "bf16"}
#: what notes say of runs whose kernels the host launches one by one; on AMD's machines by engines' own Triton kernels;
#: and with tiles of experts that nobody tuned for the machine
NO_GRAPHS, NO_AITER, UNTUNED = "no CUDA graphs", "AITER off", "default MoE config"


class SkipRun(Exception):  # noqa: N818 -- it is no error of the table
    """A run that cannot be compared, with the reason."""


@dataclass(frozen=True)
class Setup:
    """What is needed to make a deployment, hashable so that runs of the same one share their tables."""

    model: str
    hardware: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    engine: str = "vllm"
    version: str = ""
    weights: str = "bf16"
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    kv_tokens: int | None = None
    max_model_len: int | None = None
    speculation: Speculation | None = None
    receive_steps: float = 1.0
    graph: bool | None = field(default=None, repr=False)
    triton: str = field(default="", repr=False)
    laboratory: str = field(default="", repr=False)  # half of the runs fit constants, by a hash of the setup's text

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tp * self.pp * self.dp

    def deployment(self, find: Callable[[str], Hardware], longest: int, profile: Engine | None = None) -> Deployment:
        """Return the deployment, with another profile if one is given; its runs are not refused for their length.

        Raises
        ------
        SkipRun
            For an unknown model or machine, a parallelism that does not divide it, and a model that does not fit.
        """
        if self.receive_steps != 1:
            known = profile or find_engine(self.engine, self.version)
            profile = replace(known, receive_steps=self.receive_steps)
        if self.triton:
            known = profile or find_engine(self.engine, self.version)
            untuned = self.hardware.split("-")[0] if self.triton == "untuned" else ""
            profile = replace(known, triton_blocks="all", untuned=untuned)
        try:
            config = find_model(self.model)
            deployed = Deployment(
                replace(config, positions=max(self.max_model_len or config.positions, longest)), find(self.hardware),
                tp=self.tp, pp=self.pp, ep=self.ep, dp=self.dp, engine=profile or self.engine,
                engine_version=self.version,
                weights=self.weights, kv=self.kv, max_num_seqs=self.max_num_seqs,
                max_batched_tokens=self.max_batched_tokens, kv_tokens=self.kv_tokens, speculation=self.speculation,
                laboratory=self.laboratory, release_known=bool(self.version), graph=self.graph,
            )  # fmt: skip
            deployed.memory()
        except PerfModelError as error:
            raise SkipRun(error.message.partition(":")[0] if "fit" in error.message else error.message) from None
        return deployed


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes
    ----------
    run : the row.
    setup : the deployment.
    load : "steady", "static" or "open", which formula holds.
    isl, osl : tokens of a prompt and of an answer.
    users : sequences or concurrent requests; NaN: as many as fit.
    requests : of the whole run; NaN: endless.
    qps : requests a second.
    conversations : whether the lengths are those of ShareGPT's conversations, which differ widely.
    measured : quantity -> value [SI].
    labels : further grouping keys.
    """

    run: Run
    setup: Setup
    load: str
    isl: float
    osl: float
    measured: Mapping[str, float]
    users: float = math.nan
    requests: float = math.nan
    qps: float = math.nan
    conversations: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def engine_of(text: str, offline: bool = False) -> tuple[str, str]:
    """Return profile and release of an engine as a table names it ("TensorRT-LLM 0.17").

    >>> engine_of("vLLM 0.19.0")
    ('vllm', '0.19.0')
    """
    name, _, version = text.strip().lower().partition(" ")
    profile = next((profile for word, profile in _ENGINES.items() if word in name), GENERIC)
    if profile == "trtllm" and offline:
        profile = "trtllm-offline"
    profile = profile if profile in engine_names() else GENERIC
    return profile, release_of(version, profile)


def profile_of(engine: str, version: str) -> str:
    """Return the name of the profile that describes a version of an engine."""
    return find_engine(engine, version).name


def format_of(text: str) -> str:
    """Return the name of a format as tables write it."""
    lower = text.strip().lower()
    return _FORMATS.get(lower, lower)


def positive(run: Run, *columns: str) -> list[float]:
    """Return cells that have to be above 0.

    Raises
    ------
    SkipRun
        When one is blank or not above 0.
    """
    values = [run.number(column) for column in columns]
    for column, value in zip(columns, values, strict=True):
        if not value > 0:
            raise SkipRun(f"{column} is missing or not above 0")
    return values


def whole(run: Run, column: str, default: int = 1) -> int:
    """Return a cell as a whole number; blank and 0 are the default."""
    return run.whole(column, default) or default


def given(run: Run, column: str) -> int | None:
    """Return a cell as a whole number, None where it is blank or the table has no such column."""
    return run.whole(column) if run.text(column) else None


def graphs(run: Run) -> bool | None:
    """Return False where a run's notes say that decode ran in no CUDA graphs, and None where they do not."""
    return False if NO_GRAPHS in run.text("notes") else None


def triton(run: Run) -> str:
    """Return whose products with scales of blocks a run's notes say to be Triton's, "untuned" with tiles of no machine.

    "" where they do not.
    """
    notes = run.text("notes")
    return "" if NO_AITER not in notes else "untuned" if UNTUNED in notes else "all"


def model_of(name: str) -> ModelConfig:
    """Return the shapes of a model.

    Raises
    ------
    SkipRun
        When it is unknown.
    """
    try:
        return find_model(name)
    except UsageError as error:
        raise SkipRun(error.message) from None
