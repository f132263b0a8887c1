"""Letters that the usual font lacks: a font that has them, or code points, and never boxes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import font_manager
from matplotlib.text import Text

import perfmodel as pm
from perfmodel.render.plots import fonts
from perfmodel.render.plots.figure import new_figure, printable, save_figure
from perfmodel.render.plots.labels import LabelPlacer

#: "matrix product", which DejaVu Sans lacks, and a letter that of the fonts of matplotlib STIXGeneral has
CHINESE, CIRCLED = "矩阵乘法", "Ⓐ"


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fonts._family_with.cache_clear()
    monkeypatch.setattr(fonts, "_used", {})
    monkeypatch.setattr(fonts, "_written", set())
    yield
    fonts._family_with.cache_clear()


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only matplotlib's own fonts, whatever this machine has."""
    stix = font_manager.findfont("STIXGeneral")
    monkeypatch.setattr(fonts, "candidates", lambda: (("STIXGeneral", stix),))


@pytest.mark.usefixtures("shipped")
def test_letters_that_no_font_has_are_code_points(tmp_path: Path) -> None:
    assert printable(f"{CHINESE} fp16", 80) == r"\u77e9\u9635\u4e58\u6cd5 fp16"
    figure = new_figure(2, 1)
    figure.text(0.1, 0.5, f"{CHINESE} alpha β")  # past `printable`
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of each box
        note = save_figure(figure, tmp_path / "a.png")
    assert [text.get_text() for text in figure.findobj(Text) if text.get_text()] == [
        r"\u77e9\u9635\u4e58\u6cd5 alpha β"
    ]
    assert note == r"letters that no font of this machine has (4) are written as code points, as \u4e58"
    assert save_figure(new_figure(2, 1), tmp_path / "b.png") == "", "it is said once"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
@pytest.mark.usefixtures("shipped")
def test_a_font_that_has_the_letters_draws_them(tmp_path: Path, suffix: str) -> None:
    before = list(mpl.rcParams["font.sans-serif"])

    def drawn(text: str) -> bytes:
        figure = new_figure(2, 1)
        figure.text(0.1, 0.5, text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert save_figure(figure, tmp_path / f"a.{suffix}") == ""
        return (tmp_path / f"a.{suffix}").read_bytes()

    # two letters of one font differ, two boxes do not
    assert drawn(CIRCLED) != drawn("Ⓑ")
    assert mpl.rcParams["font.sans-serif"] == before, "the settings of the program stay"


@pytest.mark.usefixtures("shipped")
@pytest.mark.filterwarnings("ignore:Glyph")
def test_labels_have_the_width_of_the_font_that_draws_them() -> None:
    axes = new_figure(4, 3).subplots()
    placer = LabelPlacer(axes)
    box = placer.width_of(CIRCLED, 10)
    printable(CIRCLED, 10)
    assert placer.width_of(CIRCLED, 10) != box


def test_no_font_of_boxes_or_pictures_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("Last Resort" in family for family, _ in fonts.candidates())
    monkeypatch.setattr(fonts, "candidates", lambda: (("gone", "/nowhere/gone.ttf"),))
    assert fonts.written_out(CIRCLED) == r"\u24b6"


@pytest.mark.usefixtures("shipped")
def test_a_plot_of_such_names_says_so_once(perfmodel: Any, tmp_path: Path) -> None:
    ops = [word for name in (CHINESE, "乘法二") for word in ("gemm", "m=1024", "n=1024", "k=1024", f"name={name}")]
    ran = perfmodel("analyze", *ops, "--on", "h100", "--plot", tmp_path / "a.png")
    assert ran.code == 0
    assert ran.err.count("written as code points") == 1
    assert CHINESE in ran.out, "the table has the letters"


def test_a_roofline_in_a_notebook_draws_the_same() -> None:
    figure = pm.roofline_plot("h100", [pm.predict(pm.Gemm(m=64, n=64, k=64, name=CHINESE), "h100")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figure._repr_png_()
