"""Tables between other output: where they start and end, and rows that were cut off."""

import pytest

from perfmodel.errors import InputFileError
from perfmodel.formats.text.stream import tables


def is_header(cells):
    return "Name" in cells and "Time" in cells


def found(text, **options):
    return [(table.banner, table.line, table.rows) for table in tables(text, is_header, place="p.txt", **options)]


def test_tables_stand_between_banners_and_output():
    text = "hello\n\nKernels:\nName,Time\nf,1\n\nnot a row\nCopies:\nName\tTime\ng\t2\nh\t3\n"
    assert found(text) == [("Kernels:", 4, [(5, ["f", "1"])]), ("Copies:", 9, [(10, ["g", "2"]), (11, ["h", "3"])])]


def test_a_header_ends_the_table_above_it():
    assert [rows for _, _, rows in found("Name,Time\nf,1\nName,Time\ng,2\n")] == [[(2, ["f", "1"])], [(4, ["g", "2"])]]


def test_columns_stand_under_a_rule_of_dashes():
    text = "Name    Time  Note\n------  ----  ----\nf int      1\ng          2  x\n"
    assert found(text)[0][2] == [(3, ["f int", "1", ""]), (4, ["g", "2", "x"])]


def test_a_blank_line_ends_a_table_unless_only_headers_do():
    text = "Name,Time\nf,1\n\ng,2\n"
    assert found(text)[0][2] == [(2, ["f", "1"])]
    assert found(text, blank_ends=False)[0][2] == [(2, ["f", "1"]), (4, ["g", "2"])]


@pytest.mark.parametrize("lines", [2, 100, 200])
def test_a_quoted_name_may_span_lines(lines):
    # names of templates are printed over several lines; 200 are more than any has
    name = "\n".join(f"part{i}" for i in range(lines))
    assert found(f'Name,Time\n"{name}",1\nf,2\n')[0][2] == [(2, [name, "1"]), (2 + lines, ["f", "2"])]


def test_a_quote_that_is_never_closed_names_its_line_and_not_the_end_of_the_file():
    # the next quote is 300 lines below: joining these would swallow 300 rows
    rows = "".join(f"f{i},1\n" for i in range(300))
    with pytest.raises(InputFileError, match=r"p.txt: line 2 opens a quote that is not closed"):
        found(f'Name,Time\n"open,1\n{rows}late",2\n')


def test_a_row_with_too_few_or_too_many_cells_is_an_error():
    for row in ('"f"', '"f",1,2', "7,8,9"):
        text = f"Name,Time,Other,More\n{row}\n" if row == '"f",1,2' else f"Name,Time\n{row}\n"
        if row == '"f"':
            assert found(text)[0][2] == []  # one cell is a line of something else
            continue
        with pytest.raises(InputFileError, match="line 2 has 3 cells, but there are"):
            found(text)


def test_lines_of_other_output_between_rows_are_counted():
    (table,) = tables("Name,Time\nf,1\nprogress\ng,2\n", is_header, place="")
    assert (table.foreign, len(table.rows)) == (1, 2)
