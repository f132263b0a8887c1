"""Plots of rankings, scenarios and projections: bars and intervals end where the figures say."""

from __future__ import annotations

import math

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.investment.scenario import parse_scenario
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.render.plots import plot
from perfmodel.render.plots.diagnosis.bars import LEFT_OUT, USUAL, WORSE, Bar, bars_plot

GEMM = pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")
ABC = Profile((ProfileEntry("a", 0.050), ProfileEntry("b", 0.030), ProfileEntry("c", 0.020)), source="abc.csv")


def bars(figure, gid):
    return [bar for bar in figure.axes[0].patches if bar.get_gid() == gid]


def lengths(figure, gid):
    return [bar.get_width() for bar in bars(figure, gid)]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_ranking_shows_what_each_candidate_saves_of_its_targets_in_order():
    plan = [
        pm.Candidate("half of a", ("a",), 2.0, dev_days=1),
        pm.Candidate("instead", ("a",), 1.2, dev_days=1, excludes=("half of a",)),
        pm.Candidate("slower b", ("b",), 0.5, dev_days=1),
    ]
    ranking = pm.rank_candidates(ABC, plan)
    figure = plot(ranking)
    assert lengths(figure, "after") == pytest.approx([row.time_saved_s for row in ranking.rows])
    assert lengths(figure, "before") == pytest.approx([row.time_s for row in ranking.rows])
    places = [bar.get_y() for bar in bars(figure, "after")]
    assert places == sorted(places)
    bottom, top = figure.axes[0].get_ylim()
    assert bottom > top  # the first one is on top
    assert [figure_color(bar) for bar in bars(figure, "after")][1:] == [
        figure_color_of(LEFT_OUT),
        figure_color_of(WORSE),
    ]
    low, _ = figure.axes[0].get_xlim()
    assert low <= -0.03  # 30 ms become 60
    assert any("1.333x, saves 25 ms, 1 day" in text for text in texts(figure))


def figure_color(bar):
    return bar.get_facecolor()[:3]


def figure_color_of(color):
    from matplotlib.colors import to_rgb

    return to_rgb(color)


def test_the_parts_of_a_profile_without_a_bound_have_no_full_bar():
    profile = Profile((ProfileEntry("product", 1e-3, 1, op=GEMM), ProfileEntry("unknown", 2e-3)))
    ranking = pm.headroom(profile, hardware="h100")
    figure = plot(ranking)
    assert len(bars(figure, "before")) == 2
    (saved,) = lengths(figure, "after")
    assert saved == pytest.approx(next(row.time_saved_s for row in ranking.rows if not math.isnan(row.time_saved_s)))
    assert any(text.startswith("2 ms, no bound") for text in texts(figure))


def test_a_kernel_of_a_ranking_keeps_its_number_where_its_name_is_shortened():
    names = [
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
        "void cub::Scan()",
    ]
    profile = Profile(tuple(ProfileEntry(name, (2 - place) * 1e-3) for place, name in enumerate(names)))
    shown = texts(plot(pm.headroom(profile, hardware="h100")))
    assert {"1  vectorized_elementwise_kernel<AddFunctor>", "2  Scan"} <= set(shown)


def test_a_projection_shows_both_machines_and_the_interval_there():
    profile = Profile((ProfileEntry("product", 1e-3, 1, op=GEMM),))
    projection = pm.project(profile, "a100-sxm4-80gb", "h100-sxm5-80gb")
    figure = plot(projection)
    rows = [projection.whole, *projection.parts]
    assert lengths(figure, "before") == pytest.approx([row.time_s for row in rows])
    assert lengths(figure, "after") == pytest.approx([row.projected_time_s for row in rows])
    drawn = [line.get_xdata() for line in figure.axes[0].get_lines() if line.get_gid() == "interval"]
    assert [tuple(ends) for ends in drawn] == [(row.low, row.high) for row in rows]
    _, right = figure.axes[0].get_xlim()
    assert right >= projection.whole.high


def test_what_time_stamps_leave_of_nothing_has_no_row():
    entries = (ProfileEntry("product", 1e-3, 1, op=GEMM), ProfileEntry("[idle: delayed start]", 5e-10, 1, "host"))
    projection = pm.project(Profile(entries), "a100-sxm4-80gb", "h100-sxm5-80gb")
    assert len(lengths(plot(projection), "before")) == 2  # the whole and the product
    found = pm.report(projection)
    assert [row["name"] for row in found.shown_rows] == ["product"]
    assert [row["name"] for row in found.rows] == [entry.name for entry in entries]
    assert found.unlisted == "Shorter parts: 1; JSON and CSV have them."


def test_the_shorter_parts_are_one_row():
    profile = Profile(tuple(ProfileEntry(f"k{n}", (n + 1) * 1e-3, 1, op=GEMM) for n in range(30)))
    projection = pm.project(profile, "a100-sxm4-80gb", "h100-sxm5-80gb")
    figure = plot(projection)
    assert sum(lengths(figure, "before")[1:]) == pytest.approx(projection.whole.time_s)
    assert "rest: 10 parts" in texts(figure)


def test_a_scenario_shows_the_run_after_each_step():
    steps = [
        {"name": "half", "kind": "scale", "targets": ["a"], "speedup": 2, "claimed_total_time": "10 ms"},
        {"name": "gone", "kind": "remove", "targets": ["c"]},
    ]
    result = pm.what_if(ABC, parse_scenario({"steps": steps}))
    figure = plot(result)
    assert lengths(figure, "after") == pytest.approx([0.100, 0.075, 0.055])
    assert lengths(figure, "before") == pytest.approx([0.100, 0.075])  # before each step
    assert figure_color(bars(figure, "after")[1]) == figure_color_of(WORSE)  # its claim contradicts the profile


def test_an_interval_of_a_step_is_in_the_legend():
    step = {"name": "there", "kind": "hardware", "hardware": "h100"}
    moved = pm.what_if(ABC, parse_scenario({"steps": [step]}), hardware="a100-sxm4-80gb")
    kept = pm.what_if(ABC, parse_scenario({"steps": [{"name": "gone", "kind": "remove", "targets": ["c"]}]}))
    named = [[text.get_text() for text in plot(result).legends[0].get_texts()] for result in (moved, kept)]
    assert ["after the step, with its 80 % interval" in names for names in named] == [True, False]


def test_less_than_a_nanosecond_is_no_time_as_in_tables():
    short = Profile((ProfileEntry("a", 0.050), ProfileEntry("b", 1e-13)))
    assert any("saves 0 s" in text for text in texts(plot(pm.headroom(short))))


def test_where_no_time_is_left_nothing_is_drawn():
    with pytest.raises(UsageError, match="no time"):
        plot(pm.project(Profile((ProfileEntry("a", 0.0),)), "a100-sxm4-80gb", "h100-sxm5-80gb"))


@pytest.mark.parametrize(
    "words",
    [
        ("roi", "examples/profile_abc.csv", "--plan", "examples/plan_abc.toml"),
        ("roi", "examples/profile_abc.csv"),
        ("roi", "examples/deployment_naive.toml"),
        ("project", "examples/profile_abc.csv", "--from", "a100-sxm4-80gb", "--to", "h100"),
        ("whatif", "examples/profile_gpt2.csv", "examples/gpt2_scenario.toml", "--on", "a100-sxm4-40gb"),
    ],
)
def test_the_commands_draw_their_plot(perfmodel, words, tmp_path, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    drawn = tmp_path / "plot.svg"
    ran = perfmodel(*words, "--plot", drawn)
    assert ran.code in (0, 1), ran.err
    assert "<svg" in drawn.read_text(encoding="utf-8")
    wrong = perfmodel(*words, "--plot", tmp_path / "plot.txt")
    assert (wrong.code, wrong.out) == (2, "")


def test_the_longest_text_beside_a_bar_is_not_cut(check_texts):
    bars_of = [Bar("a", "0.0008156x, saves -500 ms, 0.001 days, -9.05e-06 a day and more", 1.0, -0.5, heading=True)]
    check_texts(bars_plot(["title"], bars_of, "time", [("saved", USUAL, 1.0)]))


def test_the_end_of_a_shorter_time_before_is_seen_within_the_time_after():
    (line,) = [
        line
        for line in bars_plot(["t"], [Bar("a", "", 1.0, 3.0)], "time", [("x", USUAL, 1.0)], beside=False).axes[0].lines
        if line.get_gid() == "end"
    ]
    assert list(line.get_xdata()) == [1.0, 1.0]


def test_a_legend_names_what_is_drawn():
    ranking = pm.headroom(Profile((ProfileEntry("unknown", 2e-3),)), hardware="h100")
    assert [text.get_text() for text in plot(ranking).legends[0].get_texts()] == ["time of the part"]
