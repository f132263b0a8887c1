"""The public API: every name loads, type checkers see the same names, and objects show themselves in notebooks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perfmodel as pm


@pytest.mark.parametrize("name", [name for name in dir(pm) if name != "__version__"])
def test_every_public_name_loads(name: str) -> None:
    assert getattr(pm, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(pm.__file__).read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(dir(pm)) - {"__version__"}


def test_a_wrong_name_is_an_attribute_error() -> None:
    for name in ("Gem", "predct"):
        with pytest.raises(AttributeError, match=name):
            getattr(pm, name)


def test_a_machine_shows_its_ceilings_in_a_notebook() -> None:
    a100 = pm.hardware("a100-sxm4-40gb")
    assert repr(a100) == "<Hardware 'a100-sxm4-40gb'>"
    shown = a100._repr_html_()
    assert "<td>fp16 tensor</td>" in shown
    assert "<td>312 TFLOP/s</td>" in shown
