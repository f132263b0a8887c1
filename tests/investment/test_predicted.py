"""Which terms of a predicted step a change changes, by hand."""

import math

import pytest

from perfmodel.investment.predicted import changed_terms, predicted_step

BEFORE = {"products": 3.0, "exchange": 1.0, "sends": 0.0}


def test_what_a_change_adds_counts_with_what_it_makes_shorter():
    targets, time_s = changed_terms(BEFORE, {"products": 2.0, "exchange": 1.0, "compression": 0.5})
    assert (targets, time_s) == (("products",), pytest.approx(2.5))


def test_a_change_without_effect_names_the_longest_term():
    assert changed_terms(BEFORE, BEFORE) == (("products",), 3.0)
    # a ten-thousandth of the whole is no change
    assert changed_terms(BEFORE, BEFORE | {"exchange": 1.0003})[0] == ("products",)
    assert changed_terms(BEFORE, BEFORE | {"exchange": 1.0005})[0] == ("exchange",)


def test_time_that_only_moves_between_terms_is_not_saved_but_for_rounding():
    before = {"products": 0.7, "gaps": 0.1, "exchange": 0.3}
    moved = before | {"products": 0.6, "gaps": 0.2}
    assert changed_terms(before, moved) == (("products", "gaps"), math.fsum([0.7, 0.1]))


def test_a_term_that_took_no_time_is_no_target():
    assert changed_terms(BEFORE, BEFORE | {"sends": 1.0}) == (("products",), 4.0)


def test_a_step_of_a_predicted_run_by_hand():
    """4 s of an earlier 5 s become 3.5: 8 items take 3.5 s, of which the exchange alone is untouched."""
    after = {"products": 2.0, "exchange": 1.0, "compression": 0.5}
    found = predicted_step(
        2, "narrow", "dtype", 5.0, BEFORE, after, {"products", "compression"}, items=8, basis="b", interval_s=(3.0, 4.0)
    )
    assert (found.time_before_s, found.time_after_s, found.total_time_s) == (3.0, pytest.approx(2.5), 3.5)
    assert (found.step_speedup, found.speedup) == (pytest.approx(4 / 3.5), pytest.approx(5 / 3.5))
    assert (found.time_saved_s, found.throughput_per_s) == (pytest.approx(0.5), pytest.approx(8 / 3.5))
    # without its products it would take 1.5 s; without all that steps touch 1 s
    assert (found.bottleneck, found.bottleneck_fraction) == ("products", pytest.approx(2 / 3.5))
    assert (found.max_further_speedup, found.max_overall_speedup) == (pytest.approx(3.5 / 1.5), pytest.approx(5.0))
    assert (found.total_low_s, found.total_high_s) == (3.0, 4.0)
