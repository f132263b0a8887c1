"""Nested check: each machine, and each library, out of the fit and out of the interval."""

from __future__ import annotations

import sys
import time

import numpy as np
import open_tables
from fit_latency import *

from perfmodel.prediction.latency import model
from perfmodel.prediction.latency.family import generation, kin, vendor
from perfmodel.prediction.predict import floor_time


def judge_groups(family, groups, tables_of, hardware):
    out = []
    for g in groups:
        known = tables_of(g.view.library, g.op.dtype)
        floor = floor_time(g.op, hardware, g.view.cache) if False else 0.0
        e = model._estimate(family, g.op, g.machine, known, g.view, floor, "")
        t = np.broadcast_to(e.time_s, g.time_s.shape)
        lo = np.broadcast_to(e.low_s, t.shape)
        hi = np.broadcast_to(e.high_s, t.shape)
        out.append((g.view.library, t / g.time_s, (lo <= g.time_s) & (g.time_s <= hi), hi / lo))
    return out


def shipped(family, machines, groups):
    from perfmodel.accuracy.calibration import Fitted
    from perfmodel.accuracy.fit import Fit
    from perfmodel.prediction.latency.tables import default_tables

    made = {}
    base = typical(family).values
    levels = ["generic"]
    for level in (vendor, kin, generation):
        levels += sorted({level(machines[m]) for m in groups})
    for name in levels:
        if name in made or family.name not in default_tables(name):
            continue
        t = default_tables(name)[family.name]
        values = {**base, **t.without_library}
        names = {c.name for c in family.all_constants}
        fit = Fit(
            {**values, **t.constants},
            tuple(names - set(t.constants) - {n for v in t.libraries.values() for n in v}),
            {},
            0.0,
            0,
        )
        libs = {l: Fit({**values, **v}, tuple(names - set(v)), {}, 0.0, 0) for l, v in t.libraries.items()}
        made[name] = Shared(t, Fitted(fit, libs), (), 0)
    return FittedFamily(
        made, {m: machines[m].latency[family.name] for m in groups if family.name in machines[m].latency}
    )


def chain(machine, tables, states=("same generation", "never seen", "never seen")):
    found = []
    for level, state in ((generation, "same generation"), (kin, "never seen"), (vendor, "never seen")):
        if level(machine) in tables:
            found.append((state, tables[level(machine)]))
    own = bool(found)
    return [*found, ("never seen", tables["generic"])], own


def show(kind, name, who, res):
    r = np.concatenate([x[1] for x in res])
    c = np.concatenate([x[2] for x in res])
    w = np.concatenate([x[3] for x in res])
    print(
        f"{kind:8} {name:18} {who:18} n={r.size:6} mape={100 * np.abs(r - 1).mean():6.1f} med={100 * np.median(np.abs(r - 1)):6.1f} bias={np.median(np.log(r)):+.2f} cover={100 * c.mean():5.1f} width={np.median(w):.2f}",
        flush=True,
    )
    return np.abs(r - 1).mean(), c.mean(), float(np.median(w))


def run(names):
    opened = open_tables.load()
    fitted = open_tables.half(opened.calls, fitted=True)
    unseen = open_tables.half(opened.calls, fitted=False)
    data, families, origins = open_tables.by_family(fitted, opened.machines)
    other, _, _ = open_tables.by_family(unseen, opened.machines)
    all_full = {}
    for name in names:
        family, groups = families[name], data[name]
        t0 = time.perf_counter()
        full = shipped(family, opened.machines, groups)
        tables = {**{k: v.table for k, v in full.shared.items()}, **full.machines}
        for m in groups:
            hw = opened.machines[m]
            ch, ov = chain(hw, tables)
            show(
                "ondata",
                name,
                m,
                judge_groups(
                    family,
                    other[name][m],
                    lambda L, d: model.combined(family, [("calibrated", tables[m]), *ch], L, d, own_vendor=ov),
                    hw,
                ),
            )
        for m in groups:
            hw = opened.machines[m]
            rest = {k: v for k, v in groups.items() if k != m}
            if not rest:
                continue
            made = fit_family(family, rest, origins[name], opened.machines, near=full)
            t = made.tables(typical_deviation(made.shared["generic"].machines))
            ch, ov = chain(hw, t)
            show(
                "machine",
                name,
                m,
                judge_groups(
                    family,
                    other[name][m],
                    lambda L, d: model.combined(family, ch, L, d, model.measured_constants(family, hw), own_vendor=ov),
                    hw,
                ),
            )
        libs = {m: {g.view.library for g in rows} for m, rows in groups.items()}
        for L in sorted({l for s in libs.values() if len(s) > 1 for l in s}):
            rest = {m: kept for m, rows in groups.items() if (kept := [g for g in rows if g.view.library != L])}
            made = fit_family(family, rest, origins[name], opened.machines, near=full)
            t = made.tables(typical_deviation(made.shared["generic"].machines))
            for m in groups:
                rows = [g for g in other[name].get(m, []) if g.view.library == L]
                if not rows or m not in rest:
                    continue
                hw = opened.machines[m]
                ch, ov = chain(hw, t)
                start = model.combined(family, ch, "", "", own_vendor=ov)
                own = calibrate_family(family, rest[m], start, "", "")
                show(
                    "library",
                    name,
                    f"{L} {m}",
                    judge_groups(
                        family,
                        rows,
                        lambda l, d: model.combined(family, [("calibrated", own.table), *ch], l, d, own_vendor=ov),
                        hw,
                    ),
                )
        print(name, f"{time.perf_counter() - t0:.0f} s")


if __name__ == "__main__":
    run(sys.argv[1:])
