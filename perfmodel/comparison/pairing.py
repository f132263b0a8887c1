"""Benchmark records as rows that can be paired, and the pairs of two sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.comparison.noise import Centre
from perfmodel.errors import InputFileError, UsageError, unknown_name

OK = "ok"
#: the keys that identify a row
IDENTITY = ("op", "name", "dimensions", "dtype", "kernel", "cache", "timing", "device")
#: two rows that differ only in these are one thing measured in two ways; to compare them needs ``--across``
SETTINGS = ("device", "dtype", "cache", "timing")
#: the values of ``--across``
ACROSS = (*SETTINGS, "kernel")
Key = tuple[str, ...]


@dataclass(frozen=True)
class BenchRow:
    """One row of a record: what was measured (``identity``, with the keys of `IDENTITY`), and its time or status.

    Attributes
    ----------
    identity : values of the keys of `IDENTITY`.
    centre : the middle of its samples, or None.
    status, reason : "ok", or why there is no time.
    """

    identity: Mapping[str, str]
    centre: Centre | None
    status: str = OK
    reason: str = ""

    def key(self, without: Iterable[str] = ()) -> Key:
        """Return the values that identify the row, without some of the keys of `IDENTITY`."""
        return tuple(self.identity.get(name, "") for name in IDENTITY if name not in without)

    @property
    def label(self) -> str:
        """The row in a sentence: "gemm m=64 n=64 k=64 fp16 torch.matmul"."""
        words = (self.identity.get(name, "") for name in ("name", "dimensions", "dtype", "kernel"))
        return " ".join(word for word in words if word) or self.identity.get("op", "")

    @property
    def outcome(self) -> str:
        """The status with its reason: "wrong: off by 3"."""
        if self.status == OK and self.centre is None:
            return "without a time"
        return f"{self.status}: {self.reason}" if self.reason else self.status


@dataclass(frozen=True)
class BenchRun:
    """One benchmark record.

    Attributes
    ----------
    place : the file.
    rows : in the file's order.
    kind : "cuda", "cpu", or "" if the record does not state it.
    busy : what the record states about other work on the CPU during the run, or "".
    facts : versions and clocks; differences between the sides are noted.
    free : settings that the tool chose for each row, and that may therefore differ.
    """

    place: str
    rows: tuple[BenchRow, ...]
    kind: str = ""
    busy: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pair:
    """One row on both sides: the first row of each, and the centres of all its repeats."""

    before: BenchRow
    after: BenchRow
    centres_before: tuple[Centre, ...]
    centres_after: tuple[Centre, ...]


@dataclass(frozen=True)
class Pairs:
    """The pairs of two sides.

    Attributes
    ----------
    pairs : rows with a time on both sides.
    only_before, only_after : rows of one side alone.
    lost : rows with a time before and only a status after: wrong, failed, out of memory.
    gained : rows with only a status before and a time after.
    untimed : rows with only a status on both sides.
    """

    pairs: tuple[Pair, ...]
    only_before: tuple[BenchRow, ...]
    only_after: tuple[BenchRow, ...]
    lost: tuple[tuple[BenchRow, BenchRow], ...]
    gained: tuple[tuple[BenchRow, BenchRow], ...] = ()
    untimed: tuple[tuple[BenchRow, BenchRow], ...] = ()


def pair_rows(before: Sequence[BenchRun], after: Sequence[BenchRun], across: Sequence[str] = ()) -> Pairs:
    """Return the rows that both sides have, those that only one side has, and those without a time on some side.

    Rows are paired by all keys of `IDENTITY`. The rest is paired without the keys of ``across``, and without settings
    that the tool chose in all records, if that leaves one row on each side. Equal rows of one side are repeats of one
    measurement.

    Parameters
    ----------
    before, after : the records of each side, at least one.
    across : keys of `ACROSS` that may differ within a pair.

    Raises
    ------
    UsageError
        If rows differ only in device, dtype, cache or timing, and ``across`` does not name it.
    InputFileError
        If no row of one side is on the other.
    """
    free = frozenset(SETTINGS).intersection(*(run.free for run in (*before, *after)))
    alike = tuple(name for name in SETTINGS if name in free or name in across)
    first, second = _by_key(before), _by_key(after)
    matched = {key: key for key in first if key in second}
    matched |= _relaxed(first, second, matched, alike)
    if "kernel" in across:  # last, since several kernels of one operator are not one to one
        matched |= _relaxed(first, second, matched, (*alike, "kernel"))
    _check_settings(first, second, matched, alike, across)
    pairs: list[Pair] = []
    lost: list[tuple[BenchRow, BenchRow]] = []
    gained: list[tuple[BenchRow, BenchRow]] = []
    untimed: list[tuple[BenchRow, BenchRow]] = []
    for key, other in matched.items():
        a, b = first[key], second[other]
        if a.centres and b.centres:
            pairs.append(Pair(a.row, b.row, a.centres, b.centres))
        else:
            (lost if a.centres else gained if b.centres else untimed).append((a.row, b.row))
    if not matched:
        places = f"{before[0].place} and {after[0].place}"
        raise InputFileError(
            "the records have no row in common.",
            place=places,
            remedy=f"The first has {_sample(first)}, the second {_sample(second)}.",
        )
    taken = set(matched.values())
    only_before = tuple(side.row for key, side in first.items() if key not in matched)
    only_after = tuple(side.row for key, side in second.items() if key not in taken)
    return Pairs(tuple(pairs), only_before, only_after, tuple(lost), tuple(gained), tuple(untimed))


@dataclass(frozen=True)
class _Side:
    """All equal rows of one side."""

    row: BenchRow
    centres: tuple[Centre, ...]


def check_across(names: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of `ACROSS` that are named, all of them for "all".

    Raises
    ------
    UsageError
        For any other name.
    """
    for name in names:
        if name not in (*ACROSS, "all"):
            raise unknown_name("setting", name, (*ACROSS, "all"), place="--across")
    return ACROSS if "all" in names else tuple(dict.fromkeys(names))


def check_repeats(runs: Sequence[BenchRun]) -> None:
    """Raise an InputFileError for a repeat that has the very rows of another run: it would show no drift at all."""
    for number, run in enumerate(runs):
        same = next((other for other in runs[:number] if run.rows and other.rows == run.rows), None)
        if same is not None:
            what = "is named twice" if same.place == run.place else f"is a copy of {same.place}"
            raise InputFileError(f"{what}, which is no repeat.", place=run.place, remedy="Give a run of its own.")


def _by_key(runs: Sequence[BenchRun]) -> dict[Key, _Side]:
    """Return the rows of one side by their keys."""
    groups: dict[Key, list[BenchRow]] = {}
    for run in runs:
        for row in run.rows:
            groups.setdefault(row.key(), []).append(row)
    sides = {}
    for key, rows in groups.items():
        measured = [row for row in rows if row.status == OK and row.centre is not None]
        centres = tuple(row.centre for row in measured if row.centre is not None)
        sides[key] = _Side(measured[0] if measured else rows[0], centres)
    return sides


def _relaxed(
    first: Mapping[Key, _Side], second: Mapping[Key, _Side], matched: Mapping[Key, Key], across: Sequence[str]
) -> dict[Key, Key]:
    """Return further matches without the keys of ``across``, as far as they are one to one."""
    if not across:
        return {}
    taken = set(matched.values())
    left = _grouped(((key, side.row) for key, side in first.items() if key not in matched), across)
    right = _grouped(((key, side.row) for key, side in second.items() if key not in taken), across)
    return {
        keys[0]: right[short][0] for short, keys in left.items() if len(keys) == 1 and len(right.get(short, ())) == 1
    }


def _grouped(rows: Iterable[tuple[Key, BenchRow]], without: Iterable[str]) -> dict[Key, list[Key]]:
    """Return key without some parts -> full keys."""
    grouped: dict[Key, list[Key]] = {}
    for key, row in rows:
        grouped.setdefault(row.key(without), []).append(key)
    return grouped


def _check_settings(
    first: Mapping[Key, _Side],
    second: Mapping[Key, _Side],
    matched: Mapping[Key, Key],
    alike: Sequence[str],
    across: Sequence[str],
) -> None:
    """Raise if an unmatched row of each side differ only in settings, and in some that may not differ."""
    taken = set(matched.values())
    right = _grouped(((key, side.row) for key, side in second.items() if key not in taken), SETTINGS)
    for key, side in first.items():
        short = side.row.key(SETTINGS)
        if key in matched or short not in right:
            continue
        other = second[right[short][0]].row
        differing = [name for name in SETTINGS if side.row.identity.get(name) != other.identity.get(name)]
        forbidden = [name for name in differing if name not in alike]
        if forbidden:
            listed = "; ".join(f"{name}: {_named(side.row, name)} and {_named(other, name)}" for name in differing)
            options = " ".join(f"--across {name}" for name in [*across, *forbidden])
            raise UsageError(
                f"{side.row.label} was measured in two ways ({listed}).",
                remedy=f"Measure both in the same way, or compare them anyway with {options}.",
            )


def _named(row: BenchRow, name: str) -> str:
    return row.identity.get(name) or "not stated"


def _sample(sides: Mapping[Key, _Side]) -> str:
    """Return the first rows of one side, for a message."""
    labels = [side.row.label for side in sides.values()]
    return ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "") or "no row"


def differing_facts(before: Sequence[BenchRun], after: Sequence[BenchRun]) -> list[str]:
    """Return a sentence for each version or clock in which the two sides differ."""
    sentences = []
    for name in dict.fromkeys(name for run in (*before, *after) for name in run.facts):
        a, b = _values(before, name), _values(after, name)
        if a and b and set(a) != set(b):
            sentences.append(f"{name}: {', '.join(a)} before, {', '.join(b)} after")
    return sentences


def _values(runs: Sequence[BenchRun], name: str) -> list[str]:
    return list(dict.fromkeys(run.facts[name] for run in runs if name in run.facts))
