"""How pages lie in a window of any width and on paper: no text over another or cut off, nothing wider than the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.cli.app import run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[3] / "examples"
TRACES = Path(__file__).parents[2] / "diagnosis" / "ranks" / "traces"
PAGES: dict[str, tuple[str | Path, ...]] = {
    "analyze": ("analyze", "gemm", "m=1..8192", "n=4096", "k=4096", "softmax", "rows=64..8192", "cols=4096",
                "--on", "h100,a100,l40s"),
    "huge": ("analyze", "gemm", "m=1e12", "n=1e12", "k=1e12", "softmax", "rows=1", "cols=1", "--on", "h100"),
    "train": ("train", "llama-3.1-8b", "--on", "h100", "--gpus", "8", "--pp", "4", "--batch", "16"),
    "serve": ("serve", "llama-3.1-8b", "--on", "h100", "--concurrency", "1..64"),
    "ranks": ("diagnose", *sorted((TRACES / "ddp_4_slow_rank").glob("*.json.gz"))),
    "whatif": ("whatif", EXAMPLES / "training_plan.toml", EXAMPLES / "training_path.toml"),
    "roi": ("roi", EXAMPLES / "profile_abc.csv", "--plan", EXAMPLES / "plan_abc.toml"),
    "validate": ("validate", EXAMPLES / "records" / "h100-sxm5-80gb_2026-11-23.json.gz", "--by", "op,dtype"),
    "runs": ("validate", EXAMPLES / "published" / "training.csv"),
    "compare": ("compare", EXAMPLES / "records" / "h100-sxm5-80gb_2026-11-23.json.gz",
                EXAMPLES / "records" / "h200-sxm-141gb_2026-11-23.json.gz", "--across", "all"),
    "project": ("project", EXAMPLES / "profile_gpt2.csv", "--from", "a100-sxm4-40gb", "--to", "h100"),
}  # fmt: skip
#: texts of drawings that lie over another or reach out of their drawing, and parts that reach out of the window
FAULTS = """() => {
  const found = [], whole = document.documentElement;
  if (whole.scrollWidth > whole.clientWidth) found.push(`the page is ${whole.scrollWidth} wide`);
  for (const svg of document.querySelectorAll("svg")) {
    const own = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(one => one.textContent && one.getClientRects().length);
    const boxes = texts.map(one => one.getBoundingClientRect()), named = at => texts[at].textContent;
    boxes.forEach((box, at) => {
      const across = box.left >= own.left - 2 && box.right <= own.right + 2;
      if (!across || box.top < own.top - 3 || box.bottom > own.bottom + 3) found.push(`cut: ${named(at)}`);
      boxes.slice(at + 1).forEach((next, after) => {
        const x = Math.min(box.right, next.right) - Math.max(box.left, next.left);
        const y = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
        if (x > 2 && y > 3) found.push(`${named(at)} over ${named(at + 1 + after)}`);
      });
    });
  }
  return found;
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, line in PAGES.items():
        made[name] = folder / f"{name}.html"
        assert run([*map(str, line), "-o", str(made[name])]) == 0
    return made


@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("name", PAGES)
def test_no_text_lies_over_another(opened: Callable[..., Any], pages: dict[str, Path], name: str, width: int) -> None:
    tab = opened(pages[name].as_uri(), viewport={"width": width, "height": 900})
    assert tab.evaluate(FAULTS) == []


def test_every_roof_has_its_name(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    tab = opened(pages["analyze"].as_uri())
    texts = tab.locator("section[data-kind=roofline] svg text.halo").all_text_contents()
    machines = [pm.hardware(name) for name in ("h100", "a100", "l40s")]
    assert len(texts) == 2 * len(machines)
    for machine in machines:
        assert sum(text.startswith(machine.name) for text in texts) == 2, "its peak and its bandwidth"


@pytest.mark.parametrize(
    ("name", "key"), [("analyze", "bound_time_s"), ("analyze", "predicted_time_s"), ("train", "time_s")]
)
def test_how_a_number_was_made_fits_a_telephone(
    opened: Callable[..., Any], pages: dict[str, Path], name: str, key: str
) -> None:
    tab = opened(pages[name].as_uri(), viewport={"width": 390, "height": 850})
    tab.locator(f"button.origin[data-origin*={key}]").last.click()
    dialog = "document.querySelector('dialog')"
    assert tab.evaluate(f"{dialog}.open")
    assert tab.evaluate(f"{dialog}.scrollWidth <= {dialog}.clientWidth")


def _print(tab: Any) -> None:
    """Do what a browser does before it prints."""
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")


def _pixels(tab: Any, canvas: str, test: str) -> int:
    """Return how many opaque pixels of a canvas pass a test of r, g and b."""
    return int(
        tab.evaluate(
            f"""() => {{
              const canvas = document.querySelector("{canvas}");
              const all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
              let count = 0;
              for (let at = 0; at < all.length; at += 4) {{
                const [r, g, b, a] = all.slice(at, at + 4);
                if (a > 200 && ({test})) count += 1;
              }}
              return count;
            }}"""
        )
    )


def test_stacked_bars_are_printed(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    # the groups of the bars and the rows of controls, which paper leaves out, were of one class
    tab = opened(pages["serve"].as_uri())
    _print(tab)
    bars = tab.locator("section[data-kind=terms] g.bar rect")
    assert bars.count() > 10
    assert bars.first.is_visible()
    assert tab.evaluate("getComputedStyle(document.querySelector('.swatch')).printColorAdjust") == "exact"


def test_the_legend_of_operators_is_printed(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    tab = opened(pages["analyze"].as_uri())
    _print(tab)
    assert tab.get_by_role("button", name="softmax", exact=True).first.is_visible()


@pytest.mark.parametrize("canvas", ["section[data-kind=pipeline] canvas", "section[data-kind=lines] canvas"])
def test_a_dark_page_is_printed_dark_on_light(opened: Callable[..., Any], pages: dict[str, Path], canvas: str) -> None:
    tab = opened(pages["train"].as_uri(), color_scheme="dark")
    light = "Math.abs(r - 230) < 3 && Math.abs(g - 237) < 3 && Math.abs(b - 243) < 3"  # --ink of dark pages
    assert _pixels(tab, canvas, light) > 20
    _print(tab)
    assert _pixels(tab, canvas, light) == 0
    assert _pixels(tab, canvas, "r + g + b < 60") > 20, "texts in black"
    assert tab.evaluate("document.documentElement.scrollWidth") <= tab.viewport_size["width"]
    section, drawn = (tab.locator(where).first.bounding_box() for where in (canvas.split()[0], canvas))
    assert drawn["x"] + drawn["width"] <= section["x"] + section["width"] + 1
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert _pixels(tab, canvas, light) > 20


def test_drawings_are_made_for_paper(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    tab = opened(pages["serve"].as_uri(), viewport={"width": 1400, "height": 900})
    box = "document.querySelector('section[data-kind=front] svg').getAttribute('viewBox').split(' ')[2]"
    on_screen = float(tab.evaluate(box))
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    on_paper = float(tab.evaluate(box))
    assert on_paper < 720 < on_screen
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert float(tab.evaluate(box)) == on_screen


def test_what_is_folded_up_is_printed(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    tab = opened(pages["analyze"].as_uri())
    notes = tab.locator("header details li").first
    assert notes.is_hidden()
    _print(tab)
    assert notes.is_visible()
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert notes.is_hidden()


def test_texts_on_colours_can_be_read(opened: Callable[..., Any], pages: dict[str, Path]) -> None:
    # numbers of micro batches: white on orange has a contrast of 3.9 to 1, black one of 5.4
    tab = opened(pages["train"].as_uri(), viewport={"width": 1400, "height": 900})
    assert _pixels(tab, "section[data-kind=pipeline] canvas", "r + g + b < 30") > 20
