"""One self-contained HTML file: the data as JSON beside the script that draws it; no request leaves the page.

Everything that comes from a profile is foreign text. It is embedded as JSON in which no ``<`` occurs, and the script
sets it as text only, so that a kernel called ``</script><img ...>`` shows as its name. A content security policy keeps
the page from loading anything.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from perfmodel.core.report import finite

#: views of one input, in the order in which they are shown
Views = Sequence[Mapping[str, Any]]
_FORMAT = 1


def page(inputs: Sequence[Views], *, title: str) -> str:
    """Return the page of one input, or of two side by side (before, after).

    Equal inputs give equal pages.

    Parameters
    ----------
    inputs : the views of each input, from `perfmodel.render.html.views`.
    title : of the page.
    """
    data = json.dumps(
        {"format": _FORMAT, "title": title, "inputs": [[finite(view) for view in views] for views in inputs]},
        ensure_ascii=False, allow_nan=False, separators=(",", ":"),
    )  # fmt: skip
    parts = {
        "title": html.escape(title),
        "style": asset("page.css"),
        "data": data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        "d3": asset("vendor/d3.min.js"),
        "script": asset("page.js"),
    }
    head, *rest = asset("page.html").split("@@")
    return head + "".join(parts.get(piece, piece) for piece in rest)


@functools.cache
def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return files("perfmodel.render.html").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")
