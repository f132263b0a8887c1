"""The group `search`: the best set-ups for a model, ranked, and what limits each."""

from __future__ import annotations

import typer

from perfmodel.cli import _search_serve, _search_train

app = typer.Typer(help="The best set-ups that fit, ranked, and what limits each.", no_args_is_help=True)
app.command("serve")(_search_serve.command)
app.command("train")(_search_train.command)
