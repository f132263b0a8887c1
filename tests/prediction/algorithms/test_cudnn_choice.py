"""cuDNN's choice between implicit GEMM and the others in fp32, by the names of the kernels that it ran."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

#: names of kernels that are no implicit GEMM: fused Winograd, complex products of Fourier, products of Winograd's tiles
_OTHERS = re.compile(r"winograd|gcgemm|(?:volta|maxwell)_sgemm_\d+x\d+_nn")
_SIZES = ("n", "c", "h", "w", "k", "r", "s", "stride", "padding")
#: every so many rows of the table
_EVERY = 25


#: (channels, side of the images, filters) of convolutions of 3 x 3 with stride 1, in networks that many run
_LAYERS = {
    "VGG": [(3, 224, 64), (64, 224, 64), (64, 112, 128), (128, 112, 128), (128, 56, 256), (256, 56, 256),
            (256, 28, 512), (512, 28, 512), (512, 14, 512)],
    "ResNet": [(64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512)],
    "AlexNet": [(192, 13, 384), (384, 13, 256), (256, 13, 256)],
    "GoogLeNet": [(64, 56, 192), (96, 28, 128), (128, 28, 192), (96, 14, 208), (112, 14, 224), (128, 14, 256),
                  (144, 14, 288), (160, 14, 320), (160, 7, 320), (192, 7, 384)],
    "Inception v3": [(32, 147, 64), (80, 73, 192), (64, 35, 96), (96, 35, 96), (448, 8, 384)],
    "DenseNet": [(128, 56, 32), (128, 28, 32), (128, 14, 32), (128, 7, 32), (192, 14, 48)],
    "U-Net": [(64, 570, 64), (128, 282, 128), (256, 138, 256), (512, 66, 512), (1024, 30, 1024), (1024, 56, 512)],
    "YOLO": [(3, 416, 32), (32, 208, 64), (64, 104, 128), (128, 52, 256), (256, 26, 512), (512, 13, 1024)],
    "SqueezeNet": [(16, 55, 64), (64, 13, 256)],
}  # fmt: skip


def _table(data_dir: Path, machine: str) -> list[dict[str, str]]:
    """Return the rows of a machine whose kernels are named."""
    path = data_dir / "measurements" / "neusight_conv2d_fp32.csv.gz"
    if not path.is_file():
        pytest.skip("no table of convolutions")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["hardware"] == machine and row["kernel"]]


def _right(rows: list[dict[str, str]], machine: str) -> float:
    """Return in which share of some rows implicit GEMM or not is right."""
    chosen = [pm.choose(pm.Conv2d(**{key: int(row[key]) for key in _SIZES}), machine).best for row in rows]
    gemm = [_OTHERS.search(row["kernel"]) is None for row in rows]
    return sum((best == "implicit_gemm") == it_is for best, it_is in zip(chosen, gemm, strict=True)) / len(rows)


@pytest.mark.parametrize(("machine", "least"), [("v100-pcie-32gb", 0.88), ("t4", 0.86), ("p100-pcie-16gb", 0.86)])
def test_gemm_or_not_is_right_in_nine_of_ten_convolutions(data_dir: Path, machine: str, least: float) -> None:
    assert _right(_table(data_dir, machine)[::_EVERY], machine) >= least


def _usual(row: dict[str, str]) -> bool:
    """Return whether a row has proportions of networks: 64 to 512 channels, half to twice as many filters, 7 x 7."""
    channels, filters = int(row["c"]), int(row["k"])
    return 64 <= channels <= 512 and 0.49 <= filters / channels <= 2.05 and int(row["h"]) >= 7


@pytest.mark.parametrize(("machine", "least"), [("v100-pcie-32gb", 0.97), ("t4", 0.91), ("p100-pcie-16gb", 0.98)])
def test_gemm_or_not_of_sizes_as_in_networks(data_dir: Path, machine: str, least: float) -> None:
    rows = [row for row in _table(data_dir, machine) if _usual(row)]
    assert len(rows) > 250
    assert _right(rows, machine) >= least


@pytest.mark.parametrize("machine", ["v100", "p100-pcie-16gb", "a100"])
def test_layers_of_networks_follow_channels_and_filters(machine: str) -> None:
    """Implicit GEMM up to c k / (c + k) = 10.7, Winograd from 21.3 on, at any batch."""
    agree = total = 0
    for images in (1, 8, 32, 128):
        for c, side, k in itertools.chain.from_iterable(_LAYERS.values()):
            between = c * k / (c + k)
            if 10.7 < between < 21.3:
                continue
            best = pm.choose(pm.Conv2d(n=images, c=c, h=side, w=side, k=k, r=3, s=3, padding=1), machine).best
            agree += (best == "implicit_gemm") == (between <= 10.7)
            total += 1
    assert agree / total >= 0.98, (agree, total)


@pytest.mark.parametrize("changed", [{"stride": 2}, {"dilation": 2}, {"r": 1, "s": 1, "padding": 0}, {"dtype": "fp16"}])
def test_other_strides_taps_and_tensor_engines_take_implicit_gemm(changed: dict[str, Any]) -> None:
    op = pm.Conv2d(n=32, c=256, h=28, w=28, k=256, r=3, s=3, padding=1)
    assert pm.choose(op, "v100").best.startswith("winograd")
    assert pm.choose(op.changed(**changed), "v100").best == "implicit_gemm"


def test_convolutions_and_gradients_of_a_traced_training(data_dir: Path) -> None:
    """ResNet-50 in fp32 on a V100: all are right but one gradient of weights, of 64 channels."""
    right = total = 0
    for path in sorted((data_dir / "traces").glob("kineto_resnet50_train_nw*_2021.pt.trace.json.gz")):
        for entry in pm.read_profile(path).entries:
            if entry.op is None or entry.op.op != "conv2d":
                continue
            other = any("winograd" in kernel or "fft" in kernel for kernel in entry.kernels)
            right += (pm.choose(entry.op, "v100").best != "implicit_gemm") == other
            total += 1
    if not total:
        pytest.skip("no traces of ResNet-50")
    assert total > 100
    assert right / total >= 0.98


def test_an_input_gradient_is_a_convolution_and_weights_have_no_fused_kernel() -> None:
    op = pm.Conv2d(n=32, c=64, h=56, w=56, k=128, r=3, s=3, padding=1)
    turned = pm.choose(op.changed(c=128, k=64), "v100")
    of_input = pm.choose(op.changed(backward=True, gradient="input"), "v100")
    assert of_input.best == turned.best
    assert of_input[of_input.best].time_s > turned[turned.best].time_s
    of_weight = pm.choose(op.changed(backward=True, gradient="weight"), "v100")
    assert of_weight["winograd_f23"].why_not == of_weight["im2col"].why_not == "has no kernel for gradients"
    with pytest.raises(UsageError, match=r"both are two convolutions.*gradient=input or gradient=weight"):
        pm.choose(op.changed(backward=True), "v100")


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("machine", ["p100-pcie-16gb", "v100", "a100", "h100", "b200", "l40s", "mi300x", "rx-7900-xtx"])
def test_the_chosen_algorithm_is_the_one_that_a_prediction_times(machine: str, dtype: str, layout: str) -> None:
    for c, groups in ((3, 1), (16, 1), (64, 1), (256, 1), (512, 1), (512, 512), (512, 32)):
        op = pm.Conv2d(n=16, c=c, h=28, w=28, k=max(c, 64), r=3, s=3, padding=1, groups=groups, dtype=dtype,
                       layout=layout)  # fmt: skip
        call, best = pm.predict(op, machine), pm.choose(op, machine).rows[0]
        assert best.time_s == pytest.approx(float(call.predicted_time_s)), (c, groups, best.algorithm)
        assert best.time_low_s == pytest.approx(float(call.predicted_time_low_s))
        assert best.time_high_s == pytest.approx(float(call.predicted_time_high_s))
