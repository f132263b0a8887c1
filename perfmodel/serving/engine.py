"""Serving engines: which kernels they run, what their host costs, how they schedule and reserve memory.

The facts stand in ``engine_specs/serving/*.toml``, one file a profile, each constant with its source.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, UsageError, unknown_name
from perfmodel.files import read_document, shipped_folder
from perfmodel.investment import fields as checked
from perfmodel.operators.routing import Dispatcher
from perfmodel.serving.versions import is_before, numbers
from perfmodel.workloads.state_layer import DTYPES, USUAL_DTYPE

#: profile of an engine that nobody measured
GENERIC = "generic"
#: the host's time to launch one kernel of an engine of which no launch is known [s]: assumed, the dispatch of a call in
#: PyTorch (5 to 7 us in the open traces) and the code of the layer around it
LAUNCH_S = 10e-6
#: standard deviation of ln(measured / predicted) of launches without a graph that nobody measured: assumed; a kernel
#: took 18 to 32 us in our own eager steps (`hf-eager.toml`), 5 to 7 us in the open traces, against the 20 us of prompts
LAUNCH_DEVIATION = 0.5


@dataclass(frozen=True)
class Engine:
    """A profile of a serving engine.

    Attributes
    ----------
    name, title : the profile's name, and the engine's with its versions.
    family : name of the engine, which several profiles by version share ("vllm").
    since, until : first version of the profile, and the first that it no longer describes; "" for any.
    library : whose kernels the products and collectives run, as the latency model names it; ``attention`` maps the
        matrix instruction of a machine, or "default", to the library whose attention runs there.
    all_reduce : library of the reductions: the engine's own kernel, or "nccl".
    exchange_slower : time of a reduction between the kernels of a step, where GPUs arrive at different times, over one
        that is measured alone.
    graph : decode steps replay a CUDA graph; False launches each kernel from the host.
    host_s, host_sequence_s : time of the host that no kernel hides, a step and for each sequence of it [s].
    launch_s : the host's time to launch one kernel of a decode step without a graph [s]; 0: nobody measured it, see
        `eager_launch_s`.
    prompt_launch_s : the host's time for one kernel of a prompt, which no graph holds [s]: it delays the first token,
        and the steps of others hide it from the throughput.
    gap_s : idle time of the device between two kernels of a graph [s].
    front_end_s : added to the time to the first token by the server in front of the engine [s].
    hot : matrix instruction of a machine, or "default" -> time of products under hours of load over that of a
        benchmark, at many tokens.
    experts_start_s : matrix instruction, or "default" -> start of the kernels of a layer of experts [s].
    quantises : dtypes or formats whose activations a kernel of its own quantises, with commas; that of others is part
        of the kernel before the product.
    widens : formats whose weights a kernel of its own writes in 16 bits before each product, with commas.
    integers : formats whose products of more rows than ``vectors`` have activations in 8-bit integers, with commas,
        where the machine's matrix instruction multiplies these; ``integers_slower``: their time over that of other
        libraries' products in such integers.
    vectors : rows up to which matrix-vector kernels multiply narrow weights: they read these once and have no tiles.
    head : format of the embedding's and the logits' weights where the weights alone are narrow; "" is 16 bits.
    beside : format of a mixture's other matrices, where that of the weights is one of experts alone; "" is 16 bits.
    slower : factor on the kernels of this version over those of the latency model.
    imbalance : time of a step of several copies of the attention that share experts, over that of the mean copy: all
        wait for the slowest.
    dispatcher : how copies of the attention exchange tokens with experts that they share, see
        `perfmodel.operators.routing.Dispatcher`.
    wide_dispatcher : the same where more GPUs share the experts than a token has, on machines whose NVLink reaches
        beyond a host; "" for ``dispatcher``.
    narrow_dispatch : formats whose activations travel to the experts as these multiply them, with commas; others in 16
        bits, but for DeepEP's.
    balance_steps : steps for which copies of the attention that share experts hold a prompt back, until all have one.
    ahead : each step is scheduled while the one before it runs (vLLM's async scheduling, SGLang's and TensorRT-LLM's
        overlap), so that a request waits for the one after that in which it comes, too.
    receive_steps : steps from one look for new requests to the next: a request waits for half of them
        (SGLang's ``--scheduler-recv-interval``).
    kernels : kernels of a layer without exchanges; ``passes`` : traffic of norms, rotary positions and activation over
        that of fused kernels.
    format_kernels : format of the weights -> kernels of a layer beside ``kernels``, which quantise and widen.
    latent_kernels : kernels that latent attention adds to a layer of a step without prompts.
    triton_blocks : whose products with scales of blocks run in Triton's kernels, see `perfmodel.serving.triton_blocks`:
        "experts", "all", or "" for none.
    looped : each expert of a layer is asked for its tokens, and those that have some are computed, one after another.
    untuned : machines for whose experts these kernels have no tiles of their own, by the first word of their names,
        with commas.
    expanded_until : first release that keeps latent keys; those before, for which ``expands`` is set, keep the keys and
        values of all heads, padded.
    early_until, early : first release that the keys in ``early`` no longer describe, and these keys; "" for none.
    dense_prompts : prompts with no more keys than an indexer leaves attend to all of them; False chooses among them.
    scheduler : "chunked" (prompts in chunks beside decode), "chunked_recompute" (the same; a share of the cache stays
        free on admission, and preempted sequences are computed anew), "prefill_first", "new_token_ratio" (the same,
        and requests enter by an estimate of what the others still generate) or "static".
    chunked_above : models of longer contexts are read as "chunked_recompute" says on NVIDIA's machines, whatever
        ``scheduler`` says, unless their layers have windows or latent attention; 0: none.
    chunked_tokens : budget of tokens of a step then, where not told.
    reserve : blocks are reserved for the whole sequence on admission (guaranteed_no_evict), not on demand.
    max_batched_tokens, max_num_seqs : budget of tokens, and most sequences of a step, where not told.
    compressed_seqs : most sequences of a model that compresses keys (DeepSeek-V4), over all copies of its attention,
        where not told; 0: as of others.
    smaller : the same on machines of less memory than ``below_gib``, and on those with ``named`` in their title.
    block_tokens : tokens of a block of the paged cache.
    utilization : share of the memory that the engine takes; ``of_free``: of what weights and activations leave.
    window_pool : tokens that layers with a window have room for over those of the others, each kind in a pool of its
        own, in which layers with the keys of others have room, too; 0 where all layers share one pool.
    state_share : share of the room for keys and values that layers' states have to themselves; 0 where
        both lie in one pool.
    state_copies : states that a running sequence takes of such a pool: its own, and those that a cached prefix keeps.
    state_dtype : dtype of layers' states between steps, where the model asks for none.
    workspace_bytes : graphs, buffers of communication and fragmentation [B].
    vendors : of the machines that it runs on, with commas; "" for any.
    least_capability : NVIDIA's compute capability from which on it runs ("8.0"); "" for any.
    measured_since : the first version of which runs were judged; "" where versions make no difference that is known.
    latent_since : the first version whose kernels for latent attention, and for the narrow experts of models that have
        it, are no longer the first ones; "" where no run shows them to be slower.
    own : whether runs of one's own set the constants, so that no other laboratory is meant.
    deviation : standard deviation of ln(measured / predicted) of a step that kernels do not explain.
    first_deviation : the same of the time to the first token, which front ends and arrivals add to.
    sources : where the constants come from, by name.
    errors : how far a fitted constant may be off, by name; or that nobody knows.
    """

    name: str
    title: str = ""
    family: str = ""
    since: str = ""
    until: str = ""
    library: str = ""
    attention: Mapping[str, str] = field(default_factory=dict)
    all_reduce: str = "nccl"
    exchange_slower: float = 1.0
    graph: bool = True
    host_s: float = 0.5e-3
    host_sequence_s: float = 5e-6
    launch_s: float = 0.0
    prompt_launch_s: float = 0.0
    gap_s: float = 1e-6
    front_end_s: float = 0.0
    hot: Mapping[str, float] = field(default_factory=dict)
    experts_start_s: Mapping[str, float] = field(default_factory=dict)
    quantises: str = "fp4"
    widens: str = ""
    integers: str = ""
    integers_slower: float = 1.0
    vectors: int = 0
    head: str = ""
    beside: str = ""
    slower: float = 1.0
    imbalance: float = 1.0
    dispatcher: str = Dispatcher.ALLGATHER
    wide_dispatcher: str = ""
    narrow_dispatch: str = ""
    balance_steps: float = 0.0
    ahead: bool = True
    receive_steps: float = 1.0
    kernels: int = 9
    passes: float = 1.0
    format_kernels: Mapping[str, int] = field(default_factory=dict)
    latent_kernels: int = 3
    triton_blocks: str = ""
    untuned: str = ""
    looped: bool = False
    expanded_until: str = ""
    expands: bool = False
    early_until: str = ""
    early: Mapping[str, int | str] = field(default_factory=dict)
    dense_prompts: bool = True
    scheduler: str = "chunked"
    chunked_above: int = 0
    chunked_tokens: int = 0
    reserve: bool = False
    max_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    compressed_seqs: int = 0
    smaller: Mapping[str, int | str] = field(default_factory=dict)
    block_tokens: int = 16
    utilization: float = 0.9
    of_free: bool = False
    window_pool: float = 0.0
    state_share: float = 0.0
    state_copies: float = 1.0
    state_dtype: str = USUAL_DTYPE
    workspace_bytes: float = 0.5e9
    vendors: str = ""
    least_capability: str = ""
    measured_since: str = ""
    latent_since: str = ""
    own: bool = False
    deviation: float = 0.25
    first_deviation: float = 0.4
    sources: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def attention_on(self, instruction: str) -> str:
        """Return the library whose attention kernels run on machines with a matrix instruction."""
        return self.attention.get(instruction, self.attention.get("default", self.library))

    def hot_on(self, instruction: str) -> float:
        """Return how much longer products take under sustained load."""
        return self.hot.get(instruction, self.hot.get("default", 1.0))

    def experts_start_on(self, instruction: str) -> float:
        """Return the start of a layer of experts [s]; 25 us where nobody fitted it."""
        return self.experts_start_s.get(instruction, self.experts_start_s.get("default", 25e-6))

    @property
    def eager_launch_s(self) -> float:
        """The host's time to launch one kernel without a graph [s]: as measured, or that of a prompt's kernels."""
        return self.launch_s or self.prompt_launch_s or LAUNCH_S

    @property
    def launch_deviation(self) -> float:
        """Standard deviation of ln(measured / predicted) of `eager_launch_s` beyond `deviation`; 0 if measured."""
        return 0.0 if self.launch_s else LAUNCH_DEVIATION

    def of_release(self, version: str) -> Engine:
        """Return the profile as it describes one release; "" is one of the newest that it describes."""
        others: dict[str, Any] = dict(self.early) if is_before(version, self.early_until) else {}
        if is_before(version, self.expanded_until):
            others["expands"] = True
        return replace(self, **others) if others else self

    def for_contexts(self, hardware: Hardware, positions: int, *, plain: bool) -> Engine:
        """Return the profile as it reads prompts of a model of so many positions.

        ``plain`` is whether its layers have neither windows nor latent attention.
        """
        if not (plain and 0 < self.chunked_above < positions and hardware.vendor == "NVIDIA"):
            return self
        return replace(self, scheduler="chunked_recompute", max_batched_tokens=self.chunked_tokens)

    def limits_on(self, hardware: Hardware) -> tuple[int, int]:
        """Return the default budget of tokens, and the most sequences of a step, on a machine."""
        limits = self.max_batched_tokens, self.max_num_seqs
        if not self.smaller:
            return limits
        capacity = hardware.main_memory.capacity_bytes or math.inf
        named = str(self.smaller.get("named", ""))
        if capacity >= int(self.smaller.get("below_gib", 0)) * 2.0**30 and not (named and named in hardware.name):
            return limits
        tokens, sequences = (int(self.smaller.get(key, value)) for key, value in zip(_LIMITS, limits, strict=True))
        return tokens, sequences


#: the limits of a step that a machine may have others of, and the keys of their table
_LIMITS = ("max_batched_tokens", "max_num_seqs")
_SMALLER = {"below_gib": int, "named": str, **dict.fromkeys(_LIMITS, int)}
#: keys with a unit -> attribute and unit
QUANTITIES = {
    "host": ("host_s", "s"),
    "host_sequence": ("host_sequence_s", "s"),
    "launch": ("launch_s", "s"),
    "prompt_launch": ("prompt_launch_s", "s"),
    "gap": ("gap_s", "s"),
    "front_end": ("front_end_s", "s"),
    "workspace": ("workspace_bytes", "B"),
}
_PLAIN = {item.name: item for item in fields(Engine)}
#: keys that releases before ``early_until`` may have others of
_EARLY = {"latent_kernels": int, "triton_blocks": str, "untuned": str, "looped": bool}
#: keys that are tables, and the types of their keys where these are fixed
_TABLES: Mapping[str, Mapping[str, type]] = {
    **{key: {} for key in ("attention", "hot", "experts_start_s", "format_kernels", "sources", "errors")},
    "smaller": _SMALLER,
    "early": _EARLY,
}
SCHEDULERS = ("chunked", "chunked_recompute", "prefill_first", "new_token_ratio", "static")
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "scheduler": SCHEDULERS,
    "state_dtype": DTYPES,
    "triton_blocks": ("", "experts", "all"),
    **dict.fromkeys(("dispatcher", "wide_dispatcher"), tuple(Dispatcher)),
}


def read_engine(path: str | os.PathLike[str]) -> Engine:
    """Return the profile in a TOML, YAML or JSON file.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key is unknown or has a wrong value.
    """
    place = os.fspath(path)
    document = read_document(path)
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise InputFileError("has no name: it is no profile of an engine.", place=place)
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key in QUANTITIES:
            name, unit = QUANTITIES[key]
            values[name] = parse_quantity(value, unit, place=f"{place}: {key}")
        elif key in _PLAIN and key not in (item for item, _ in QUANTITIES.values()):
            values[key] = _checked(key, value, f"{place}: {key}")
        else:
            raise unknown_name("key", key, [*QUANTITIES, *_PLAIN], place=place, kind=InputFileError)
    return Engine(**values)


def _check_table(table: Mapping[str, Any], types: Mapping[str, type], place: str) -> None:
    checked.check_keys(table, types, place)
    for key, value in table.items():
        if type(value) is not types[key] or (isinstance(value, int) and value < 1):
            raise InputFileError(f"{value!r} is no {types[key].__name__} above 0.", place=f"{place}.{key}")
        if (known := _ALLOWED.get(key)) and value not in known:
            raise unknown_name(key, str(value), known, place=place, kind=InputFileError)


def _checked(key: str, value: Any, place: str) -> Any:
    """Return a value of the type that the attribute has."""
    default = _PLAIN[key].default
    if isinstance(value, dict):
        if key not in _TABLES:
            raise InputFileError("is a table.", place=place, remedy="Write one value.")
        if types := _TABLES[key]:
            _check_table(value, types, place)
        return MappingProxyType(dict(value))
    if (known := _ALLOWED.get(key)) and value not in known:
        raise unknown_name(key, str(value), known, place=place, kind=InputFileError)
    default = str(default) if isinstance(default, Dispatcher) else default
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if key != "name" and type(value) is not type(default):
        raise InputFileError(f"{value!r} is no {type(default).__name__}.", place=place)
    if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
        raise InputFileError(f"{value} is not a finite number from 0 on.", place=place)
    return value


@functools.cache
def _shipped() -> Mapping[str, Path]:
    folder = shipped_folder("engine_specs") / "serving"
    return MappingProxyType({path.stem: path for path in sorted(folder.glob("*.toml"))})


@functools.cache
def _read_shipped(name: str) -> Engine:
    return read_engine(_shipped()[name])


def engine_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles."""
    return tuple(_shipped())


def find_engine(name: str, version: str = "") -> Engine:
    """Return the profile of an engine: by its own name, by the engine's and a version, or from a file.

    Parameters
    ----------
    name : name of a profile ("vllm", "trtllm-offline"), or the path of a TOML file.
    version : of the engine ("0.6.3"); the profile of the same engine that describes it is taken.

    Raises
    ------
    UsageError, InputFileError
        When no profile has the name, or the file is wrong.
    """
    if name.endswith((".toml", ".yaml", ".yml", ".json")):
        if version:
            raise UsageError("a file describes one version.", place="engine_version", remedy="Leave the version out.")
        return read_engine(name)
    lower = name.strip().lower()
    if lower not in _shipped():
        raise unknown_name("engine", name, engine_names(), place="engine")
    profile = _read_shipped(lower)
    if version and not numbers(version):
        raise UsageError(f"{version!r} is no version.", place="engine_version", remedy="Write 0.6.3 or b6213, say.")
    if not version:
        return profile
    known = (profile, *(_read_shipped(other) for other in _shipped()))
    described = (one for one in known if one.family == profile.family and _describes(one, version))
    return next(described, profile).of_release(version)


def _describes(profile: Engine, version: str) -> bool:
    given = numbers(version)
    if not given:
        return not profile.until
    return (not profile.since or given >= numbers(profile.since)) and (
        not profile.until or given < numbers(profile.until)
    )
