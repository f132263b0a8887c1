"""Training steps, searches and what stands below them as reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import first_rows, with_columns, with_tables
from perfmodel.core.units import DAY_S, HOUR_S, format_binary, format_large, format_long, format_si
from perfmodel.training.data_loading import Loading
from perfmodel.training.goodput import Goodput
from perfmodel.training.memory_report import MEMORY_TITLE, memory_columns
from perfmodel.training.mixed import MixedStep
from perfmodel.training.result import TrainingStep
from perfmodel.training.scaling import Scaling
from perfmodel.training.search import Search
from perfmodel.training.step_rows import MFU_NOTE, columns_of, mfu_note, plan_text, row_of, term_columns, terms_report
from perfmodel.training.study import Study
from perfmodel.training.timeline import pipeline_facts

#: titles of further tables
_CHANGED = "Changes after which it fits, the fastest first"
_LONG_RUN = "A long run with failures"
_MIXED = "A step of unequal GPUs, the batch in proportion to their rates"
_SHARES = (Column("gpu", "GPUs"), Column("samples", "sequences"))
_SCALING = (
    Column("gpus", "GPUs"),
    Column("batch"),
    Column("time_s", "step", "s"),
    Column("tokens_per_s_per_gpu", "tokens/s/GPU"),
    Column("speedup", unit="x"),
    Column("efficiency", unit="fraction"),
)
_RUN = (
    Column("fraction", "useful", "fraction"),
    Column("interval_s", "checkpoint every", "s", show=format_long),
    Column("pause_s", "pause", "s", show=format_long),
    Column("write_s", "safe after", "s", show=format_long, drop=2),
    Column("checkpoint_bytes", "checkpoint", "B", drop=1),
    Column("mtbf_s", "time between failures", "s", show=format_long),
    Column("failures_per_day", "failures a day", digits=2, drop=3),
)
#: terms of a step that one sentence tells
_TERMS_TOLD = 3


@report.register
def _(study: Study, *, context: Mapping[str, Any] | None = None, title: str = "") -> Report:
    """Return training steps as a report.

    Parameters
    ----------
    context : facts for JSON.
    title : heading for people, instead of model, machine and plan.
    """
    steps = study.steps
    several = len(steps) > 1
    first = steps[0]
    clusters = len({step.cluster.name for step in steps}) > 1
    where = "" if clusters else f" on {first.cluster.name}"
    name = f"{first.model}{where}, {first.plan.dtype}, {first.framework}"
    heading = title or (name if several else f"{name}: {plan_text(first.plan, first.dp)}")
    more = ({"terms": terms_report(steps, clusters)} if study.explain else {}) | (
        {} if several else _details(study, first)
    )
    facts = {} if several else {"pipeline": _pipeline(first)}
    rows = [row_of(step, study) for step in steps]
    if study.mixed:
        more["mixed"] = report(study.mixed)
    return Report(
        "train",
        columns_of(rows, mfu_note(steps), plans=several, clusters=clusters),
        rows,
        {**(context or {}), **facts},
        (*_notes(study), *dict.fromkeys(note for step in steps for note in step.notes)),
        heading,
        more,
    )


def _pipeline(step: TrainingStep) -> dict[str, Any]:
    """Return what the passes of the micro batches follow from."""
    return pipeline_facts(
        step.plan, step.micro_batches, step.stage_forward_s, step.stage_backward_s, step.stage_weights_s
    )


@report.register
def _(step: TrainingStep, **options: Any) -> Report:
    """Return one training step as a report."""
    return report(Study((step,), explain=True), **options)


def _details(study: Study, step: TrainingStep) -> dict[str, Report]:
    """Return the tables of a single step: its memory, what makes it fit, what a long run of it loses."""
    more: dict[str, Report] = {}
    if step.memory:
        more["memory"] = report(step.memory)
    if study.changes:
        more["changes"] = _changes(study)
    if study.goodput:
        more["run"] = report(study.goodput)
    return more


def _largest(step: TrainingStep) -> str:
    """Return what most of a step goes into: what to look at first."""
    largest = sorted(step.terms_s.items(), key=lambda item: -item[1])[:_TERMS_TOLD]
    told = ", ".join(f"{name} {100 * time / step.time_s:.0f} %" for name, time in largest if time > 0)
    return f"Most of the step: {told} (--explain says what these are, `perfmodel search train` ranks plans)."


def _notes(study: Study) -> list[str]:
    """Return what the figures mean and what does not fit."""
    notes: list[str] = []
    if len(study.steps) == 1:
        step = study.steps[0]
        if not study.explain:
            notes.append(_largest(step))
        tokens, time = study.run_tokens(step), study.run_s(step)
        if tokens is not None and time is not None:
            cost = study.cost(step, time)
            price = f", {_money(cost)} in the currency of the price" if cost is not None else ""
            per_step = study.cost(step, step.time_s)
            each = f" A step costs {_money(per_step)}." if per_step is not None else ""
            asked = "" if study.tokens is not None else " (20 a parameter)"
            notes.append(f"{format_large(tokens)} tokens{asked} take {_run_text(time)}{price}.{each}")
    if study.refused:
        count = len(study.refused)
        which = f"{count} combinations cannot run and are" if count > 1 else "1 combination cannot run and is"
        notes.append(f"{which} left out{', the first' if count > 1 else ''}: {study.refused[0]}")
    lacking = [step.memory for step in study.steps if step.memory and not step.memory.fits]
    if any(memory.host_fits for memory in lacking):
        notes.append("(!) does not fit in the memory of a GPU.")
    if full := [memory for memory in lacking if not memory.host_fits]:
        least = min(full, key=lambda memory: memory.host_bytes)
        notes.append(
            f"(!) does not fit in the memory of a host: {format_binary(least.host_bytes)} of "
            f"{format_binary(least.sharing_host * least.host_capacity_bytes)}."
        )
    if any(step.memory and step.memory.tight for step in study.steps):
        notes.append("Memory is tight: with fragmentation it may not fit, or the allocator gives blocks back.")
    return notes


def _run_text(time_s: float) -> str:
    """Return the time of a run for people, in the largest unit that it fills once."""
    for unit_s, unit in ((DAY_S, "days"), (HOUR_S, "hours"), (60.0, "minutes")):
        if time_s >= unit_s:
            return f"{time_s / unit_s:,.1f} {unit}"
    return format_si(time_s, "s", 3)


def _money(amount: float) -> str:
    """Return an amount of money for people: whole from 1,000 on, below it with four significant digits."""
    return f"{amount:,.0f}" if amount >= 1000 else format_si(amount, "")


def _changes(study: Study) -> Report:
    """Return the changes after which a step fits."""
    rows = [
        {
            "rank": rank,
            "change": change.text,
            "time_s": change.time_s,
            "memory_total_bytes": change.total_bytes,
            "tight": change.tight,
        }
        for rank, change in enumerate(study.changes, start=1)
    ]
    notes = ("(~) fits only if memory does not fragment.",) if any(change.tight for change in study.changes) else ()
    return Report("train", _CHANGES, rows, notes=notes, title=_CHANGED)


def _changed_memory(row: Mapping[str, Any]) -> str:
    return f"{format_binary(row['memory_total_bytes'])}{' (~)' if row['tight'] else ''}"


_CHANGES = (
    Column("rank", "#"),  # a change of several options may take two lines
    Column("change"),
    Column("time_s", "step", "s"),
    Column("memory_total_bytes", "memory", "iB", show_row=_changed_memory),
    Column("tight", shown=False),
)


@report.register
def _(
    found: Search,
    *,
    context: Mapping[str, Any] | None = None,
    price_per_gpu_hour: float | None = None,
    tokens: float | None = None,
) -> Report:
    """Return the set-ups of a search as a report.

    Parameters
    ----------
    context : facts for JSON.
    price_per_gpu_hour, tokens : for the cost of a step and of a run, as of `Study`.
    """
    several = len(found.clusters) > 1
    study = Study(tuple(each.step for each in found.best), tokens, price_per_gpu_hour)
    rows = [{"rank": each.rank, **row_of(each.step, study)} for each in found.best]
    left = ", ".join(f"{count:,} ({reason})" for reason, count in found.left_out.items())
    notes = [
        f"{found.considered:,} combinations, {found.fit:,} can run and fit" + (f"; left out: {left}." if left else "."),
        f"{found.equal_to_best:,} of them share rank 1: the interval cannot tell them from the best, also without what "
        "all steps of a laboratory share, which the one shown counts.",
        *_tight(found),
        *found.notes,
    ]
    if found.untried:
        notes.insert(0, f"Interrupted: {found.untried:,} combinations were not tried, and a better one may be there.")
    facts = {"considered": found.considered, "fit": found.fit, "left_out": dict(found.left_out),
             "equal_to_best": found.equal_to_best, "tight": found.tight, "untried": found.untried}  # fmt: skip
    where = found.clusters[0].name if not several else f"{len(found.clusters)} clusters"
    columns = _ranked_columns(rows, mfu_note(study.steps), clusters=several)
    title = f"Best set-ups of {found.model} on {where}"
    return Report("search train", columns, rows, {**(context or {}), **facts}, tuple(notes), title)


def _ranked_columns(rows: Sequence[Mapping[str, Any]], mfu: str, *, clusters: bool) -> tuple[Column, ...]:
    """Return the columns of ranked set-ups, with the cost of a run where there are prices."""
    columns = columns_of(rows, mfu, plans=True, clusters=clusters)
    priced = any("price_per_gpu_hour" in row for row in rows)
    return tuple(dataclasses.replace(one, shown=one.shown or (priced and one.key == "run_cost")) for one in columns)


def saved(table: Report) -> Report:
    """Return steps, set-ups or a scaling that were read from JSON as `train` or `search train` shows them."""
    if "weak" in table.context:
        return with_columns(table, _SCALING)
    if not any("plan" in row for row in table.rows):
        return table
    mfu = next((note for note in table.notes if note.startswith(MFU_NOTE)), "")
    clusters = len({(row["gpus"], row["hardware"]) for row in table.rows}) > 1
    if table.command == "search train":
        return first_rows(with_columns(table, _ranked_columns(table.rows, mfu, clusters=clusters)), "set-ups")
    columns = columns_of(table.rows, mfu, plans=len(table.rows) > 1, clusters=clusters)
    further = {"changes": (_CHANGED, _CHANGES), "run": (_LONG_RUN, _RUN), "mixed": (_MIXED, _SHARES)}
    stages = [key for key in ("first", "last", "fullest") if any(key in row for row in _rows_of(table, "memory"))]
    memory = memory_columns({key: f"{key} stage" for key in stages})
    terms = ("Terms, on the GPU that sets the pace", term_columns(plans=len(table.rows) > 1, clusters=clusters))
    return with_columns(with_tables(table, **further, memory=(MEMORY_TITLE, memory), terms=terms), columns)


def _rows_of(table: Report, key: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a further table; none where there is no such table."""
    return table.more[key].rows if key in table.more else ()


def _tight(found: Search) -> list[str]:
    """Return which set-ups of a search fragmentation of memory may stop."""
    if not found.tight:
        return []
    fit, are = ("fits", "is") if found.tight == 1 else ("fit", "are")
    text = f"{found.tight:,} {fit} only if memory does not fragment" + (
        "." if found.tight == found.fit else f", and {are} not ranked."
    )
    if found.fastest_tight is None:
        return [text]
    step, best = found.fastest_tight.step, found.best[0].step
    gain = best.time_s / best.tokens * step.tokens / step.time_s - 1.0
    return [f"{text} The fastest, {plan_text(step.plan, step.dp)}, is {gain:.1%} faster than the best."]


@report.register
def _(scaled: Scaling, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return strong or weak scaling as a report."""
    rows = [
        {**row_of(step), "speedup": speedup, "efficiency": efficiency}
        for step, speedup, efficiency in zip(scaled.steps, scaled.speedups, scaled.efficiencies, strict=True)
    ]
    law = "Gustafson" if scaled.weak else "Amdahl"
    notes = (f"Serial fraction, fitted ({law}): {scaled.serial_fraction:.2%}.",)
    title = f"{'Weak' if scaled.weak else 'Strong'} scaling of {scaled.steps[0].model}"
    facts = {"serial_fraction": scaled.serial_fraction, "weak": scaled.weak}
    return Report("train", _SCALING, rows, {**(context or {}), **facts}, notes, title)


@report.register
def _(run: Goodput, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return what failures and checkpoints leave of a long run."""
    title = f"A long run on {run.gpus} GPUs with failures"
    return Report("train", _RUN, [dataclasses.asdict(run)], context or {}, (), title)


@report.register
def _(loading: Loading, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return whether loaders keep up."""
    columns = (
        Column("needed_per_s", "needed a second"),
        Column("loaded_per_s", "loaded a second"),
        Column("starved_s", "waits a step", "s"),
        Column("starves_after_s", "after", "s", show=format_long),
        Column("workers_needed", "loaders needed"),
    )
    return Report("train", columns, [dataclasses.asdict(loading)], context or {}, (), "Loading of samples")


@report.register
def _(step: MixedStep, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the shares of unequal GPUs."""
    names = step.names or tuple(map(str, range(len(step.samples))))
    rows = [{"gpu": name, "samples": share} for name, share in zip(names, step.samples, strict=True)]
    notes = (
        f"The step takes {format_si(step.time_s, 's')}; with equal shares {format_si(step.equal_s, 's')}, "
        f"{step.speedup:.3g} times as long.",
        f"{format_si(step.exchange_s, 's')} of each are the exchange of gradients between the clusters."
        if step.exchange_s
        else "The exchange of gradients between the clusters is left out: --nic gives the network of a GPU.",
    )
    facts = {"time_s": step.time_s, "equal_s": step.equal_s, "bound_s": step.bound_s,
             "exchange_s": step.exchange_s}  # fmt: skip
    return Report(
        "train",
        _SHARES,
        rows,
        {**(context or {}), **facts},
        notes,
        _MIXED,
    )
