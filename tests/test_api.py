"""The public API: every name loads, type checkers see the same names, and machines are taken by name."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import traceback
import types
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    seen = {alias.asname for node in imports for alias in node.names}
    # a new operator need not be listed: it is then typed as Any
    assert seen | set(class_names()) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "meant"), [("Gem", "Gemm"), ("GEMM", "Gemm"), ("RMSNorm", "RmsNorm"), ("predct", "predict")]
)
def test_a_wrong_name_is_an_attribute_error_that_suggests_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Did you mean '{meant}'\\?$") as refused:
        getattr(pm, name)
    shown = traceback.format_exception_only(refused.value)
    assert "".join(shown).count("Did you mean") == 1  # Python's own suggestion does not repeat it


def test_a_command_with_another_name_in_python_is_told() -> None:
    for command, names in pm._COMMANDS.items():
        with pytest.raises(AttributeError, match=f"The command `{command}` is {names}"):
            getattr(pm, command)
        for name in re.findall(r"pm\.(\w+)", names):
            assert callable(getattr(pm, name))


def test_dimensions_without_names_are_told_the_names() -> None:
    with pytest.raises(
        pm.UsageError, match=r"^gemm: m, n, k are missing\. Add m=\.\.\. \(rows of A and C\)"
    ) as refused:
        pm.Gemm(4096, 4096, 4096)
    assert isinstance(refused.value, TypeError)
    with pytest.raises(pm.UsageError, match=r"^gemm: dimensions are given by name\. Write name=value\."):
        pm.Gemm(4096, m=1, n=2, k=3)


def test_a_name_unlike_any_has_no_suggestion() -> None:
    for name in ("zzz", "_private", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(pm, name)


def test_everything_that_is_listed_can_be_imported_at_once() -> None:
    names: dict[str, Any] = {}
    exec("from perfmodel import *", names)
    assert set(NAMES) <= set(names)


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
            call("a100-smx4-40gb")


def _scenario(document: object) -> object:
    from perfmodel.investment.scenario import parse_scenario

    return parse_scenario(document)


OP = r"is no operator\. Write pm\.Gemm\(m=\.\.\., n=\.\.\., k=\.\.\.\)\."
MACHINE = r'hardware: .* is no machine\. Give a name of the catalog, "h100", the path of a spec file, or'
PROFILE = r"profile: .* is no profile\. Write pm\.read_profile\("
LLAMA = "llama-3.1-8b"


def _plan() -> Any:
    return pm.TrainingPlan(batch=8, seq=2048)


def _cluster() -> Any:
    return pm.Cluster("h100", gpus=8)


def _profile() -> Any:
    return pm.Profile([pm.ProfileEntry("aten::mm", 1e-3, 1)], source="made")


#: a call with an argument of a wrong type, and what its message says: place, what was given, what to write
MISUSES: dict[str, tuple[Callable[[], Any], str]] = {
    "predict a name": (lambda: pm.predict("gemm", "h100"), f"op: 'gemm' {OP}"),
    "predict a class": (lambda: pm.predict(pm.RmsNorm, "h100"), r"Write pm\.RmsNorm\(rows=\.\.\., cols=\.\.\.\)"),
    "predict nothing": (lambda: pm.predict(None, "h100"), f"op: None {OP}"),
    "predict on nothing": (lambda: pm.predict(pm.Gemm(**GEMM), None), MACHINE),
    "predict on a number": (lambda: pm.predict(pm.Gemm(**GEMM), 3), MACHINE),
    "bound of a name": (lambda: pm.bound_time("gemm", "h100"), OP),
    "predict in nothing": (
        lambda: pm.predict(pm.Gemm(**GEMM), "h100", library=None),
        'library: None is no name of a library. Write library="vllm", or "" for any',
    ),
    "predict in several": (lambda: pm.predict(pm.Gemm(**GEMM), "h100", library=["vllm"]), "no name of a library"),
    "sweep a name": (lambda: pm.sweep("gemm", "h100"), OP),
    "sweep on nothing": (lambda: pm.sweep(pm.Gemm(**GEMM), None), MACHINE),
    "choose a number": (lambda: pm.choose(3, "h100"), f"problem: 3 {OP}"),
    "model of one operator": (
        lambda: pm.predict_model(pm.Gemm(**GEMM), "h100"),
        r"no list of operators\. Write \[pm\.",
    ),
    "model of a name": (lambda: pm.predict_model("gemm", "h100"), "operators: 'gemm' is no list of operators"),
    "model of names": (lambda: pm.predict_model(["gemm"], "h100"), f"operators: 'gemm' {OP}"),
    "fuse names": (lambda: pm.fuse_operators(["gemm", "gelu"], "h100"), f"operators: 'gemm' {OP}"),
    "cluster of nothing": (lambda: pm.Cluster(None, gpus=8), MACHINE),
    "cluster of a text's share": (
        lambda: pm.Cluster("h100", gpus=8, nic_efficiency="85%"),
        "nic_efficiency: '85%' is no number",
    ),
    "cluster of several steps": (
        lambda: pm.Cluster("h100", gpus=8, alpha_s=[1e-6]),
        r"alpha_s: \[1e-06\] is no number",
    ),
    "train nothing": (lambda: pm.train(None, _cluster(), _plan()), r"model: None is no model\. Give a name, \"llama"),
    "train on a name": (
        lambda: pm.train(LLAMA, "a100", _plan()),
        r"'a100' is no cluster\. Write pm\.Cluster\('a100', gpus",
    ),
    "train a dict": (
        lambda: pm.train(LLAMA, _cluster(), {"tp": 2}),
        r"plan: .* is no training plan\. Write pm\.Training",
    ),
    "search nowhere": (lambda: pm.search(LLAMA, [], _plan()), r"cluster: there is no cluster\. Write pm\.Cluster"),
    "search one size": (
        lambda: pm.search(LLAMA, _cluster(), _plan(), tp=2),
        r"tp: 2 is no list .*Write tp=\[1, 2, 4\]",
    ),
    "search a text": (lambda: pm.search(LLAMA, _cluster(), _plan(), tp="24"), "tp: '24' is no list of values"),
    "search words": (lambda: pm.search(LLAMA, _cluster(), _plan(), tp=["a"]), "tp: 'a' is no whole number"),
    "search the top of a text": (lambda: pm.search(LLAMA, _cluster(), _plan(), top="3"), "top: '3' is no whole number"),
    "search by a text": (lambda: pm.search(LLAMA, _cluster(), _plan(), workers="2"), "workers: '2' is no whole number"),
    "search an unknown way": (
        lambda: pm.search(LLAMA, _cluster(), _plan(), recompute=["some"]),
        "recompute: unknown recompute 'some'",
    ),
    "train in a number": (lambda: pm.train(LLAMA, _cluster(), _plan(), laboratory=3), "laboratory: 3 is no name"),
    "read a number": (lambda: pm.read_profile(3), r"path: 3 is no path\. Write \"trace\.json\.gz\""),
    "load a number": (lambda: pm.load_operator(3), r"name: 3 is no name of an operator\. Write \"gemm\""),
    "parse nothing": (
        lambda: pm.parse_operators(None),
        r"tokens: None is no list of words\. Write pm\.parse_operators\(",
    ),
    "parse numbers": (lambda: pm.parse_operators([3]), "tokens: 3 is no word"),
    "search one word": (
        lambda: pm.search(LLAMA, _cluster(), _plan(), recompute="full"),
        r"Write recompute=\['none', 'full'",
    ),
    "serve nothing": (lambda: pm.Deployment(None, "h100"), "model: None is no model"),
    "serve on nothing": (lambda: pm.Deployment(LLAMA, None), MACHINE),
    "a laboratory by number": (lambda: pm.Deployment(LLAMA, "h100", laboratory=3), "laboratory=3 is no text"),
    "a release as text": (lambda: pm.Deployment(LLAMA, "h100", release_known="no"), "release_known='no' is neither"),
    "search by no worker": (
        lambda: pm.search(LLAMA, pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=8, seq=64), workers=0),
        "^workers: 0 workers are impossible",
    ),
    "search by a scheduler without a port": (
        lambda: pm.search(LLAMA, pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=8, seq=64), scheduler="head"),
        "^scheduler: 'head' is no address",
    ),
    "steady of a name": (lambda: pm.steady(LLAMA, 10, 10), r"deployment: .* is no deployment\. Write pm\.Deployment\("),
    "simulate a name": (lambda: pm.simulate(LLAMA, pm.closed_loop(1, 2, 8, 8)), r"no deployment\. Write pm\.Deploy"),
    "simulate a number": (lambda: pm.simulate(pm.Deployment(LLAMA, "h100"), 3), "requests: 3 is no load"),
    "machine of nothing": (lambda: pm.hardware(None), "hardware: None is no name of a machine"),
    "pass of a number": (lambda: pm.forward_pass(3, 1, 8), r"model: 3 is no model\. Give a name"),
    "diagnose a path": (lambda: pm.diagnose("t.json"), r"Write pm\.read_profile\('t\.json'\)"),
    "diagnose on a number": (lambda: pm.diagnose(_profile(), 3), MACHINE),
    "limits of nothing": (lambda: pm.profile_limits(None), PROFILE),
    "project a path": (lambda: pm.project("t.json", "h100", "a100"), PROFILE),
    "headroom of a path": (lambda: pm.headroom("t.json"), PROFILE),
    "headroom with a price": (lambda: pm.headroom(_profile(), economics=2.5), r"2\.5 is no Economics\. Write pm\.Econ"),
    "rank for a path": (lambda: pm.rank_candidates("t.json", []), PROFILE),
    "rank a path": (
        lambda: pm.rank_candidates(_profile(), "p.toml"),
        r"'p\.toml' is no list of candidates\. Write .*read_",
    ),
    "time line of a profile": (
        lambda: pm.timeline_plot(_profile()),
        r"is no diagnosis\. Write pm\.diagnose\(profile\)",
    ),
    "breakdown of a profile": (lambda: pm.breakdown_plot(_profile()), r"is no diagnosis\. Write pm\.diagnose"),
    "rank names": (lambda: pm.rank_candidates(_profile(), ["a"]), "candidates: 'a' is no candidate"),
    "what if a path": (lambda: pm.what_if("t.json", None), PROFILE),
    "what if nothing": (
        lambda: pm.what_if(_profile(), None),
        r"scenario: None is no scenario\. Write pm\.read_scenario",
    ),
    "plot on nothing": (lambda: pm.roofline_plot(None, []), MACHINE),
    "speedup of a text": (lambda: pm.amdahl_speedup("half", 2.0), r"fraction='half' is no number"),
    "speedup by a text": (lambda: pm.amdahl_speedup(0.5, "2x"), r"local_speedup='2x' is no number"),
    "speedup of texts": (lambda: pm.gustafson_speedup(0.1, ["4", "8"]), r"processors=\['4', '8'\] is no number"),
    "fraction of nothing": (lambda: pm.serial_fraction(None, 4), "speedup=None is no number"),
    "scaling of texts": (lambda: pm.fit_scaling("ab", [1, 2]), "processors='ab' is no number"),
    "intensity of a text": (lambda: pm.arithmetic_intensity("1 TFLOP", 1e9), "flop='1 TFLOP' is no number"),
    "intensity of nothing": (lambda: pm.arithmetic_intensity(1e12, None), "traffic_bytes=None is no number"),
    "ridge of a text": (lambda: pm.ridge_point("312 TFLOP/s", 1e12), "peak_flop_per_s='312 TFLOP/s' is no number"),
    "rate of a text": (lambda: pm.attainable_flop_per_s("1", 1e12, 1e12), "intensity_flop_per_byte='1' is no number"),
    "change of nothing": (lambda: pm.Candidate("a", None, speedup=2.0), r"candidate 'a': targets is None, no list of"),
    "change of numbers": (lambda: pm.Candidate("a", [1, 2], speedup=2.0), r"targets is \[1, 2\], no list of names"),
    "change after nothing": (lambda: pm.Candidate("a", ("k",), speedup=2.0, after=None), "after is None, no list"),
    "change without name": (lambda: pm.Candidate(None, ("k",), speedup=2.0), "the name is no text"),
    "plot one point": (lambda: pm.roofline_plot("h100", 3), r"points: 3 is no list of points\. Write \[pm\.predict\("),
}


@pytest.mark.parametrize("case", MISUSES)
def test_an_argument_of_a_wrong_type_gets_one_message(case: str) -> None:
    call, message = MISUSES[case]
    with pytest.raises(pm.UsageError, match=message):
        call()


def test_an_error_within_a_prediction_is_not_hidden() -> None:
    class Broken(pm.Gemm):  # type: ignore[name-defined, misc]
        def tensors(self) -> Any:
            raise AttributeError("of the operator itself")

    with pytest.raises(AttributeError, match="of the operator itself"):
        pm.predict(Broken(**GEMM), "h100")


def test_any_result_has_a_report() -> None:
    prediction = pm.predict(pm.Gemm(**GEMM), "a100-sxm4-40gb")
    assert pm.report(prediction).rows[0]["hardware"] == "a100-sxm4-40gb"
    with pytest.raises(TypeError, match=r"int has no report\. Give what a function of perfmodel returned"):
        pm.report(3)


@functools.cache
def _results() -> dict[str, Any]:
    op = pm.Gemm(**GEMM)
    entries = [pm.ProfileEntry(f"kernel {n}" * 50, 1e-3, 1, op=op) for n in range(300)]
    profile = pm.Profile(tuple(entries), source="made.csv")
    candidate = pm.Candidate("c", ("kernel*",), 1.1)
    scenario = _scenario({"steps": [{"name": "half", "kind": "scale", "targets": ["kernel*"], "speedup": 2}]})
    diagnosis = pm.diagnose(profile, "h100")
    return {
        "profile": profile,
        "diagnosis": diagnosis,
        "comparison": pm.compare_diagnoses(diagnosis, diagnosis),
        "projection": pm.project(profile, "h100", "h200"),
        "ranking": pm.rank_candidates(profile, [candidate], hardware="h100"),
        "headroom": pm.headroom(profile),
        "what if": pm.what_if(profile, scenario, "h100"),
        "prediction": pm.predict(op, "h100"),
        "model": pm.predict_model([op] * 100, "h100"),
        "choice": pm.choose(op, "h100"),
        "fusion": pm.fuse_operators([pm.Elementwise(numel=1024), pm.Elementwise(numel=1024, kind="relu")], "h100"),
        "scaling": pm.fit_scaling([1, 2, 4], [1, 1.9, 3.5]),
    }


@pytest.mark.parametrize("name", list(_results()))
def test_a_result_is_a_line_in_a_session_and_a_table_in_a_notebook(name: str) -> None:
    result = _results()[name]
    line = repr(result)
    assert line.startswith(f"<{type(result).__name__}: ")
    assert len(line) < 280
    assert "\n" not in line
    assert " at 0x" not in line  # the address of an object
    assert str(result) == line
    shown = result._repr_html_()
    assert shown.count("<tr>") > 1


def test_the_line_of_a_result_has_its_main_figures() -> None:
    results = _results()
    assert repr(results["profile"]) == "<Profile: made.csv: 300 ms in 300 entries>"
    assert "memory 100 %" in repr(results["diagnosis"])
    assert "From h100-sxm5-80gb to h200-sxm-141gb: 300 ms ->" in repr(results["projection"])
    assert "predicted " in repr(results["prediction"])
    assert "bound " in repr(results["prediction"])


def test_a_served_model_its_steps_and_its_loads_are_lines_with_figures() -> None:
    served = pm.Deployment("gpt2", "h100", tp=2, weights="fp8")
    assert repr(served) == "<Deployment: gpt2 on 2 x h100-sxm5-80gb tp2, vllm, weights fp8, kv bf16>"
    load = pm.simulate(served, pm.closed_loop(2, 4, 64, 16))
    assert re.fullmatch(
        r"<Replay: 4 requests, [\d.]+ tokens/s, mean TTFT [\d.]+ ms, mean TPOT [\d.]+ [mu]s>", repr(load)
    )
    one, two = served.step(decode=8, context=128), served.step(decode=[8, 16], context=128)
    assert re.fullmatch(r"<Step: [\d.]+ [mu]s, mostly \w+>", repr(one))
    assert repr(two).startswith("<Step: 2 steps, mostly ")


def test_a_profile_shows_its_longest_entries_in_a_notebook() -> None:
    profile = pm.Profile(tuple(pm.ProfileEntry(f"k{n}", n * 1e-3, 1) for n in range(30)))
    report = pm.report(profile)
    assert [row["name"] for row in report.rows[:2]] == ["k29", "k28"]
    assert sum(row["fraction"] for row in report.rows) == pytest.approx(1)
    assert len(report.shown_rows) == 20
    assert report.title == "the profile: 435 ms in 29 entries (1 more adds 0 s)"


def test_a_machine_shows_its_ceilings_in_a_notebook() -> None:
    a100 = pm.hardware("a100-sxm4-40gb")
    assert repr(a100) == "<Hardware 'a100-sxm4-40gb'>"
    shown = a100._repr_html_()
    assert "<td>fp16 tensor</td>" in shown
    assert "<td>312 TFLOP/s</td>" in shown


def test_type_checkers_accept_arrays_of_whole_numbers() -> None:
    # numpy.arange gives int64, which an array of float64 is not
    assert typing.get_type_hints(pm.Gemm)["m"] == float | NDArray[Any]
    sizes = np.arange(64, 256, 64)
    op = pm.Gemm(m=sizes, n=512, k=512, dtype="fp16")
    same = pm.Gemm(m=sizes.astype(float), n=512, k=512, dtype="fp16")
    assert np.array_equal(
        pm.predict(op, "a100-sxm4-40gb").predicted_time_s, pm.predict(same, "a100-sxm4-40gb").predicted_time_s
    )


@pytest.mark.parametrize(
    ("call", "wrong", "meant"),
    [
        (lambda: pm.predict(pm.Gemm(**GEMM), "h100", libary="torch"), "libary", "library"),
        (lambda: pm.Deployment("llama-3.1-8b", "h100", tpp=2), "tpp", "tp"),
        (lambda: pm.Cluster("h100", gpus=8, nics="400Gb/s"), "nics", "nic"),
        (lambda: pm.TrainingPlan(batch=8, seq=4096, micro_batches=2), "micro_batches", "micro_batch"),
        (lambda: pm.Candidate("c", ("a",), speedp=2.0), "speedp", "speedup"),
        (lambda: pm.Economics(gpus=8, price_per_gpu_hour=2.0, dev_day_costs=1), "dev_day_costs", "dev_day_cost"),
        (lambda: pm.open_loop(4.0, 10, 128, 32, sed=1), "sed", "seed"),
        (lambda: pm.simulate(_served(), pm.closed_loop(1, 1, 8, 8), max_num_seq=4), "max_num_seq", "max_num_seqs"),
        (lambda: pm.steady(_served(), isl=8, osl=8, concurency=1), "concurency", "concurrency"),
        (lambda: pm.read_profile("a.json", whole_traces=True), "whole_traces", "whole_trace"),
    ],
)
def test_a_misspelt_argument_is_an_error_that_suggests_the_nearest(call: Any, wrong: str, meant: str) -> None:
    with pytest.raises(pm.UsageError, match=f"unknown (argument|rule) '{wrong}'. Did you mean '{meant}'") as refused:
        call()
    assert isinstance(refused.value, TypeError)  # as Python raises


def _served() -> Any:
    return pm.Deployment("gpt2", "h100")


def test_a_dimension_of_a_problem_is_no_argument_of_the_function() -> None:
    with pytest.raises(pm.UsageError, match=r"unknown dimension 'clos'\. Did you mean 'cols'"):
        pm.choose("sort", "h100", clos=10**6)


def test_a_deployment_takes_what_its_class_takes_with_the_same_defaults() -> None:
    from perfmodel.serving.deployment import Deployment

    by_name, by_object = (inspect.signature(make).parameters for make in (pm.Deployment, Deployment))
    assert list(by_name) == list(by_object)
    assert [one.default for one in by_name.values()] == [one.default for one in by_object.values()]


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    two = np.int64(2)
    assert pm.Deployment("gpt2", "h100", tp=two) == pm.Deployment("gpt2", "h100", tp=2)
    cluster = pm.Cluster("h100", gpus=np.int32(8))
    assert type(cluster.gpus) is int
    plan = pm.TrainingPlan(batch=np.int64(8), seq=4096, tp=two, zero=np.int64(1))
    assert plan == pm.TrainingPlan(batch=8, seq=4096, tp=2, zero=1)
    assert pm.train("gpt2", cluster, pm.TrainingPlan(batch=np.int64(8), seq=1024)).time_s > 0
    assert pm.forward_pass(pm.find_model("gpt2"), np.int64(1), np.int64(16))[0].flop() >= 0


def test_steady_takes_a_batch_or_a_concurrency() -> None:
    with pytest.raises(pm.UsageError, match="batch and concurrency are both given"):
        pm.steady(_served(), isl=128, osl=32, batch=2, concurrency=4)
    for wrong, part in ((True, "no number"), (float("nan"), "not finite"), (0, "below 1")):
        with pytest.raises(pm.UsageError, match=part):
            pm.steady(_served(), isl=wrong, osl=32)


def test_a_network_in_gigabits_is_no_number_of_bytes() -> None:
    with pytest.raises(pm.UsageError, match=r"nic = 400 is no rate of a GPU's network.*'400 Gb/s'"):
        pm.Cluster("h100", gpus=16, nic=400)
    assert pm.Cluster("h100", gpus=16, nic=50e9) == pm.Cluster("h100", gpus=16, nic="400 Gb/s")


def test_entries_and_candidates_of_python_have_numbers() -> None:
    wrong: Any
    for wrong in (("a", 1.0), pm.ProfileEntry("a", "1 ms")):  # type: ignore[arg-type]
        with pytest.raises(pm.UsageError, match=r"Write pm.ProfileEntry\(\"attention\", 0.12\)"):
            pm.Profile((wrong,))
    assert pm.Profile([pm.ProfileEntry("a", 1.0)]).entries == (pm.ProfileEntry("a", 1.0),)  # type: ignore[arg-type]
    for key in ("speedup", "new_time_s"):
        with pytest.raises(pm.UsageError, match="is '3', no number"):
            pm.Candidate("c", ("a",), **{key: "3"})  # type: ignore[arg-type]
    with pytest.raises(pm.UsageError, match="gpus is '64', no number"):
        pm.Economics(gpus="64", price_per_gpu_hour=2.0)  # type: ignore[arg-type]


def test_old_arguments_of_readers_work_for_one_release_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_text("name,time_ms\na,3\n")
    with pytest.warns(DeprecationWarning, match="all_steps is now whole_trace"):
        assert pm.read_profile(path, all_steps=True).total_time_s == 3e-3
    with pytest.warns(DeprecationWarning, match="processes is now workers"):
        assert len(pm.read_profiles([path], processes=1)) == 1
    served, load = pm.Deployment("llama-3.1-8b", "h100"), pm.closed_loop(4, 8, 1024, 64)
    with pytest.warns(DeprecationWarning, match="max_tokens is now max_batched_tokens"):
        old = pm.simulate(served, load, max_tokens=512)
    assert old.ttft_s.tolist() == pm.simulate(served, load, max_batched_tokens=512).ttft_s.tolist()
    with pytest.raises(pm.UsageError, match=r"is no list of files. Write pm.read_profiles\(\["):
        pm.read_profiles(path)  # type: ignore[arg-type]


def test_steps_and_models_have_their_interval_by_the_keys_of_json() -> None:
    step = pm.train("gpt2", pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=8, seq=1024))
    model = pm.predict_model([pm.Gemm(**GEMM)], "h100")
    for result, row in ((step, pm.report(step).rows[0]), (model, pm.report(model).context)):
        for key in ("time_s", "time_low_s", "time_high_s"):
            assert getattr(result, key) == row[key]


def test_a_misspelt_framework_is_refused_as_by_the_command() -> None:
    cluster, plan = pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=8, seq=1024, framework="megatrn")
    for call in (lambda: pm.train("gpt2", cluster, plan), lambda: pm.search("gpt2", cluster, plan)):
        with pytest.raises(pm.UsageError, match=r"unknown framework 'megatrn'\. Did you mean 'megatron'"):
            call()


_PROFILE = pm.Profile((pm.ProfileEntry("a", 1.0),))


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: pm.open_loop("4", 10, 128, 32), "rate_per_s: '4' is no rate"),  # type: ignore[arg-type]
        (lambda: pm.open_loop(4.0, 5, 64, 8, seed="x"), "seed: 'x' is no whole number"),  # type: ignore[arg-type]
        (lambda: pm.open_loop(4.0, 5, 64, 8, seed=-1), "seed: a seed of -1 is below 0"),
        (lambda: pm.open_loop(4.0, 5, "x", 8), "requests: isl='x' is no number"),
        (lambda: pm.open_loop(4.0, 5, [np.nan] * 5, 8), "requests: isl is not finite"),
        (lambda: pm.open_loop(4.0, 5, 64, 8, spacing=3), "unknown spacing of arrivals 3"),  # type: ignore[arg-type]
        (lambda: pm.closed_loop(2, 5, 64, 8, ramp_s="x"), "ramp_s: 'x' is no number"),  # type: ignore[arg-type]
        (lambda: pm.closed_loop(2, 5, 64, None), "requests: osl=None is no number"),  # type: ignore[arg-type]
        (lambda: pm.open_loop(4.0, 2.5, 128, 32), "count: 2.5 is no number of requests"),  # type: ignore[arg-type]
        (lambda: pm.closed_loop(2.5, 10, 128, 32), "concurrency: 2.5 is no number of clients"),  # type: ignore[arg-type]
        (
            lambda: pm.simulate(_served(), pm.closed_loop(1, 1, 8, 8), replicas=1.5),
            "replicas: 1.5 is no whole number",
        ),  # type: ignore[arg-type]
        (lambda: _simulated(max_num_seqs="3"), "max_num_seqs: '3' is no whole number"),
        (lambda: _simulated(max_num_seqs=np.nan), "max_num_seqs: nan is no whole number"),
        (lambda: _simulated(watermark="x"), "watermark: 'x' is no number"),
        (lambda: _simulated(policy=3), "unknown policy 3"),
        (lambda: _simulated(routing=None), "unknown routing None"),
        (lambda: _simulated(prefill_replicas=1, kv_link_bytes_per_s="x"), "kv_link_bytes_per_s: 'x' is no number"),
        (lambda: pm.steady(_served(), None, 8), "steady: isl=None is no number"),  # type: ignore[arg-type]
        (lambda: pm.predict_model([pm.Gemm(**GEMM)], "h100", gap_s=-1e-6), "gap_s is -1e-06 s"),
        (lambda: pm.predict_model([pm.Gemm(**GEMM)], "h100", gap_s="1us"), "gap_s: '1us' is no number"),  # type: ignore[arg-type]
        (lambda: pm.project(_PROFILE, "a100", "h100", host="0.8"), "host: '0.8' is no number"),  # type: ignore[arg-type]
        (lambda: pm.headroom(_PROFILE, local_speedup="2"), "local_speedup: '2' is no number"),  # type: ignore[arg-type]
        (lambda: pm.search("gpt2", pm.Cluster("h100", gpus=8), pm.TrainingPlan(batch=8, seq=1024), top=0), "top is 0"),
        (lambda: pm.compare_diagnoses(_PROFILE, _PROFILE), "before: .* is no diagnosis"),  # type: ignore[arg-type]
        (lambda: pm.html_report(), "there is no result"),
        (lambda: pm.predict_model(pm.operator_names, "h100"), r"Call its operators\(\)"),  # type: ignore[arg-type]
        (lambda: pm.ridge_point(312e12, 0.0), "bandwidth_bytes_per_s=0.0 is not above 0"),
        (lambda: pm.attainable_flop_per_s(-1.0, 312e12, 1555e9), "intensity_flop_per_byte=-1.0 is below 0"),
        (lambda: pm.AllReduce(bytes=2**20, num_gpus=16, nic=400), r"nic=400 is no rate .*'400Gb/s'"),
    ],
)
def test_a_number_that_cannot_be_is_one_message(call: Any, part: str) -> None:
    with pytest.raises(pm.UsageError, match=part):
        call()


def _simulated(**options: Any) -> Any:
    return pm.simulate(_served(), pm.closed_loop(1, 1, 8, 8), **options)


def test_requests_take_lists() -> None:
    load = pm.Requests(arrival_s=[0.0, 0.5], prompt=[16, 32], output=[4, 4])  # type: ignore[arg-type]
    assert load.rate_per_s == 2.0
    assert pm.simulate(_served(), load).count == 2
