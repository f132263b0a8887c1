"""The process groups of a job, as the traces of its ranks list them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfmodel.diagnosis.ranks.summary import RankSummary


class Groups:
    """The process groups of a job with at least two ranks; those of the same ranks are one.

    A group is called by its name, with its ranks where several groups of the job have that name.

    Parameters
    ----------
    ranks : of the job.
    numbers : their numbers.
    """

    def __init__(self, ranks: Sequence[RankSummary], numbers: Sequence[int]) -> None:
        listed = [group for rank in ranks for group in rank.groups if len(group.ranks) > 1]
        self._of_name: dict[str, set[tuple[int, ...]]] = {}
        for group in listed:
            self._of_name.setdefault(group.name, set()).add(group.ranks)
        self._own = [{group.name: group.ranks for group in rank.groups} for rank in ranks]
        index = {number: place for place, number in enumerate(numbers)}
        self._size: dict[str, int] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        for members, name in {group.ranks: group.name for group in reversed(listed)}.items():
            label = self._label(name, members)
            self._size[label] = len(members)
            self._members[label] = tuple(index[number] for number in members if number in index)
        self._of = [
            tuple(label for label, members in self._members.items() if place in members) for place in index.values()
        ]

    def _label(self, name: str, members: tuple[int, ...]) -> str:
        return name if len(self._of_name.get(name, ())) < 2 else f"{name} of ranks {spans(members)}"

    def named(self, rank: int, name: str) -> str:
        """Return what the group is called that a rank has under a name; the name itself where no trace lists it."""
        members = self._own[rank].get(name)
        return name if members is None else self._label(name, members)

    def of(self, rank: int) -> tuple[str, ...]:
        """Return the groups of a rank."""
        return self._of[rank]

    def alone(self, rank: int) -> bool:
        """Return whether a rank has a group of which no other rank is given."""
        return any(len(self._members[label]) < 2 for label in self._of[rank])

    def size(self, label: str) -> int | None:
        """Return how many ranks a group has, with those that are not given; None where no trace lists it."""
        return self._size.get(label)

    def shared(self) -> dict[str, tuple[int, ...]]:
        """Return the given ranks, as indices, of each group of which at least two are given."""
        return {label: members for label, members in self._members.items() if len(members) > 1}


def spans(numbers: Iterable[int]) -> str:
    """Return numbers as "3, 5-9, 12": hundreds of ranks fit into a line.

    >>> spans([3, 5, 6, 7, 8, 9, 12])
    '3, 5-9, 12'
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)
