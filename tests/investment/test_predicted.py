"""Which terms of a predicted step a change changes, by hand."""

import pytest

from perfmodel.investment.predicted import changed_terms

BEFORE = {"products": 3.0, "exchange": 1.0, "sends": 0.0}


def test_what_a_change_adds_counts_with_what_it_makes_shorter():
    targets, time_s = changed_terms(BEFORE, {"products": 2.0, "exchange": 1.0, "compression": 0.5})
    assert (targets, time_s) == (("products",), pytest.approx(2.5))


def test_a_change_without_effect_names_the_longest_term():
    assert changed_terms(BEFORE, BEFORE) == (("products",), 3.0)
    # a ten-thousandth of the whole is no change
    assert changed_terms(BEFORE, BEFORE | {"exchange": 1.0003})[0] == ("products",)
    assert changed_terms(BEFORE, BEFORE | {"exchange": 1.0005})[0] == ("exchange",)


def test_a_term_that_took_no_time_is_no_target():
    assert changed_terms(BEFORE, BEFORE | {"sends": 1.0}) == (("products",), 4.0)
