"""Deviations of machines and libraries that were left out: limiting cases, and Student's t."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_deviations import (
    OF_ENGINE,
    OF_VENDOR,
    LeftOut,
    LibraryOffset,
    LibraryOffsets,
    growth,
    library_deviations,
    link_deviation,
    machine_deviation,
    offsets_of,
    usual_libraries,
    usual_machines,
)
from fit_hierarchy import ASSUMED_STRENGTH, assumed, student_quantile

from perfmodel.prediction.uncertainty import Z80


def machine(name: str, offset: float, part: str = "", rows: int = 20) -> LeftOut:
    """Return a machine whose rows of the first regime all lie at one offset."""
    return LeftOut(name, np.full(rows, offset), np.zeros(rows, dtype=np.intp), part)


def test_without_offsets_the_usual_deviation_holds_with_a_wider_tail() -> None:
    expected = 0.2 * student_quantile(ASSUMED_STRENGTH) / Z80
    assert machine_deviation([], [assumed(0.2)])[0] == pytest.approx(expected)
    assert expected > 0.2


def test_many_offsets_determine_the_deviation() -> None:
    drawn = np.random.default_rng(0).normal(0.0, 0.3, 2000)
    found = machine_deviation([machine(str(index), u) for index, u in enumerate(drawn)], [assumed(0.05)])
    assert found[0] == pytest.approx(0.3, rel=0.05)


def test_machines_of_one_part_are_one_offset() -> None:
    pair = [machine("h100", 0.1, "hopper"), machine("h200", 0.3, "hopper")]
    assert offsets_of(pair, 0) == [pytest.approx((0.05) ** 0.5)]
    assert offsets_of([machine("a100", 0.1, rows=3)], 0) == []  # too few rows for an offset


def test_two_parts_differ_from_each_other_by_twice_the_variance_between_parts() -> None:
    both = [machine("hbm", 0.2), machine("gddr", -0.2)]
    assert offsets_of(both, 0) == [pytest.approx(0.2 / 2**0.5)] * 2
    # of many parts, the mean of the others is what they have in common
    assert offsets_of([machine(str(part), 0.2) for part in range(100)], 0)[0] == pytest.approx(0.2, rel=0.01)


def usual(*families: list[LeftOut], kind: str = "streams") -> float:
    """Return the deviation that is usual in the first regime among families of a kind, beside another kind's."""
    others = [[machine(name, offset) for name, offset in (("c", 0.1), ("d", -0.1), ("e", 0.1), ("f", -0.1))]]
    return float(usual_machines({"streams": families, "products": others})[0].kind(kind).variance.value ** 0.5)


def test_a_kind_without_machines_takes_what_is_usual_in_all() -> None:
    assert usual() == pytest.approx(0.1 * 0.75**0.5, rel=0.03)
    assert usual(kind="nobody's") == pytest.approx(usual())


def test_families_that_are_alike_count_their_parts_once() -> None:
    family = [machine("a", 0.4), machine("b", -0.4)]
    once, thrice = usual(family), usual(family, family, family)
    assert once == pytest.approx(thrice)
    assert usual() < once < 0.4 / 2**0.5


def of_library(own: LibraryOffsets, *others: LibraryOffsets) -> float:
    """Return the deviation of a library in the last regime, of an engine's own kernels."""
    expected = usual_libraries({"engines": others}, {"engines": OF_ENGINE}, "library")
    usual = {"library": [regime.kind("engines") for regime in expected]}
    return library_deviations(own, others, others, usual)["library"][2]


def offsets(size: float, *, count: int = 3, spread: float = 0.0) -> LibraryOffsets:
    """Return some libraries that all differ by a size; where one is not known, its shapes spread by more."""
    known = tuple(LibraryOffset(f"{index}", "h100", 2, size, 0.01) for index in range(count))
    return LibraryOffsets(known, tuple(LibraryOffset(o.library, "h100", 2, size, 0.01 + spread) for o in known))


def test_libraries_that_are_alike_differ_by_less_than_is_assumed_and_others_by_more() -> None:
    near, nothing, far = map(of_library, (offsets(0.0), LibraryOffsets(), offsets(1.0)))
    assert near < nothing < far
    assert nothing == pytest.approx(OF_ENGINE["library"][2] * student_quantile(ASSUMED_STRENGTH) / Z80)


def test_a_library_differs_from_few_others_by_more_than_from_many() -> None:
    # of two, the difference is that of both; of many, the mean of the others is that of all
    expected = (ASSUMED_STRENGTH * OF_ENGINE["library"][2] ** 2 + 0.3**2 / 2) / (ASSUMED_STRENGTH + 1)
    two = expected**0.5 * student_quantile(ASSUMED_STRENGTH + 1) / Z80
    assert of_library(offsets(0.3, count=2)) == pytest.approx(two)
    assert of_library(offsets(0.3, count=500)) == pytest.approx(0.3, rel=0.02)


def test_a_family_with_one_library_takes_what_libraries_differ_by_in_families_like_it() -> None:
    alone = of_library(LibraryOffsets())
    assert of_library(LibraryOffsets(), offsets(0.0)) < alone < of_library(LibraryOffsets(), offsets(1.0))
    grown = of_library(LibraryOffsets(), offsets(0.3, spread=0.04))
    assert grown**2 == pytest.approx(of_library(LibraryOffsets(), offsets(0.3)) ** 2 + 0.04)


def test_a_kind_of_one_library_differs_as_others_usually_do() -> None:
    before = {"engines": OF_ENGINE, "products": OF_VENDOR}
    expected = usual_libraries({}, before, "library")[1].kind("streams")
    assert expected.variance.value == pytest.approx((0.16**2 + 0.10**2) / 2)
    known = usual_libraries({"engines": [offsets(1.0)]}, before, "library")[2].kind("streams")
    assert known.variance.value > usual_libraries({}, before, "library")[2].kind("streams").variance.value


def test_shapes_of_machines_that_are_not_known_spread_by_the_difference_of_variances() -> None:
    def spread(deviation: float) -> list[LeftOut]:
        rows = np.random.default_rng(1).normal(0.1, deviation, 4000)
        return [LeftOut("a100", rows, np.zeros(rows.size, dtype=np.intp))]

    assert growth([(spread(0.5), spread(0.3))])[0] == pytest.approx(0.16, rel=0.05)
    assert growth([(spread(0.1), spread(0.3))]) == growth([]) == (0.0, 0.0, 0.0)


def over(link: str, offset: float) -> LeftOut:
    return LeftOut(link or "other", np.full(20, offset), np.zeros(20, dtype=np.intp), link=link)


def test_without_two_kinds_of_link_the_assumed_deviation_holds_with_a_wider_tail() -> None:
    found = link_deviation([over("", 9.0)], [0.1], [assumed(0.4)])
    assert found[0] == pytest.approx(0.4 * student_quantile(ASSUMED_STRENGTH) / Z80)


def test_two_kinds_of_link_differ_by_one_number_less_what_machines_do() -> None:
    # 0.5^2 - 0.3^2 = 0.4^2, one degree of freedom beside those of the prior
    found = link_deviation([over("pcie", 0.5), over("nvlink", -0.5)], [0.3], [assumed(0.4)])
    assert found[0] == pytest.approx(0.4 * student_quantile(ASSUMED_STRENGTH + 1.0) / Z80)
