"""What has no operator of the model never looks like zero: it is a lower limit in tables, and null in files."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

torch = pytest.importorskip("torch")
nn = torch.nn


class Factors(nn.Module):
    """A factorisation, which the model does not have."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.qr(x)


class Both(nn.Module):
    """A product, and a factorisation beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.product, self.factors, self.nothing = nn.Linear(64, 64, bias=False), Factors(), nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.product(x), self.factors(self.nothing(x))


def report() -> Any:
    return pm.capture(Both(), torch.empty(4, 64)).report(hardware=pm.hardware("h100"))


def test_a_module_that_is_not_modelled_has_no_sums() -> None:
    modules = {row["path"]: row for row in report().context["modules"]}
    assert (modules["factors"]["flop"], modules["factors"]["predicted_time_s"]) == (None, None)
    assert modules["factors"]["not_modelled_share_of_bytes"] == 1
    assert (modules["nothing"]["flop"], modules["nothing"]["not_modelled_share_of_bytes"]) == (0, 0), "no call at all"
    assert (modules["product"]["flop"], modules["product"]["not_modelled_share_of_bytes"]) == (2 * 4 * 64 * 64, 0)
    # the product reads x and weights and writes 4 x 64; the factorisation reads x and writes 4 x 4 and 4 x 64
    product, factors = 4 * (2 * 4 * 64 + 64 * 64), 4 * (4 * 64 + 4 * 4 + 4 * 64)
    assert modules[""]["not_modelled_share_of_bytes"] == pytest.approx(factors / (product + factors))


def test_sums_that_leave_it_out_are_lower_limits() -> None:
    made = report()
    cells = {row["path"]: {column.heading: column.cell(row) for column in made.columns} for row in made.shown_rows}
    assert (cells["factors"]["FLOP"], cells["factors"]["expected"]) == ("-", "-")
    assert cells["factors"]["not modelled"] == "100.0 %"
    assert cells[""]["FLOP"].startswith(">= 32.77 k")
    assert cells[""]["expected"].startswith(">= ")
    assert not cells["product"]["FLOP"].startswith(">=")
    notes = " ".join(made.shown_notes)
    assert "At least 32.77 kFLOP" in notes
    assert "Expected on h100-sxm5-80gb: at least" in notes
    # the product and the factorisation
    assert "1 of 2 calls: aten::linalg_qr (10.3%, 1x). FLOP and times leave it out, and are lower limits." in notes
    (missing,) = made.context["not_modelled"]
    assert (missing["name"], missing["calls"], missing["bytes"]) == (
        "aten::linalg_qr",
        1,
        4 * (4 * 64 + 4 * 4 + 4 * 64),
    )
    assert missing["reason"] == "the model has no operator for aten::linalg_qr"


def test_its_calls_have_no_flop_in_files() -> None:
    rows = {row["module"]: row for row in report().as_json()["rows"]}
    assert (rows["factors"]["op"], rows["factors"]["flop"]) == (None, None)
    assert rows["product"]["flop"] > 0


def test_a_module_that_is_modelled_shows_no_limits() -> None:
    made = pm.capture(nn.Linear(64, 64), torch.empty(4, 64)).report(hardware=pm.hardware("h100"))
    assert "not modelled" not in {column.heading for column in made.shown_columns()}
    assert not any(word in note for note in made.shown_notes for word in ("least", "most", "Not modelled", ">="))


def test_filling_a_new_tensor_writes_it_once_and_splitting_is_free() -> None:
    class Fills(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.zeros(4, 64), torch.full_like(x, 2.0), x.unsafe_split(2), x.clone().t_()

    calls = pm.capture(Fills(), torch.empty(4, 64)).calls
    assert [(call.op.kind, call.count, call.moved_bytes / call.count) for call in calls] == [
        ("fill", 2, 4 * 4 * 64),
        ("copy", 1, 2 * 4 * 4 * 64),
    ]


@pytest.mark.waiting
def test_pytorchs_log_stays_silent_about_what_the_message_says() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(handler)
    try:
        with pytest.raises(UsageError, match="same reduction dim") as raised:
            pm.capture(nn.Linear(4096, 14336, bias=False), torch.empty(8, 3))
    finally:
        log.removeHandler(handler)
    assert not records
    assert not log.disabled, "it speaks again afterwards"
    assert isinstance(raised.value.__cause__, RuntimeError), "--debug shows where"


@pytest.mark.waiting
@pytest.mark.parametrize("debug", [False, True])
def test_the_command_prints_one_line_but_for_debug(tmp_path, debug: bool) -> None:
    (tmp_path / "wide.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(4096, 14336)\n")
    words = ["capture", "wide:build", "--input", "8x3:fp32", *(["--debug"] if debug else [])]
    ran = subprocess.run(
        [sys.executable, "-m", "perfmodel", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1].startswith("perfmodel: capture: Linear fails: ")
    assert ("Traceback" in ran.stderr) is debug
    assert (len(ran.stderr.splitlines()) > 1) is debug


def test_a_view_of_a_parameter_may_be_passed_on_without_gradients() -> None:
    class Queries(nn.Module):
        """As a detection transformer, whose queries are a parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.queries, self.layer = nn.Parameter(torch.zeros(10, 64)), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return self.layer(self.queries[None].expand(len(x), -1, -1))

    without, with_gradients = (
        pm.capture(Queries(), torch.empty(2, 3), backward=backward) for backward in (False, True)
    )
    assert without.flop == 2 * 20 * 64 * 64 + 20 * 64
    assert with_gradients.flop > 2 * without.flop


def test_sizes_that_an_argument_states_need_no_values() -> None:
    class Neighbours(nn.Module):
        """Divides what neighbours send by their number, as networks of graphs do."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Any, edges: Any) -> Any:
            count = torch.bincount(edges, minlength=len(x)).to(x.dtype).clamp(min=1)
            return self.layer(torch.zeros_like(x).index_add(0, edges, x[edges]) / count[:, None])

    inputs = (torch.empty(50, 16, device="meta"), torch.empty(200, dtype=torch.int64, device="meta"))
    captured = pm.capture(Neighbours(), inputs)
    assert captured.not_modelled() == ()
    (sums,) = [call.op for call in captured.modelled if call.op.op == "scatter_add"]
    assert (sums.rows, sums.cols, sums.table) == (200, 16, 50)
    assert len(captured.decided) == 1, "the line that counts"

    class Speech(nn.Module):
        def forward(self, logits: Any, labels: Any, steps: Any, lengths: Any) -> Any:
            return nn.functional.ctc_loss(logits.log_softmax(-1), labels, steps, lengths)

    shapes = [(torch.empty(50, 4, 32), None), *((torch.empty(*size), torch.int64) for size in ((4, 9), (4,), (4,)))]
    given = [tensor.to("meta", dtype) for tensor, dtype in shapes]
    loss = pm.capture(Speech(), given)
    (missing,) = loss.not_modelled()
    # 50 x 4 x 32 scores, 4 rows of 9 labels with two lengths; 4 losses, and paths of 2 x 9 + 1 states in each step
    assert missing.name == "aten::_ctc_loss"
    assert missing.bytes == 4 * 50 * 4 * 32 + 8 * (4 * 9 + 4 + 4) + 4 * (4 + 4 * 50 * 19)


def test_an_operator_of_another_package_is_named() -> None:
    @torch.library.custom_op("perfmodel_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_fake(torch.empty_like)

    class Foreign(nn.Module):
        def forward(self, x: Any) -> Any:
            return twice(x).relu()

    captured = pm.capture(Foreign(), torch.empty(4, 64))
    (missing,) = captured.not_modelled()
    assert (missing.name, missing.bytes) == ("perfmodel_test::twice", 2 * 4 * 4 * 64)
    assert captured.not_modelled_share() == 0.5


def test_layers_that_wait_for_their_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="sizes of LazyLinear follow from the first input") as raised:
        pm.capture(nn.Sequential(nn.LazyLinear(8)), torch.empty(4, 64))
    assert "run the module once" in str(raised.value)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_an_operator_of_functions_is_refused_by_its_name() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    class Flexible(nn.Module):
        def forward(self, x: Any) -> Any:
            return flex_attention(x, x, x)

    with pytest.raises(UsageError, match="calls flex_attention, whose arguments are functions"):
        pm.capture(Flexible(), torch.empty(1, 4, 128, 64))


def test_an_operator_without_elements_runs_nothing() -> None:
    class Empty(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.exp(), torch.linalg.qr(x[:0, :0])[0], x[:, 64:].exp()

    captured = pm.capture(Empty(), torch.empty(4, 64))
    assert [(call.name.partition("(")[0], call.count) for call in captured.calls] == [("aten::exp", 1)]


def test_an_operator_that_has_no_form_without_values_is_named() -> None:
    class Ragged(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nested.as_nested_tensor([x[0], x[1, :3]])

    with pytest.raises(UsageError, match=r"runs aten\._nested_tensor_from_tensor_list\.default, of which"):
        pm.capture(Ragged(), torch.empty(2, 5, 64))


def test_what_a_mask_selects_is_known_where_its_values_are() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:
            return x[mask], x.masked_select(mask[:, None])

    mask = torch.arange(10) < 3
    captured = pm.capture(Chosen(), (torch.empty(10, 64), mask))
    assert captured.not_modelled() == ()
    rows, elements = [call.op for call in captured.modelled if call.op.op in ("index_select", "gather")]
    assert (rows.rows, rows.cols, elements.numel) == (3, 64, 3 * 64)
    with pytest.raises(UsageError, match="depends on the values"):
        pm.capture(Chosen(), (torch.empty(10, 64), mask.to("meta")))


def test_a_mask_beside_other_indices_is_not_taken_for_one_of_rows() -> None:
    """Of x [10, 4] the mask and the indices select 9 elements, not 9 / 4 rows."""

    class Chosen(nn.Module):
        def forward(self, x: Any, mask: Any, columns: Any) -> Any:
            return x[mask, columns]

    mask, columns = torch.arange(10) < 9, torch.zeros(9, dtype=torch.int64)
    (call,) = pm.capture(Chosen(), (torch.empty(10, 4), mask, columns)).not_modelled()
    assert (call.name, "a mask beside other indices" in call.reason) == ("aten::index", True)
