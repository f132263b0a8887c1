"""How far a step may lie beyond what published runs show, on a machine or over links that nobody has measured.

The interval of a step comes from published runs, on few machines. On another one every kernel may differ by what
machines differ by, a run from its kernels, and exchanges through a host by what hosts do; the predictions of single
operators and of whole models know how much. No fitted run has layers with a state, and nobody here measured their
kernels; nor has one attention to compressed keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from perfmodel.cluster.collectives import exchange_variances
from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.predict import predict
from perfmodel.prediction.sparse_attention import COMPRESSED_DEVIATION
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80
from perfmodel.prediction.whole_model import run_deviation
from perfmodel.training.kernels import arithmetic
from perfmodel.training.setup import Setup

#: what all kernels of a machine share, in place of what one kernel or library differs by, which published runs show
_OF_MACHINES = (
    ErrorSource.MACHINE, ErrorSource.VENDOR, ErrorSource.LINK, ErrorSource.DTYPE, ErrorSource.DTYPE_HERE,
)  # fmt: skip
#: term of a step -> a kernel of the kind that it mostly consists of; the other terms are exchanges and the host
_KERNELS = {
    **dict.fromkeys(("products", "head", "recompute", "bubble"), "product"),
    **dict.fromkeys(("memory_bound", "casts", "optimizer", "compression"), "copy"),
    **dict.fromkeys(("attention", "imbalance"), "attention"),
}
#: the kind of layers' states, which are part of the term "attention"
LINEAR = "linear"
#: terms in which ranks exchange; `Groups` has these ranks by the same names
EXCHANGES = ("tensor", "context", "expert", "data")


#: keys of the intervals that hold what laboratories differ by: in steps of frameworks that are described and of others,
#: and in the memory that they print
ELSEWHERE, UNDESCRIBED, MEMORY = "elsewhere", "undescribed", "memory"


def stretches(
    setup: Setup, terms_s: Mapping[str, float], exchanged: Callable[[float], float] | None = None
) -> tuple[Stretch, Stretch]:
    """Return what nobody measured adds to the interval of a step, and of that what its machine's steps do not share.

    A source of error shifts all terms that it concerns together, each by its standard deviation s of ln(measured /
    predicted); different sources are independent of each other, and the ends add up as independent ones do:

        up = sqrt(sum over sources (ln sum_i w_i exp(z s_i))^2),  w_i: share of a term, z: of an 80 % interval

    and down the same with -z, so that what is certain of a step stays in it. All are 0 on a machine of published runs
    whose ranks NVLink joins. What a machine's kernels differ by concerns all of its steps alike; what its host does,
    only those that exchange over it. Compute hides most of the exchange of gradients and weights: one that takes longer
    comes out of it, by more than its exposed part grows.

    Parameters
    ----------
    exchanged : the term "data" where its exchanges take a factor as long [s]; None for the factor times it.
    """
    total = sum(terms_s.values())
    found: dict[ErrorSource, list[tuple[float, float]]] = {}
    for term, time_s in terms_s.items():
        for source, deviation in _deviations(setup, term):
            factors = (math.exp(-Z80 * deviation), math.exp(Z80 * deviation))
            ends = map(exchanged, factors) if exchanged and term == "data" else (time_s * factor for factor in factors)
            down, up = ((end - time_s) / total for end in ends)
            found.setdefault(source, []).append((down, up))
    own = {source: parts for source, parts in found.items() if source is ErrorSource.HOST}
    return _stretch(found.values()), _stretch(own.values())


def wide_because(setup: Setup, terms_s: Mapping[str, float], elsewhere: str) -> list[str]:
    """Return why the interval of a step is wider than that of published runs, as sentences.

    ``elsewhere`` is the key of what laboratories differ by, "" for those whose runs were fitted.
    """
    hardware = setup.hardware
    found = []
    if setup.config.linear_layers:
        found.append(
            "No run that was fitted has layers with a state: the interval counts what their kernels may differ by."
        )
    if setup.config.architecture.shared_vector:
        found.append(
            "No kernel of attention to compressed keys was measured, and no run that was fitted has it: the interval "
            "counts that it may take half or twice as long."
        )
    if elsewhere:
        ends = setup.constants.intervals[elsewhere]
        whose = "laboratories" if elsewhere == ELSEWHERE else "laboratories with frameworks that nobody described"
        found.append(
            f"Steps of other {whose} took {ends.low:.2f} to {ends.high:.2f} times as long as predicted from the "
            "well-tuned runs that set the constants: the interval counts it."
        )
    if hardware.name not in setup.constants.seen_machines:
        found.append(f"No run that was fitted is on {hardware.name}: the interval counts what machines differ by.")
    through = [term for term in terms_s if any(source is ErrorSource.HOST for source, _ in _deviations(setup, term))]
    if through:
        found.append(
            f"Ranks exchange through their host ({', '.join(through)}), and hosts differ tenfold: measure yours with "
            "`perfmodel bench all_reduce`, then `calibrate --from` its record."
        )
    return found


def _stretch(sources: Collection[list[tuple[float, float]]]) -> Stretch:
    """Return the stretch of independent sources, each with what it takes off and adds to a step, as shares of it."""
    down, up = (math.hypot(*(math.log1p(sum(part[end] for part in parts)) for parts in sources)) for end in (0, 1))
    return Stretch(down, up)


def _deviations(setup: Setup, term: str) -> tuple[tuple[ErrorSource, float], ...]:
    """Return the sources of error of a term that published runs do not show, with their standard deviations."""
    hardware = setup.hardware
    known = hardware.name in setup.constants.seen_machines
    if term in _KERNELS:
        dtype = arithmetic(setup.plan.dtype)
        dtype = dtype if _KERNELS[term] == "product" or dtype_bytes(dtype) > 1 else "bf16"
        narrow = setup.framework.libraries.get("fp8", ()) if dtype_bytes(dtype) < 2 else ()
        linear = term == "attention" and setup.config.linear_layers > 0
        of_linear = _of_kernel(hardware, LINEAR, dtype, "") if linear else ()
        if term == "attention" and setup.config.architecture.shared_vector:
            of_linear = (*of_linear, (ErrorSource.KERNEL, COMPRESSED_DEVIATION))
        if known:
            return of_linear
        of_run = (ErrorSource.RUN, run_deviation(hardware))
        return (*_of_kernel(hardware, _KERNELS[term], dtype, next(iter(narrow), "")), *of_linear, of_run)
    if term not in EXCHANGES:
        return ()
    group = getattr(setup.groups, term)
    if group.inside == 1:  # the network is the cluster's, as its owner says
        return ()
    variances = exchange_variances(hardware, group.inside)
    # A ring over the network is as fast as NVLink lets it be, but waits for a host.
    return _kept(variances, ErrorSource.HOST, *(() if known or group.crosses else _OF_MACHINES))


@cached_per_machine
def _of_kernel(hardware: Hardware, kind: str, dtype: str, library: str) -> tuple[tuple[ErrorSource, float], ...]:
    ops: dict[str, Operator] = {
        "product": Gemm(m=4096, n=4096, k=4096, dtype=dtype),
        "attention": Attention(batch=1, heads=32, seq_q=4096, head_dim=128, causal=True, dtype=dtype),
        "copy": Elementwise(numel=2**28, kind="copy", dtype=dtype),
        LINEAR: GatedDelta(heads=32, seq=4096, head_dim=128, dtype=dtype),
    }
    prediction = predict(ops[kind], hardware, library=library if kind == "product" else "")
    variances = prediction.uncertainty.variances(prediction.regime)
    sources = (ErrorSource.KERNEL,) if kind == LINEAR else _OF_MACHINES
    return _kept({source: float(value) for source, value in variances.items()}, *sources)


def _kept(variances: Mapping[ErrorSource, float], *sources: ErrorSource) -> tuple[tuple[ErrorSource, float], ...]:
    """Return the sources that have a variance, with their standard deviations."""
    return tuple((source, math.sqrt(variances[source])) for source in sources if variances.get(source))
