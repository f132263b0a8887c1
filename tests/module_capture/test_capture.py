"""A module's operators without running it, against hand counts, torch's own counter and the module itself."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

torch = pytest.importorskip("torch")
SPEC = importlib.util.spec_from_file_location("captured_modules", Path(__file__).with_name("modules.py"))
assert SPEC is not None
assert SPEC.loader is not None
modules = importlib.util.module_from_spec(SPEC)
sys.modules["captured_modules"] = modules
SPEC.loader.exec_module(modules)


def by_op(captured, name, phase="forward"):
    return sum(call.flop for call in captured.modelled if call.op.op == name and call.phase == phase)


def test_a_perceptron_by_hand() -> None:
    captured = pm.capture(modules.Mlp(64), torch.empty(10, 64), backward=True, optimizer="sgd")
    products = 2 * 10 * 64 * 256 * 2
    bias = 10 * 256 + 10 * 64
    assert by_op(captured, "gemm") == products + bias
    # of each product both gradients; the input is not trained, so that of the first layer has one
    assert by_op(captured, "gemm", "backward") == 2 * products - products / 2
    assert captured.root.parameters == 64 * 256 + 256 + 256 * 64 + 64
    # saved: the input, which the first gradient multiplies, and relu's output, for itself and the second product
    assert captured.root.activation_bytes == 4 * 10 * (64 + 256)
    (step,) = [call for call in captured.calls if call.phase == "optimizer"]
    assert step.op.parameters == captured.root.parameters


def test_what_gradients_would_save_is_said_only_where_they_were_asked_for() -> None:
    net, given = modules.Mlp(64), torch.empty(10, 64)
    forward, both = pm.capture(net, given).report(), pm.capture(net, given, backward=True).report()
    assert not any("activations saved" in note for note in forward.notes)
    assert forward.context["activation_bytes"] is None
    assert {row["activation_bytes"] for row in forward.rows} == {None}
    assert any("activations saved for gradients: 12.5 KiB" in note for note in both.notes)
    assert both.context["activation_bytes"] == 4 * 10 * (64 + 256)


def test_a_decoder_by_hand() -> None:
    layers, hidden, heads, kv, vocab, batch, seq = 2, 128, 4, 2, 512, 3, 32
    captured = pm.capture(modules.Decoder(layers, hidden, heads, kv, vocab), torch.zeros(batch, seq, dtype=torch.int64))
    tokens, size = batch * seq, hidden // heads
    weights = layers * (2 * hidden**2 + 2 * hidden * kv * size + 9 * hidden**2)
    assert by_op(captured, "gemm") == 2 * tokens * (weights + hidden * vocab)
    assert captured.root.parameters == weights + vocab * hidden, "tied: the embedding counts once"
    # causal: half of the square and half of the diagonal, two products
    assert by_op(captured, "attention") == pytest.approx(
        4 * layers * batch * heads * size * seq * (seq + 1) / 2, rel=0.05
    )
    inside = {module.path: sum(call.flop for call in captured.within(module.path)) for module in captured.modules}
    assert inside[""] == captured.flop
    assert inside["layers"] == inside["layers.0"] + inside["layers.1"]
    assert inside["layers.0"] == inside["layers.1"]


def test_a_convolution_agrees_with_torchs_own_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    net, x = modules.Cnn(), torch.randn(4, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        net(x)
    captured = pm.capture(net, x)
    bias = 4 * 10
    assert by_op(captured, "conv2d") + by_op(captured, "gemm") - bias == pytest.approx(
        counter.get_total_flops(), rel=0.01
    )


def test_any_way_to_give_a_module_is_the_same() -> None:
    x = torch.empty(2, 64)
    plain = pm.capture(modules.Mlp(), x)
    for other in (
        pm.capture(modules.build, (x,)),
        pm.capture(modules.Mlp, {"x": torch.empty(2, 64, device="meta")}),
        pm.capture(torch.compile(modules.Mlp()), x),
    ):
        assert other.flop == plain.flop
        assert other.root.parameters == plain.root.parameters
    exported = torch.export.export(modules.Mlp(), (torch.zeros(2, 64),))
    assert pm.capture(exported, x).flop == plain.flop
    assert pm.capture(lambda: exported, x).flop == plain.flop, "a builder may export, too"


def test_an_exported_program_keeps_its_attention() -> None:
    net, tokens = modules.Decoder(), torch.zeros(2, 16, dtype=torch.int64)
    exported = torch.export.export(net, (tokens,))
    plain, captured = pm.capture(net, tokens), pm.capture(exported, tokens)
    for op in ("gemm", "attention"):
        assert by_op(captured, op) == by_op(plain, op) > 0
    assert captured.root.parameters == plain.root.parameters, "the tied head counts once"
    for path in ("layers.0", "layers.1.up", "head"):
        assert sum(call.flop for call in captured.within(path)) == sum(call.flop for call in plain.within(path)) > 0


def test_a_compiled_module_has_the_gradients_of_the_plain_one() -> None:
    net, x = modules.Mlp(64), torch.empty(10, 64)
    plain = pm.capture(net, x, backward=True, optimizer="adamw")
    compiled = pm.capture(torch.compile(net), x, backward=True, optimizer="adamw")
    assert compiled.flop == plain.flop
    assert compiled.root.activation_bytes == plain.root.activation_bytes


def test_a_large_model_takes_no_memory() -> None:
    captured = pm.capture(lambda: modules.Decoder(2, 8192, 64, 8, 128_256), torch.zeros(1, 2048, dtype=torch.int64))
    assert captured.root.parameters > 2e9
    assert captured.predict(pm.hardware("h100")).kernels_s > captured.flop / 2e15
    assert captured.predict("h100").kernels_s == captured.predict(pm.hardware("h100")).kernels_s
    with pytest.raises(UsageError, match="h100"):
        captured.predict("h1000")


def test_the_module_is_unchanged() -> None:
    net, x = modules.Mlp(), torch.randn(2, 64)
    before = torch.random.get_rng_state()
    weights = {name: (tensor, tensor.clone()) for name, tensor in net.state_dict(keep_vars=True).items()}
    pm.capture(net, torch.empty(2, 64), backward=True)
    from perfmodel.module_capture.run import run_module

    forward_s, backward_s = run_module(net, x, backward=True)
    assert set(forward_s) == {"", "up", "down"}
    assert forward_s[""] >= forward_s["up"] > 0
    assert backward_s is not None
    assert backward_s > 0
    assert not net._forward_hooks
    assert all(parameter.grad is None for parameter in net.parameters())
    for name, tensor in net.state_dict(keep_vars=True).items():
        assert tensor is weights[name][0]
        assert torch.equal(tensor, weights[name][1])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_value_that_decides_is_one_message_with_its_line() -> None:
    with pytest.raises(UsageError, match="depends on the values") as raised:
        pm.capture(modules.Branches(), torch.ones(3, device="meta"))
    line = next(
        number
        for number, text in enumerate(Path(modules.__file__).read_text().splitlines(), 1)
        if "x.sum() > 0" in text
    )
    assert f"modules.py:{line}" in str(raised.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [(torch.empty(2, 3), "fails"), ((), "fails")],
)
def test_inputs_that_do_not_fit_are_one_message(inputs, message) -> None:
    with pytest.raises(UsageError, match=message):
        pm.capture(modules.Mlp(), inputs)


def test_other_mistakes_are_one_message() -> None:
    with pytest.raises(UsageError, match=r"no torch\.nn\.Module"):
        pm.capture(3, ())
    with pytest.raises(UsageError, match="adamw"):
        pm.capture(modules.Mlp(), torch.empty(2, 64), optimizer="adamx")


@pytest.mark.parametrize(
    ("deeper", "said"),
    [(1, "1 module lies deeper: --depth shows it."), (2, "2 modules lie deeper: --depth shows them.")],
)
def test_modules_that_lie_deeper_are_counted(deeper: int, said: str) -> None:
    inner = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(deeper)))
    captured = pm.capture(torch.nn.Sequential(torch.nn.Sequential(inner)), torch.empty(2, 4))
    assert pm.report(captured).unlisted == said


def test_the_command_writes_what_analyze_reads(perfmodel, tmp_path, monkeypatch) -> None:
    (tmp_path / "my_modules.py").write_text(Path(modules.__file__).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ops = tmp_path / "ops.json"
    line = (
        "capture",
        "my_modules:Decoder",
        "--input",
        "2x16:int64",
        "--on",
        "h100",
        "--backward",
        "--optimizer",
        "adamw",
    )
    ran = perfmodel(*line, "--operators", ops, "--run")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "Measured on this machine's cpu" in ran.out
    document = perfmodel(*line, "--format", "json").json
    keys = {"module", "op", "count", "flop", "bytes", "parameters", "activation_bytes", "predicted_time_s"}
    assert keys <= set(document["rows"][0])
    assert document["context"]["modules"][0]["parameters"] == document["context"]["parameters"]
    listed = json.loads(ops.read_text())["operators"]
    products = [row for row in listed if row["op"] == "gemm"]
    assert products
    assert not any({"weight_dtype", "scale", "out_dtype"} & row.keys() for row in products), "what the dtype implies"
    analyzed = perfmodel("analyze", ops, "--on", "a100-sxm4-40gb", "--format", "json").json["rows"]
    assert sum(row["count"] * row["flop"] for row in analyzed) == pytest.approx(document["context"]["flop"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no_such_module:x",), "cannot import"),
        (("torch.nn:Bilinaer",), "Bilinear"),
        (("torch.nn:ReLU", "--input", "2y3"), "is no shape"),
        (("torch.nn:ReLU", "--input", "2x3:fp33"), "fp32"),
        (("torch.nn:ReLU", "--input", "0x3"), "0 elements"),
        (("torch.nn",), "names no module"),
    ],
)
def test_wrong_words_are_one_message(perfmodel, words, message) -> None:
    ran = perfmodel("capture", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_what_a_builder_warns_of_stays_silent(perfmodel, tmp_path, monkeypatch):
    (tmp_path / "warns.py").write_text(
        "import warnings, torch\ndef build():\n    warnings.warn('slow')\n    return torch.nn.Linear(8, 8)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ran = perfmodel("capture", "warns:build", "--input", "8x8")
    assert (ran.code, ran.err) == (0, "")


def test_too_many_elements_are_named_as_such(perfmodel):
    assert "Give 1 to 2^40 of them" in perfmodel("capture", "torch.nn:Identity", "--input", "99999999999999x8").err


class Operands(torch.nn.Module):
    """One elementwise call on operands that lie in memory in several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        other = {
            "same": x,
            "number": 2.0,
            "row": x[:1, :1],
            "swapped": x.transpose(1, 2),
            "half": None,
            "both swapped": x.transpose(1, 2),
        }[self.way]
        if self.way == "half":
            return -x[..., :16]
        return other * other if self.way == "both swapped" else x * other


@pytest.mark.parametrize(
    ("way", "strided"),
    [("same", False), ("number", False), ("row", True), ("swapped", True), ("half", True), ("both swapped", False)],
)
def test_strides_tell_kernels_that_compute_addresses(way: str, strided: bool) -> None:
    captured = pm.capture(Operands(way), torch.empty(8, 32, 32))
    (op,) = [call.op for call in captured.calls if call.op is not None and call.op.op == "elementwise"]
    assert op.strided is strided


def test_a_module_with_two_names_stays_as_it_is_and_counts_once() -> None:
    net = torch.nn.Sequential(layer := torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), layer)
    before = [id(tensor) for tensor in (layer.weight, layer.bias, *net.buffers())]
    captured = pm.capture(net, torch.empty(5, 16), backward=True)
    assert [id(tensor) for tensor in (layer.weight, layer.bias, *net.buffers())] == before
    assert captured.root.parameters == 16 * 16 + 16 + 2 * 16
    assert by_op(captured, "gemm") == 2 * (2 * 5 * 16 * 16 + 5 * 16)
    net(torch.randn(5, 16))  # it still runs, on values


@pytest.mark.parametrize(
    "inputs", [None, 3, "10x64", torch.zeros(10, 64).numpy()], ids=["nothing", "number", "text", "array"]
)
def test_what_is_no_list_of_arguments_is_told_what_to_pass(inputs) -> None:
    with pytest.raises(UsageError, match=r"is no tensor or list of arguments\. Pass a torch\.Tensor"):
        pm.capture(modules.Mlp(64), inputs)


def test_a_rotation_by_complex_numbers_moves_what_it_does_in_parts() -> None:
    class Rotation(torch.nn.Module):
        def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)

    x, turns = torch.empty(2, 16, 4, 64), torch.empty(1, 16, 1, 32, dtype=torch.complex64)
    (call,) = pm.capture(Rotation(), [x, turns]).calls
    assert call.op is not None
    # x is read and written; the turns are smaller than the result, and not counted
    assert call.moved_bytes == 2 * x.numel() * 4


@pytest.mark.parametrize("inputs", [torch.empty(8, 64), (torch.empty(8, 64),), {"x": torch.empty(8, 64)}])
def test_a_function_may_return_the_module_and_its_inputs(inputs) -> None:
    def build():
        return modules.Mlp(), inputs

    assert pm.capture(build).calls == pm.capture(modules.Mlp(), torch.empty(8, 64)).calls
    assert pm.capture(build, torch.empty(2, 64)).flop == pm.capture(build).flop / 4


def test_several_inputs_may_stand_behind_the_module() -> None:
    def build():
        return torch.nn.Bilinear(8, 8, 4), torch.empty(2, 8), torch.empty(2, 8)

    assert pm.capture(build).title == "Bilinear(2x8 float32, 2x8 float32)"


@pytest.mark.parametrize("made", [(modules.Mlp(),), (torch.empty(8, 64), modules.Mlp()), None])
def test_a_function_that_returns_anything_else_is_refused(made) -> None:
    with pytest.raises(UsageError, match=r"no torch\.nn\.Module"):
        pm.capture(lambda: made, torch.empty(8, 64))
    with pytest.raises(UsageError, match="tensor or list of arguments"):
        pm.capture(lambda: (modules.Mlp(), 5))
