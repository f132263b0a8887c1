"""Checked values of a document: what is read, and what is refused."""

import math

import pytest

from perfmodel.errors import InputFileError
from perfmodel.investment import fields


@pytest.mark.parametrize(
    ("read", "value", "result"),
    [
        (fields.text, "a", "a"),
        (fields.texts, "a", ("a",)),
        (fields.texts, ["a", "b"], ("a", "b")),
        (fields.number, -3, -3.0),
        (fields.number, 10**400, math.inf),
        (fields.positive, 1e-9, 1e-9),
        (fields.count, 3.0, 3),
        (fields.fraction, 1, 1.0),
        (fields.fraction, 0.5, 0.5),
        (fields.seconds, "12 ms", 0.012),
        (fields.seconds, "-12 ms", -0.012),
        (fields.seconds, "3s", 3.0),
        (fields.duration, "5 min", 300.0),
        (fields.duration, "0 s", 0.0),
    ],
)
def test_a_value_is_read(read, value, result):
    assert read(value, "key", "file") == result


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (fields.text, 3, "is not a text"),
        (fields.texts, 3, "is not a list of texts"),
        (fields.texts, ["a", 3], "is not a list of texts"),
        (fields.number, "3", "is not a number"),
        (fields.number, True, "is not a number"),
        (fields.positive, 0, "is 0"),
        (fields.positive, math.inf, "is inf"),
        (fields.positive, math.nan, "is nan"),
        (fields.count, 1.5, "is 1.5"),
        (fields.fraction, 1.001, "is 1.001"),
        (fields.fraction, 0, "is 0"),
        # 12 could be seconds or milliseconds
        (fields.seconds, 12, "without a unit"),
        (fields.seconds, "5", "without a unit"),
        (fields.seconds, "12", "without a unit"),
        (fields.seconds, "1.5 ", "without a unit"),
        (fields.seconds, "12 B", "is not in s"),
        (fields.duration, "-1 ms", "is '-1 ms'"),
    ],
)
def test_another_value_is_refused_with_its_key_and_place(read, value, said):
    with pytest.raises(InputFileError, match=f"^file: key.*{said}"):
        read(value, "key", "file")
