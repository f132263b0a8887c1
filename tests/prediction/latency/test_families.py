"""Which family predicts which operator: found by the families' files, and by those of plugins."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import perfmodel as pm
from perfmodel import plugins
from perfmodel.core.vocabulary import Limiter
from perfmodel.operators import operator_names
from perfmodel.prediction.latency import families
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.terms import LAUNCH, Term, Terms

#: operators that must not lose their closed form, with a call of each and its family on an H100
CLOSED_FORMS = {
    "gemm": ({"m": 64, "n": 64, "k": 64, "dtype": "bf16"}, "gemm_bf16"),
    "elementwise": ({"numel": 1000}, "elementwise"),
    "layer_norm": ({"rows": 8, "cols": 64}, "layer_norm"),
    "rms_norm": ({"rows": 8, "cols": 64}, "rms_norm"),
    "rope": ({"tokens": 8, "dim": 128, "head_dim": 64}, "rope"),
    "embedding": ({"tokens": 8, "dim": 64, "vocab": 1000}, "embedding"),
    "softmax": ({"rows": 8, "cols": 64}, "softmax"),
    "reduction": ({"rows": 8, "cols": 64}, "reduction"),
    "attention": ({"heads": 8, "seq_q": 64, "head_dim": 64, "dtype": "bf16"}, "attention_prefill"),
    "conv2d": ({"n": 1, "c": 8, "h": 8, "w": 8, "k": 8, "r": 3, "s": 3}, "conv2d"),
    "all_reduce": ({"bytes": 1000, "num_gpus": 2}, "all_reduce"),
    "all_gather": ({"bytes": 1000, "num_gpus": 2}, "all_gather"),
    "reduce_scatter": ({"bytes": 1000, "num_gpus": 2}, "reduce_scatter"),
    "alltoall": ({"bytes": 1000, "num_gpus": 2}, "alltoall"),
    "broadcast": ({"bytes": 1000, "num_gpus": 2}, "broadcast"),
    "send_recv": ({"bytes": 1000, "num_gpus": 2}, "send_recv"),
}
FILES = sorted(set(families._own().files.values()))


@pytest.mark.parametrize("op", CLOSED_FORMS)
def test_an_operator_keeps_its_closed_form(op: str) -> None:
    sizes, family = CLOSED_FORMS[op]
    prediction = pm.predict(pm.load_operator(op)(**sizes), pm.hardware("h100"))
    assert prediction.family == family
    assert prediction.prediction_basis.startswith(f"{family}, ")


@pytest.mark.parametrize("file", FILES)
def test_a_file_holds_the_families_that_it_announces(file: str) -> None:
    module = importlib.import_module(families._files()[file])
    assert dict(families._read_serves(module.__name__)) == module.SERVES, "read without importing, and imported"
    assert {family.name for family in module.FAMILIES} == set(module.SERVES)
    assert {op for ops in module.SERVES.values() for op in ops} <= set(operator_names())


@pytest.mark.parametrize("name", families.family_names())
def test_the_terms_of_a_family_say_what_they_are(name: str) -> None:
    terms = families.family(name).all_terms
    assert len(set(terms)) == len(terms)
    for term in terms:
        assert term.meaning, term
        assert isinstance(term.limiter, Limiter), term


@pytest.mark.parametrize("op", CLOSED_FORMS)
@pytest.mark.parametrize("timing", ["kernel", "event"])
def test_a_formula_returns_only_terms_that_its_family_declares(op: str, timing: str) -> None:
    prediction = pm.predict(pm.load_operator(op)(**CLOSED_FORMS[op][0]), pm.hardware("h100"), timing=timing)
    declared = families.family(str(prediction.family)).all_terms
    assert set(prediction.predicted_terms_s) <= set(declared)
    assert all(isinstance(term, Term) for term in prediction.predicted_terms_s)
    assert set(prediction.alone_s) <= set(declared)


def test_one_prediction_imports_one_family() -> None:
    code = (
        "import sys, perfmodel as pm; pm.predict(pm.Elementwise(numel=8), pm.hardware('h100'));"
        "print(*(m for m in sys.modules if m.startswith('perfmodel.prediction.latency.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[3] for name in ran.stdout.split()}
    assert loaded & set(FILES) == {"elementwise"}


def test_several_families_of_an_operator_share_its_points() -> None:
    shape = {"heads": 8, "head_dim": 64, "kv_write": True}
    op = pm.Attention(**shape, seq_q=np.array([1.0, 64.0, 1.0]), seq_kv=np.array([64.0, 64.0, 1.0]))
    prediction = pm.predict(op, pm.hardware("h100"))
    # one query of one key is a short prompt where the call writes a cache
    assert prediction.family.tolist() == ["attention_decode", "attention_prefill", "attention_prefill"]  # type: ignore[union-attr]
    for index, (seq_q, seq_kv) in enumerate([(1, 64), (64, 64), (1, 1)]):
        one = pm.predict(pm.Attention(**shape, seq_q=seq_q, seq_kv=seq_kv), pm.hardware("h100"))
        assert prediction.predicted_time_s[index] == pytest.approx(one.predicted_time_s)  # type: ignore[index]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch):
    """Install a module as the plugin ``mine``, whose family serves the operators that are given."""

    def install(*operators: str) -> None:
        module = ModuleType("mine")
        family = Family("mine", (), lambda *_: Terms({LAUNCH: 1.0}), (LAUNCH,))
        module.SERVES, module.FAMILIES = {"mine": operators}, (family,)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "mine", module)
        own = dict(families._files())
        monkeypatch.setattr(families, "_files", lambda: {**own, "mine": "mine"})
        # as if perfmodel had none for transposition, since it has one for each of its operators
        known = families._own()
        without = {op: names for op, names in known.families.items() if op != "transpose"}
        monkeypatch.setattr(families, "_own", lambda: known._replace(families=without))
        forget()

    def forget() -> None:
        known = (families._plugins, families._serving, families.family, families.known_terms)
        for function in (*known, plugins._import_plugin):
            function.cache_clear()

    yield install
    monkeypatch.undo()
    forget()


def test_a_plugin_serves_an_operator_that_has_no_family(plugin) -> None:
    plugin("transpose")
    machine = dataclasses.replace(pm.hardware("h100"))  # what a machine keeps of families is this one's alone
    prediction = pm.predict(pm.Transpose(rows=8, cols=8), machine)
    assert (prediction.family, prediction.predicted_time_s) == ("mine", 1.0)
    assert "mine" in families.family_names()
    assert families.has_family("mine")


def test_a_plugin_replaces_no_family_of_perfmodel(plugin, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("softmax", "transpose")
    machine = dataclasses.replace(pm.hardware("h100"))
    assert pm.predict(pm.Softmax(rows=8, cols=8), machine).family == "softmax"
    assert pm.predict(pm.Transpose(rows=8, cols=8), machine).family == "roofline"
    assert "perfmodel has a latency family for softmax already" in capsys.readouterr().err


def test_a_term_is_its_name_wherever_it_goes() -> None:
    term = Term("ice", Limiter.HBM, "frozen bytes")
    assert {"ice": 1.0}[term] == 1.0
    assert f"{term}" == "ice"
    for again in (pickle.loads(pickle.dumps(term)), copy.deepcopy(term)):
        assert (again, again.limiter, again.meaning) == ("ice", Limiter.HBM, "frozen bytes")
