"""The tables of rankings: what a narrow terminal keeps, and what is left out."""

from perfmodel.core.report import report
from perfmodel.investment.economics import Economics
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry

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
    assert short.notes[0] == "1 more rows (30 ms) are not shown."
    assert not any("not shown" in note for note in report(ranking, top=2).notes)
    assert len(report(ranking).rows) == 2
