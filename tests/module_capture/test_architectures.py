"""Networks of many kinds: their products against PyTorch's own counter, and nothing that is left out."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

#: what multiplies matrices, and what `torch.utils.flop_counter` counts
PRODUCTS = ("gemm", "conv2d", "conv3d", "attention")


def normed(convolution: Any) -> Any:
    return nn.Sequential(convolution, nn.BatchNorm3d(convolution.out_channels), nn.ReLU(inplace=True))


class Video(nn.Module):
    """Residual blocks over time, height and width (R3D, Tran et al. 2018), one of them depthwise (X3D)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = normed(nn.Conv3d(3, 16, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False))
        self.block = nn.Sequential(
            normed(nn.Conv3d(16, 32, 3, 2, 1, bias=False)), normed(nn.Conv3d(32, 32, 3, 1, 1, groups=32, bias=False))
        )
        self.side, self.pool = nn.Conv3d(16, 32, 1, 2, bias=False), nn.MaxPool3d(2)
        self.mean, self.classes = nn.AdaptiveAvgPool3d(1), nn.Linear(32, 10, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return self.classes(self.mean(self.pool(self.block(x) + self.side(x))).flatten(1))


class Volume(nn.Module):
    """A U-Net of volumes (Cicek et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv3d(1, 8, 3, padding=1, bias=False), nn.Conv3d(8, 16, 3, padding=1, bias=False)
        self.norm, self.up = nn.InstanceNorm3d(16, affine=True), nn.ConvTranspose3d(16, 8, 2, 2, bias=False)
        self.out = nn.Conv3d(16, 3, 3, padding=1, padding_mode="replicate", bias=False)

    def forward(self, x: Any) -> Any:
        x = functional.leaky_relu(self.down(x))
        deep = functional.leaky_relu(self.norm(self.deep(functional.max_pool3d(x, 2))))
        made = self.out(torch.cat([self.up(deep), x], 1))
        return functional.interpolate(made, scale_factor=2, mode="trilinear")


class Separable(nn.Module):
    """Filters, steps and windows that differ by direction (Inception, Szegedy et al. 2016; text recognition)."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Conv2d(8, 8, (1, 7), padding=(0, 3), bias=False)
        self.columns = nn.Conv2d(8, 8, (7, 1), (2, 1), padding=(3, 0), bias=False)
        self.apart = nn.Conv2d(8, 8, 3, dilation=(2, 1), padding=(2, 1), bias=False)
        self.back = nn.ConvTranspose2d(8, 4, (2, 4), (2, 2), (0, 1), bias=False)

    def forward(self, x: Any) -> Any:
        x = functional.max_pool2d(self.apart(self.columns(self.rows(x))), (2, 1))
        return self.back(functional.avg_pool2d(x, (1, 3), (1, 2), (0, 1)))


class Deformable(nn.Module):
    """Attention to samples of a feature map (Deformable DETR, Zhu et al. 2021)."""

    def __init__(self, width: int = 32, points: int = 4) -> None:
        super().__init__()
        self.places, self.weights = nn.Linear(width, 2 * points, bias=False), nn.Linear(width, points, bias=False)

    def forward(self, queries: Any, features: Any) -> Any:
        places = self.places(queries).unflatten(-1, (-1, 2)).tanh()
        samples = functional.grid_sample(features, places, align_corners=False)
        return (samples * self.weights(queries).softmax(-1)[:, None]).sum(-1)


class Spectral(nn.Module):
    """A Fourier neural operator (Li et al. 2021)."""

    def __init__(self, width: int = 16, modes: int = 6) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.zeros(width, width, modes, modes, dtype=torch.cfloat))
        self.beside = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Any) -> Any:
        spectrum = torch.fft.rfft2(x)
        made = torch.zeros_like(spectrum)
        kept = spectrum[:, :, : self.modes, : self.modes]
        made[:, :, : self.modes, : self.modes] = torch.einsum("bixy,ioxy->boxy", kept, self.weight)
        return functional.gelu(torch.fft.irfft2(made, s=x.shape[-2:]) + self.beside(x))


class Graph(nn.Module):
    """Attention between neighbours of a graph (Velickovic et al. 2018), and a sum for each graph."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into, self.score = nn.Linear(16, width, bias=False), nn.Linear(2 * width, 1, bias=False)

    def forward(self, x: Any, edges: Any, graphs: Any) -> Any:
        x, (source, target) = self.into(x), edges
        score = functional.leaky_relu(self.score(torch.cat([x[source], x[target]], -1)))[:, 0]
        largest = x.new_full((len(x),), -1e9).scatter_reduce(0, target, score, "amax")
        weight = (score - largest[target]).exp()
        weight = weight / x.new_zeros(len(x)).scatter_add(0, target, weight)[target]
        sent = torch.zeros_like(x).index_add(0, target, weight[:, None] * x.index_select(0, source))
        return x.new_zeros(4, x.shape[1]).index_add_(0, graphs, sent)


def indices(*sizes: int) -> Any:
    return torch.zeros(sizes, dtype=torch.int64)


NETWORKS: dict[Any, tuple[Any, ...]] = {
    Video: (torch.empty(1, 3, 8, 32, 32),),
    Volume: (torch.empty(1, 1, 8, 16, 16),),
    Separable: (torch.empty(2, 8, 20, 21),),
    Deformable: (torch.empty(2, 10, 32), torch.empty(2, 32, 9, 9)),
    Spectral: (torch.empty(2, 16, 32, 32),),
    Graph: (torch.empty(50, 16), indices(2, 200), indices(50)),
}


def products(captured: Any) -> float:
    return sum(call.flop for call in captured.modelled if call.op.op in PRODUCTS)


@pytest.mark.parametrize("kind", NETWORKS)
def test_products_are_those_that_pytorch_counts(kind: Any) -> None:
    inputs = NETWORKS[kind]
    captured, net = pm.capture(kind, inputs), kind()
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        net(*inputs)
    expected = counter.get_total_flops()
    if kind is Spectral:  # it counts a product of complex numbers as one of real ones
        expected += 3 * 2 * 2 * 16 * 16 * 6 * 6
    assert products(captured) == expected
    assert captured.not_modelled() == ()


@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_leave_nothing_out(kind: Any) -> None:
    once, captured = (pm.capture(kind, NETWORKS[kind], backward=backward) for backward in (False, True))
    assert captured.not_modelled() == ()
    # of each product that of the weights, and that of the inputs where these follow from weights
    assert 1 <= (products(captured) - products(once)) / products(once) <= 2
    assert float(captured.predict("h100").kernels_s) > float(once.predict("h100").kernels_s)
