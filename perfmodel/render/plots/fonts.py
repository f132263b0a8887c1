"""Letters that the usual font lacks, as of Chinese, Japanese or Korean names.

They have another font of the machine where one has them, and are written as code points where none has, since
matplotlib would draw boxes. Its settings stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

#: parts of the names of fonts with many letters, which are asked first
_LARGE = ("CJK", "Source Han", "WenQuanYi", "Noto Sans", "Unifont", "Arial Unicode")
#: has a box for every letter there is
_BOXES = "Last Resort"

#: families that drawn letters need beside the usual one, in the order in which they were needed
_used: dict[str, None] = {}
#: letters that were written as code points since somebody asked
_written: set[str] = set()


def written_out(text: str) -> str:
    r"""Return a text of which each letter can be drawn: those that no font of this machine has as code points.

    >>> written_out("sgemm_\u0378")  # no letter has this code point
    'sgemm_\\u0378'
    """
    if text.isascii():
        return text
    return "".join(letter if _is_drawn(letter) else ascii(letter)[1:-1] for letter in text)


def take_note() -> str:
    """Return which letters were written as code points since the last call, in a sentence, or ""."""
    letters = "".join(sorted(_written))
    _written.clear()
    if not letters:
        return ""
    first = ascii(letters[0])[1:-1]
    return f"letters that no font of this machine has ({len(letters)}) are written as code points, as {first}"


def give_letters(text: Text) -> None:
    """Give a text of a figure the fonts that its letters need, and write out those that no font has."""
    if not text.get_text().isascii():
        text.set_text(written_out(text.get_text()))
        text.set_fontfamily(with_fallbacks(text.get_fontfamily()))


def with_fallbacks(families: Sequence[str]) -> list[str]:
    """Return the families of a text, and behind them those that letters of `written_out` need."""
    return list(dict.fromkeys((*families, *_used)))


def _is_drawn(letter: str) -> bool:
    """Return whether a font has a letter, and note which."""
    if letter.isspace() or ord(letter) in _codes(font_manager.findfont(font_manager.FontProperties())):
        return True
    family = _family_with(letter)
    if family:
        _used.setdefault(family)
    else:
        _written.add(letter)
    return bool(family)


@functools.lru_cache(maxsize=4096)
def _family_with(letter: str) -> str:
    """Return the first family of fonts that has a letter, or ""."""
    return next((family for family, path in candidates() if ord(letter) in _codes(path)), "")


@functools.cache
def candidates() -> tuple[tuple[str, str], ...]:
    """Return family and file of the upright fonts of this machine, large ones first."""
    fonts = {font.name: font.fname for font in font_manager.fontManager.ttflist
             if font.style == "normal" and _BOXES not in font.name}  # fmt: skip
    return tuple(sorted(fonts.items(), key=lambda font: (not any(part in font[0] for part in _LARGE), font)))


@functools.lru_cache(maxsize=64)
def _codes(path: str) -> frozenset[int]:
    """Return the code points that a font has; none of one that is not drawn at any size, as one of pictures."""
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()
