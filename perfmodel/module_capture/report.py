"""A captured module as a report: people see the tree of modules, files every operator of every module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_count, format_si
from perfmodel.module_capture.result import Captured, NotModelled
from perfmodel.prediction.whole_model import Part, WholeModel

#: modules inside this many others are summed in their parents, for people
DEPTH = 2
_INDENT = "  "
#: operators of PyTorch that are not modelled, and lines, that people see
_NAMES = 6
#: a smaller share of the traffic that is not modelled is only a note for people, and sums are no lower limits
_SMALLEST_SHARE = 1e-2


def _lower_limit(key: str, unit: str) -> Callable[[Mapping[str, Any]], str]:
    """Return what shows the sum of a module: after ">=" where it leaves out calls that are not modelled."""
    column = Column(key, unit=unit)

    def show(row: Mapping[str, Any]) -> str:
        text = column.cell(row)
        return f">= {text}" if text != "-" and _is_notable(row.get("not_modelled_share_of_bytes")) else text

    return show


def _is_notable(share: float | None) -> bool:
    return share is not None and share >= _SMALLEST_SHARE


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if _is_notable(share) else "-"


COLUMNS = (
    Column("module"),
    Column("kind", drop=3),
    Column("phase", shown=False),
    Column("op", shown=False),
    Column("name", shown=False),
    Column("count", shown=False),
    Column("parameters", show=lambda count: _parameters(int(count))),
    Column("trainable", shown=False),
    Column("flop", "FLOP", "FLOP", show_row=_lower_limit("flop", "FLOP")),
    Column("not_modelled_share_of_bytes", "not modelled", "fraction", show=_share),
    Column("bytes", "traffic", "B", drop=2),
    Column("activation_bytes", "activations", "iB", drop=1),
    Column("measured_time_s", "measured", "s"),
    Column("predicted_time_s", "expected", "s", show_row=_lower_limit("predicted_time_s", "s")),
    Column("limiter", drop=2),
    Column("share", unit="fraction", drop=1),
    Column("not_modelled", "reason", shown=False),
)


@report.register
def _(
    captured: Captured,
    *,
    hardware: Hardware | None = None,
    depth: int = DEPTH,
    context: Mapping[str, Any] | None = None,
) -> Report:
    """Return the operators by module.

    Parameters
    ----------
    captured : the module.
    hardware : the machine for times; without it there are none.
    depth : how many levels of modules people see.
    context : facts for JSON.
    """
    whole = captured.predict(hardware) if hardware is not None and captured.modelled else None
    times = _times(captured, whole)
    total = sum(times.values()) or float("nan")
    tree = list(_tree(captured, times, total))
    in_tf32 = hardware is not None and captured.in_tf32(hardware)
    facts = {**(context or {}), **_facts(captured, whole), "in_tf32": in_tf32, "modules": tree}
    rows = list(_rows(captured, whole, total))
    shown = [row for row, module in zip(tree, captured.modules, strict=True) if module.depth <= depth]
    return Report(
        "capture", COLUMNS, rows, facts, tuple(_notes(captured, whole, in_tf32)), captured.title, people_rows=shown,
        unlisted=_deeper(len(tree) - len(shown)),
    )  # fmt: skip


def saved(table: Report) -> Report:
    """Return a module that was read from JSON as `capture` shows it: the tree of modules."""
    tree = table.context.get("modules") or []
    shown = [row for row in tree if _depth(row["module"]) <= DEPTH]
    return with_columns(table, COLUMNS, people_rows=shown, unlisted=_deeper(len(tree) - len(shown)))


def _depth(name: str) -> int:
    """Return in how many others a module of the tree is."""
    return (len(name) - len(name.lstrip())) // len(_INDENT)


def _deeper(count: int) -> str:
    """Return a sentence about the modules that lie too deep to be listed; an empty one where there is none."""
    if not count:
        return ""
    lie, them = ("lies", "it") if count == 1 else ("lie", "them")
    return f"{format_count(count, 'module')} {lie} deeper: --depth shows {them}."


def _times(captured: Captured, whole: WholeModel | None) -> dict[int, float]:
    """Return index of a call with an operator -> expected time on the device [s]."""
    if whole is None:
        return {}
    indices = [index for index, call in enumerate(captured.calls) if call.op is not None]
    return {index: part.time_s for index, part in zip(indices, whole.parts, strict=True)}


def _tree(captured: Captured, times: Mapping[int, float], total: float) -> Iterator[dict[str, Any]]:
    for module in captured.modules:
        inside = [index for index, call in enumerate(captured.calls) if call in captured.within(module.path)]
        # a module without calls takes no time; of one whose calls are all without an operator nothing is known
        known = not inside or any(captured.calls[index].op is not None for index in inside)
        time_s = sum(times.get(index, 0.0) for index in inside) if times and known else None
        yield {
            "module": _INDENT * module.depth + (module.path.rpartition(".")[2] or captured.title.partition("(")[0]),
            "path": module.path,
            "kind": module.kind,
            "parameters": module.parameters,
            "trainable": module.trainable,
            "flop": sum(captured.calls[index].flop for index in inside) if known else None,
            "not_modelled_share_of_bytes": captured.not_modelled_share(module.path),
            "bytes": sum(captured.calls[index].moved_bytes for index in inside),
            "activation_bytes": module.activation_bytes or None,
            "measured_time_s": captured.measured_s.get(module.path),
            "predicted_time_s": time_s,
            "share": time_s / total if time_s is not None else None,
        }


def _rows(captured: Captured, whole: WholeModel | None, total: float) -> Iterator[dict[str, Any]]:
    """Yield one row for each operator of each module."""
    facts = {module.path: module for module in captured.modules}
    parts = iter(whole.parts if whole else ())
    for call in captured.calls:
        part = next(parts) if whole and call.op is not None else None
        module = facts.get(call.module)
        yield {
            "module": call.module,
            "kind": module.kind if module else "",
            "phase": str(call.phase),
            "op": call.op.op if call.op is not None else None,
            "name": call.name,
            "count": call.count,
            "parameters": module.parameters if module else 0,
            "trainable": module.trainable if module else 0,
            "flop": call.flop if call.op is not None else None,
            "not_modelled_share_of_bytes": float(call.op is None),
            "bytes": call.moved_bytes,
            "activation_bytes": _activations(captured, module.activation_bytes if module else 0.0),
            **_expected(part, total),
            "not_modelled": call.not_modelled,
        }


def _activations(captured: Captured, saved_bytes: float) -> float | None:
    """Return what is saved for gradients [B]; None where no gradients were asked for, so that none was looked at."""
    return saved_bytes if captured.has_gradients else None


def _expected(part: Part | None, total: float) -> dict[str, Any]:
    if part is None:
        return {"predicted_time_s": None, "limiter": None, "share": None}
    prediction = part.prediction
    return {
        "predicted_time_s": part.time_s,
        "predicted_time_low_s": part.time_s
        / float(prediction.predicted_time_s)
        * float(prediction.predicted_time_low_s),
        "predicted_time_high_s": part.time_s
        / float(prediction.predicted_time_s)
        * float(prediction.predicted_time_high_s),
        "limiter": str(prediction.limiter),
        "share": part.time_s / total,
    }


def _facts(captured: Captured, whole: WholeModel | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "flop": captured.flop,
        "parameters": captured.root.parameters,
        "trainable": captured.root.trainable,
        "activation_bytes": _activations(captured, captured.root.activation_bytes),
        "not_modelled_share_of_bytes": captured.not_modelled_share(),
        "calls": sum(call.count for call in captured.calls),
        "not_modelled": [dataclasses.asdict(one) for one in captured.not_modelled()],
        "cast_to": captured.cast_to,
        "recurrent": list(captured.recurrent),
        "decided": list(captured.decided),
        "measured_backward_s": captured.measured_backward_s,
        "measured_on": captured.measured_on,
    }
    if whole is not None:
        facts |= {
            "predicted_time_s": whole.time_s,
            "predicted_time_low_s": whole.low_s,
            "predicted_time_high_s": whole.high_s,
            "limiter": whole.limiter,
            "kernels_s": whole.kernels_s,
            "host_s": whole.host_s,
        }
    return facts


def _parameters(count: int) -> str:
    """Return a number of parameters with a prefix from a million on.

    >>> _parameters(44_138_496), _parameters(8_030_261_248), _parameters(1024)
    ('44.1 M', '8.03 G', '1024')
    """
    return format_si(float(count), "FLOP", 3).removesuffix("FLOP") if count >= 10**6 else str(count)


def _notes(captured: Captured, whole: WholeModel | None, in_tf32: bool) -> Iterator[str]:
    at_least = "At least " if _is_notable(captured.not_modelled_share()) else ""
    saved = f"; activations saved for gradients: {_size(captured.root.activation_bytes)}"
    yield f"{at_least}{format_si(captured.flop, 'FLOP')}{saved if captured.has_gradients else ''}."
    if whole is not None:
        yield (
            f"Expected on {whole.hardware}: {_limit(captured)}{format_si(whole.time_s, 's')} "
            f"({format_si(whole.low_s, 's', 3)} to {format_si(whole.high_s, 's', 3)}), limited by the {whole.limiter}; "
            f"the kernels take {format_si(whole.kernels_s, 's')}, dispatching them {format_si(whole.host_s, 's')}."
        )
    if in_tf32:
        which = "Convolutions and products" if "gemm" in captured.tf32 else "Convolutions"
        yield f"{which} in fp32 run in TF32 there, as PyTorch is set (allow_tf32 of torch.backends)."
    yield from _reservations(captured)
    if captured.measured_on:
        behind = captured.measured_backward_s
        gradients = "" if behind is None else f", and the backward pass in {format_si(behind, 's')}"
        yield f"Measured on this machine's {captured.measured_on}: the forward pass of each module{gradients}."


def _limit(captured: Captured) -> str:
    """Return which limit the whole time is; nothing where both could be said, or none."""
    lower, upper = _is_notable(captured.not_modelled_share()), bool(captured.recurrent)
    return "" if lower == upper else "at least " if lower else "at most "


def _reservations(captured: Captured) -> Iterator[str]:
    """Yield in what respect the sums are not those of the module itself on a GPU."""
    if captured.cast_to:
        name = captured.cast_to
        yield f"The inputs are in {name} and the parameters are not: the module is counted as if cast to {name}."
    if captured.recurrent:
        yield (
            f"{', '.join(captured.recurrent)}: every step is counted by PyTorch's general operators. A GPU computes "
            "the same products in fewer kernels (cuDNN), so that traffic and times are upper limits."
        )
    if captured.decided:
        lines = ", ".join(captured.decided[:_NAMES])
        yield f"Values decide what runs ({lines}): other inputs, buffers or parameters may run other operators."
    if missing := captured.not_modelled():
        share, count = captured.not_modelled_share(), sum(one.calls for one in missing)
        limits = ", and are lower limits" if _is_notable(share) else ""
        everything = sum(call.count for call in captured.calls)
        yield (
            f"Not modelled: {share:.1%} of the traffic, {count} of {format_count(everything, 'call')}: "
            f"{_names(missing)}. FLOP and times leave it out{limits}."
        )


def _size(value: float) -> str:
    return Column("size", unit="iB").text(value)


def _names(missing: Sequence[NotModelled]) -> str:
    """Return the operators with the most traffic, each with its share of it and its calls, and how many others are."""
    texts = [f"{one.name} ({one.share_of_bytes:.1%}, {one.calls}x)" for one in missing[:_NAMES]]
    others = len(missing) - len(texts)
    return ", ".join([*texts, f"and {format_count(others, 'other')}"] if others else texts)
