"""`perfmodel show`: a record reads back into every format."""

from __future__ import annotations

ANALYZE = ("analyze", "gemm", "m=64/4096", "n=4096", "k=4096", "dtype=fp16", "--on", "a100-sxm4-40gb")


def test_a_record_shows_the_table_that_was_printed(perfmodel, tmp_path):
    record = tmp_path / "record.json"
    assert perfmodel(*ANALYZE, "-o", record).code == 0
    shown, printed = perfmodel("show", record), perfmodel(*ANALYZE)
    assert shown.code == 0
    assert shown.out.splitlines()[1:] == printed.out.splitlines()[1:]


def test_json_is_the_record_again(perfmodel, tmp_path):
    record = tmp_path / "record.json"
    perfmodel(*ANALYZE, "-o", record)
    assert perfmodel("show", record, "--format", "json").out == record.read_text()
    perfmodel("show", record, "-o", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == perfmodel(*ANALYZE, "--format", "csv").out


def test_what_is_no_record_is_an_input_error(perfmodel, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    ran = perfmodel("show", tmp_path / "a.json")
    assert (ran.code, "is not a record" in ran.err) == (3, True)


def test_the_result_of_another_command_is_shown_and_makes_a_page(perfmodel, tmp_path):
    listed = tmp_path / "listed.json"
    assert perfmodel("models", "gpt2", "-o", listed).code == 0
    assert "gpt2-xl" in perfmodel("show", listed).out
    page = tmp_path / "page.html"
    assert perfmodel("report", listed, "-o", page).code == 0
    assert "gpt2-xl" in page.read_text()


def test_a_record_with_strange_notes_is_an_input_error(perfmodel, tmp_path):
    record = tmp_path / "record.json"
    perfmodel(*ANALYZE, "-o", record)
    record.write_text(record.read_text().replace('"notes": [', '"notes": 5, "more": ['))
    assert perfmodel("show", record).code == 3
