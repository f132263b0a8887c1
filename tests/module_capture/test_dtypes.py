"""A module is captured in the dtype of its inputs: as PyTorch runs it after a cast, and never in two at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

torch = pytest.importorskip("torch")
nn = torch.nn

BATCH, HIDDEN, INNER = 10, 64, 256


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(HIDDEN, INNER), nn.ReLU(), nn.Linear(INNER, HIDDEN))


def images() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2))


def encoder() -> Any:
    return nn.TransformerEncoderLayer(HIDDEN, 4, dim_feedforward=INNER, dropout=0.0, batch_first=True)


def facts(captured: Any) -> Any:
    """Return all that is counted."""
    calls = [(c.module, c.phase, c.name, c.count, c.flop, c.moved_bytes, c.not_modelled) for c in captured.calls]
    return calls, captured.modules


class Masked(nn.Module):
    """Adds a mask to what an embedding returns, in the embedding's dtype, and multiplies it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(100, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, tokens: Any, mask: Any) -> Any:
        x = self.embed(tokens)
        return self.out(x.masked_fill(mask[..., None] < 0, 0.0))


class Mixed(nn.Module):
    """A norm in fp32 before a product in bf16, as models keep it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN, dtype=torch.bfloat16)

    def forward(self, x: Any) -> Any:
        return self.out(self.norm(x.float()).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (perceptron, (BATCH, HIDDEN)),
        (images, (2, 3, 16, 16)),
        (encoder, (2, 16, HIDDEN)),
        (lambda: nn.LSTM(8, 16, num_layers=2), (5, 2, 8)),
    ],
    ids=["perceptron", "images", "encoder", "lstm"],
)
def test_inputs_in_16_bits_are_those_of_a_module_in_16_bits(
    build: Callable[[], Any], shape: tuple[int, ...], dtype: Any
) -> None:
    x = torch.empty(shape, dtype=dtype)
    cast = pm.capture(build(), x, backward=True, optimizer="adamw")
    real = pm.capture(build().to(dtype), x, backward=True, optimizer="adamw")
    assert (cast.cast_to, real.cast_to) == ("bf16" if dtype == torch.bfloat16 else "fp16", "")
    assert facts(cast) == facts(real)


def test_a_perceptron_in_16_bits_by_hand() -> None:
    half, single = (
        pm.capture(perceptron(), torch.empty(BATCH, HIDDEN, dtype=dtype), backward=True, optimizer="adamw")
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert half.flop == single.flop
    # saved: the input, and relu's output, which is the input of the second product
    assert half.root.activation_bytes == 2 * BATCH * (HIDDEN + INNER)
    assert single.root.activation_bytes == 2 * half.root.activation_bytes
    assert {call.op.dtype for call in half.modelled} == {"bf16"}
    products = [call for call in half.modelled if call.phase == "forward" and call.op.op == "gemm"]
    # each reads its input, weights and bias, and writes its output
    moved = 2 * (BATCH * (HIDDEN + INNER) + HIDDEN * INNER)
    assert [call.moved_bytes for call in products] == [moved + 2 * INNER, moved + 2 * HIDDEN]


def test_the_callers_module_keeps_its_dtype() -> None:
    net = perceptron().double()
    before = {name: (tensor, tensor.clone()) for name, tensor in net.state_dict(keep_vars=True).items()}
    assert pm.capture(net, torch.empty(BATCH, HIDDEN, dtype=torch.bfloat16), backward=True).cast_to == "bf16"
    for name, tensor in net.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])
        assert tensor.grad is None


@pytest.mark.parametrize(
    ("build", "shape"), [(perceptron, (BATCH, HIDDEN)), (lambda: nn.LSTM(8, 16), (5, 2, 8))], ids=["mlp", "lstm"]
)
def test_inputs_in_more_bits_than_the_module_are_counted_in_theirs(
    build: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    wide = pm.capture(build().to(torch.bfloat16), torch.empty(shape), backward=True)
    assert wide.cast_to == "fp32"
    assert facts(wide) == facts(pm.capture(build(), torch.empty(shape), backward=True))


def test_a_mask_in_fp32_leaves_a_module_in_16_bits() -> None:
    net = Masked().to(torch.bfloat16)
    captured = pm.capture(net, (torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 8)))
    assert captured.cast_to == ""
    (product,) = [call.op for call in captured.modelled if call.op.op == "gemm"]
    assert product.dtype == "bf16"


def test_a_module_of_two_dtypes_stays_as_it_is() -> None:
    captured = pm.capture(Mixed(), torch.empty(2, HIDDEN, dtype=torch.float16))
    dtypes = {call.op.op: call.op.dtype for call in captured.modelled}
    assert (captured.cast_to, dtypes["layer_norm"], dtypes["gemm"]) == ("", "fp32", "bf16")


def test_inputs_of_several_dtypes_are_one_message() -> None:
    inputs = torch.empty(2, 8, 8, dtype=torch.bfloat16), torch.empty(2, 8, 8, dtype=torch.float16)
    with pytest.raises(UsageError, match="inputs are in bf16 and fp16, and the parameters in fp32"):
        pm.capture(nn.Bilinear(8, 8, 8), inputs)


def test_a_product_of_two_dtypes_is_refused_as_pytorch_refuses_it() -> None:
    inputs = torch.empty(2, 8), torch.empty(2, 8, dtype=torch.bfloat16)
    net = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    net.forward = lambda x, y: net[0](x) + net[1](y)  # one input has the dtype of the parameters
    with pytest.raises(RuntimeError, match="same dtype"):
        net(*inputs)
    with pytest.raises(UsageError, match=r"1: aten::addmm has operands in float32 and bfloat16"):
        pm.capture(net, inputs)


def test_the_command_says_so_and_runs_it_in_that_dtype(perfmodel, tmp_path, monkeypatch) -> None:
    (tmp_path / "half_precision.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    line = "capture", "half_precision:build", "--input", "10x64:bf16", "--on", "h100", "--backward"
    ran = perfmodel(*line, "--run")
    assert ran.code == 0, ran.err
    assert "The inputs are in bf16 and the parameters are not" in ran.out
    document = perfmodel(*line, "--format", "json").json
    assert document["context"]["cast_to"] == "bf16"
    assert {row["name"].rpartition(" ")[2] for row in document["rows"] if row["op"] == "gemm"} == {"bf16"}
    same = perfmodel("capture", "half_precision:build", "--input", "10x64", "--format", "json").json
    assert same["context"]["cast_to"] == ""
    assert not any("cast" in note for note in same["notes"])


@pytest.fixture
def precision() -> Any:
    """Put PyTorch's settings back."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def test_convolutions_run_in_tf32_where_pytorch_and_the_gpu_do(precision: Any) -> None:
    net, x = torch.nn.Conv2d(256, 256, 3, padding=1), torch.empty(16, 256, 56, 56)
    captured = pm.capture(net, x)
    assert captured.tf32 == ("conv2d", "conv3d")
    (part,) = captured.predict("h100").parts
    assert part.prediction.operator.dtype == "tf32"
    assert captured.operators()[0].dtype == "fp32", "files say what the module has"
    for older_or_other in ("v100", "mi300x"):
        assert captured.predict(older_or_other).parts[0].prediction.operator.dtype == "fp32"
    assert (
        pm.capture(net.to(torch.bfloat16), x.to(torch.bfloat16)).predict("h100").parts[0].prediction.operator.dtype
        == "bf16"
    )
    notes = " ".join(captured.report(hardware=pm.hardware("h100")).shown_notes)
    assert "Convolutions in fp32 run in TF32 there" in notes
    torch.backends.cudnn.allow_tf32 = False
    plain = pm.capture(net.float(), x)
    assert plain.tf32 == ()
    assert plain.predict("h100").kernels_s > 2 * captured.predict("h100").kernels_s


def test_products_run_in_tf32_on_demand(precision: Any) -> None:
    net, x = torch.nn.Linear(1024, 1024), torch.empty(4096, 1024)
    assert pm.capture(net, x).predict("a100").parts[0].prediction.operator.dtype == "fp32"
    torch.backends.cuda.matmul.allow_tf32 = True
    (part,) = pm.capture(net, x).predict("a100").parts
    assert (part.prediction.operator.dtype, part.prediction.operator.out_dtype) == ("tf32", "tf32")
