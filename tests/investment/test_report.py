"""The tables of rankings: what a narrow terminal keeps, and what is left out."""

from perfmodel.core.report import report
from perfmodel.investment.economics import Economics
from perfmodel.investment.headroom import headroom
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.render.table import render

AB = Profile((ProfileEntry("a", 0.050), ProfileEntry("b", 0.030), ProfileEntry("c", 0.020)))
PLAN = (Candidate("A", ("a",), 2.0, dev_days=2), Candidate("B", ("b",), 3.0, dev_days=3))
MONEY = Economics(8, 10, 1000)


def test_a_narrow_table_keeps_the_figures_that_rank():
    """Without prices these are the time saved, the days and their ratio; with prices the money."""
    for economics, kept in ((None, True), (MONEY, False)):
        columns = {column.key: column for column in report(rank_candidates(AB, PLAN, economics)).columns}
        assert {key: columns[key].drop == 0 for key in ("time_saved_s", "dev_days", "roi_per_day")} == dict.fromkeys(
            ("time_saved_s", "dev_days", "roi_per_day"), kept
        )
        assert columns["quadrant"].shown is not kept
        assert {columns[key].drop for key in ("name", "overall_speedup", "payback_days", "net_value", "verdict")} == {0}


def test_rows_that_are_left_out_are_counted_with_their_time():
    ranking = rank_candidates(AB, PLAN)
    short = report(ranking, top=1)
    assert [row["name"] for row in short.rows] == ["A"]
    assert short.notes[0] == "1 more row (30 ms) is not shown."
    assert not any("not shown" in note for note in report(ranking, top=2).notes)
    assert len(report(ranking).rows) == 2


def test_the_time_of_entries_that_several_rows_change_is_not_summed():
    """Three ways of changing 80 of 100 ms would be 240 ms of them."""
    again = [Candidate(name, ("a", "b"), factor, dev_days=2) for name, factor in (("C", 1.1), ("D", 1.2), ("E", 1.3))]
    assert report(rank_candidates(AB, again), top=1).notes[0] == "2 more rows are not shown."


def test_the_ceiling_of_parts_is_explained_where_the_column_is():
    parts = headroom(AB).report()
    for width in (100, 38):
        text = render(parts, width=width)
        assert ("Ceiling: this part removed." in text) == ("ceiling" in text.partition("verdict")[0])
    assert "ceiling" not in render(parts, width=38)
