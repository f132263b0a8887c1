"""Messages of errors."""

import pytest

from perfmodel.errors import InputFileError


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\x0c", "\u2028"])
def test_a_message_is_one_line_whatever_a_name_in_it_holds(break_):
    error = InputFileError(f"The column 'a{break_}b' is unknown.", place="x.csv", remedy="Use a.")
    assert str(error) == "x.csv: The column 'a b' is unknown. Use a."
