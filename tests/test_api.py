"""The public API: every name loads, type checkers see the same names, and machines are taken by name."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import types
import warnings
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.operators import class_names

NAMES = [name for name in dir(pm) if name != "__version__"]
GEMM = {"m": 512, "n": 512, "k": 512, "dtype": "fp16"}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(pm, name) is not None


def test_no_package_hides_a_public_name() -> None:
    for module in pkgutil.iter_modules(pm.__path__, "perfmodel."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert [name for name in NAMES if isinstance(getattr(pm, name), types.ModuleType)] == []


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(pm.__file__).read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    # a new operator need not be listed: it is then typed as Any
    assert seen | set(class_names()) == set(NAMES)


def test_a_wrong_name_is_an_attribute_error() -> None:
    for name in ("Gem", "predct"):
        with pytest.raises(AttributeError, match=name):
            getattr(pm, name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("forward", "forward_pass"),
        ("against", "compare_diagnoses"),
        ("limits", "profile_limits"),
        ("rank", "rank_candidates"),
        ("fuse", "fuse_operators"),
        ("read_path", "read_scenario"),
    ],
)
def test_an_old_name_works_for_one_release_with_a_warning(old: str, new: str) -> None:
    assert old not in dir(pm)
    for _ in range(2):  # the warning is not lost when the name has been loaded
        with pytest.warns(DeprecationWarning, match=rf"perfmodel\.{old} is now perfmodel\.{new}"):
            assert getattr(pm, old) is getattr(pm, new)


def test_a_new_name_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert callable(pm.rank_candidates)


def _takers() -> list[str]:
    """The public functions with a parameter ``hardware``."""
    functions = [name for name in NAMES if inspect.isfunction(getattr(pm, name))]
    return [name for name in functions if "hardware" in inspect.signature(getattr(pm, name)).parameters]


def test_each_function_that_takes_a_machine_takes_a_name() -> None:
    takers = _takers()
    assert {"predict", "bound_time", "sweep", "predict_model", "diagnose", "headroom", "what_if"} <= set(takers)
    assert {"rank_candidates", "profile_limits", "roofline_plot"} <= set(takers)
    assert [name for name in takers if not getattr(pm, name).__module__.startswith("perfmodel.api.")] == []


def test_a_name_and_its_machine_give_the_same() -> None:
    op, a100 = pm.Gemm(**GEMM), pm.hardware("a100-sxm4-40gb")
    profile = pm.Profile([pm.ProfileEntry("aten::mm", 1e-3, 1, op=op)], source="made")
    scenario = {"steps": [{"name": "half", "kind": "scale", "targets": ["aten::mm"], "speedup": 2}]}
    calls = {
        "predict": lambda machine: pm.predict(op, machine).predicted_time_s,
        "bound_time": lambda machine: pm.bound_time(op, machine).time_s,
        "predict_model": lambda machine: pm.predict_model([op], machine).time_s,
        "sweep": lambda machine: [part.predicted_time_s for part in pm.sweep(op, machine)],
        "diagnose": lambda machine: pm.diagnose(profile, machine).limits[0].attainable_time_s,
        "profile_limits": lambda machine: pm.profile_limits(profile, machine)[0].attainable_time_s,
        "headroom": lambda machine: pm.headroom(profile, hardware=machine).rows[0].attainable_time_s,
        "rank_candidates": lambda machine: (
            pm.rank_candidates(profile, [pm.Candidate("c", ("aten::mm",), 2.0)], hardware=machine)
            .rows[0]
            .attainable_time_s
        ),
        "what_if": lambda machine: pm.what_if(profile, _scenario(scenario), machine).steps[0].total_time_s,
        "roofline_plot": lambda machine: [a.get_title() for a in pm.roofline_plot(machine, []).axes],
    }
    for name, call in calls.items():
        assert call("a100-sxm4-40gb") == call("A100-SXM4-40GB") == call(a100), name
        with pytest.raises(pm.UsageError, match="Did you mean"):
            call("a100-sxm4-40g")


def _scenario(document: object) -> object:
    from perfmodel.investment.scenario import parse_scenario

    return parse_scenario(document)


def test_any_result_has_a_report() -> None:
    prediction = pm.predict(pm.Gemm(**GEMM), "a100-sxm4-40gb")
    assert pm.report(prediction).rows[0]["hardware"] == "a100-sxm4-40gb"
    with pytest.raises(TypeError, match="int has no report"):
        pm.report(3)


def test_a_machine_shows_its_ceilings_in_a_notebook() -> None:
    a100 = pm.hardware("a100-sxm4-40gb")
    assert repr(a100) == "<Hardware 'a100-sxm4-40gb'>"
    shown = a100._repr_html_()
    assert "<td>fp16 tensor</td>" in shown
    assert "<td>312 TFLOP/s</td>" in shown
