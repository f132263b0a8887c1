"""A user's own function as a kernel: ``load_kernel("my_module:my_function", operator)``."""

from __future__ import annotations

import importlib
import sys

import pytest

torch = pytest.importorskip("torch")

from perfmodel.errors import UsageError  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.registry import load_kernel  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402

OP = Gemm(m=8, n=6, k=4, bias=True, activation="relu")
MODULE = """
import torch

def product(a, b, bias):
    return torch.relu(a @ b + bias)

def scaled(a, b, bias, *, op):
    assert op.activation == "relu"
    return torch.relu(a @ b + bias)

def of_two(a, b):
    return a @ b

class Kernels:
    @staticmethod
    def product(a, b, bias):
        return torch.relu(a @ b + bias)

size = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory; what is imported from it is forgotten."""
    known, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("mine"):
            del sys.modules[name]
    sys.path[:] = path
    importlib.invalidate_caches()


@pytest.mark.parametrize("attribute", ["product", "scaled", "Kernels.product"])
def test_a_function_from_the_current_directory_is_a_kernel(here, attribute):
    (here / "mine_good.py").write_text(MODULE)
    kernel = load_kernel(f"mine_good:{attribute}", "gemm")
    assert (kernel.name, kernel.operator, kernel.backend) == (f"mine_good:{attribute}", "gemm", "user")
    inputs = make_inputs(OP, "cpu", seed=0)
    assert verify(OP, kernel.prepare(OP, inputs), inputs).correct
    assert kernel.supports(OP, None) == ""
    assert kernel.composition is None


def test_a_module_in_a_package_and_a_builtin_without_a_signature(here):
    (here / "mine_package").mkdir()
    (here / "mine_package" / "kernels.py").write_text(MODULE)
    assert load_kernel("mine_package.kernels:product", "gemm").backend == "user"
    kernel = load_kernel("torch:matmul", "gemm")
    op = Gemm(m=8, n=6, k=4)
    inputs = make_inputs(op, "cpu", seed=0)
    assert verify(op, kernel.prepare(op, inputs), inputs).correct


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mine_bad", "does not name a function. Write my_module:my_function"),
        (":product", "does not name a function"),
        ("mine_bad:", "does not name a function"),
        ("mine_nowhere:product", "no module 'mine_nowhere' in .* Run in the module's directory, or set PYTHONPATH"),
        ("mine_nowhere.at_all:product", "no module 'mine_nowhere.at_all'"),
        ("mine_bad:prodct", "has no 'prodct'. Did you mean 'product'\\? It has: Kernels, of_two, product, scaled"),
        ("mine_bad:Kernels.other", "has no 'other'"),
        ("mine_bad:size", "size is int, not a function"),
        ("mine_bad:size.zzzz", "has no 'zzzz'"),
        ("mine_broken:product", "importing mine_broken raises SyntaxError"),
        ("mine_needing:product", "importing mine_needing raises ModuleNotFoundError.*mine_absent"),
    ],
)
def test_what_cannot_be_loaded_is_a_usage_error_with_a_remedy(here, spec, words):
    (here / "mine_bad.py").write_text(MODULE)
    (here / "mine_broken.py").write_text("def product(:\n")
    (here / "mine_needing.py").write_text("import mine_absent\n")
    with pytest.raises(UsageError, match=words) as raised:
        load_kernel(spec, "gemm")
    assert raised.value.remedy


def test_a_function_of_other_inputs_says_which_ones_it_gets(here):
    (here / "mine_two.py").write_text(MODULE)
    kernel = load_kernel("mine_two:of_two", "gemm")
    with pytest.raises(UsageError, match="a, b, bias, in this order") as raised:
        kernel.prepare(OP, make_inputs(OP, "cpu", seed=0))
    assert "of_two(a, b) does not take the inputs of gemm" in raised.value.message
