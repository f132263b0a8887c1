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
_FORMAT = 2
#: the parts of the page's own script, in the order in which they need each other
_SCRIPTS = (
    "base", "origin", "heading", "table", "bars", "path", "roofline", "lines", "front", "candidates", "timeline",
    "pipeline", "judged", "start",
)  # fmt: skip


def page(
    inputs: Sequence[Views],
    *,
    title: str,
    machines: Mapping[str, Any] | None = None,
    pair: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of one input, or of two side by side (before, after).

    Equal inputs give equal pages.

    Parameters
    ----------
    inputs : the views of each input, from `perfmodel.render.html.views`.
    title : of the page.
    machines : the figures of the machines that the numbers rest on, from `perfmodel.render.html.machines`.
    pair : what changed from the first input to the second, from `perfmodel.render.html.pair`.
    """
    content = {
        "format": _FORMAT,
        "title": title,
        "inputs": [[finite(view) for view in views] for views in inputs],
        "machines": finite(machines or {"machines": {}, "sources": []}),
        "pair": finite(pair) if pair else None,
    }
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "style": asset("vendor/uPlot.min.css") + asset("page.css"),
        "data": data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        "libraries": f"{asset('vendor/d3.min.js')}\n{asset('vendor/uPlot.iife.min.js')}",
        "script": script(),
    }
    head, *rest = asset("page.html").split("@@")
    return head + "".join(parts.get(piece, piece) for piece in rest)


@functools.cache
def script() -> str:
    """Return the page's own script: its parts in one scope of their own."""
    return "\n".join(['"use strict";', "(() => {", *(asset(f"js/{name}.js") for name in _SCRIPTS), "})();"])


@functools.cache
def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return files("perfmodel.render.html").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")
