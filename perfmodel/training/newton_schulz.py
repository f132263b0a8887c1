"""What Muon's orthogonalisation of the momentum costs a step: products of every matrix of the layers."""

from __future__ import annotations

from collections import Counter

from perfmodel.training.kernels import Product, product_times
from perfmodel.training.setup import Setup
from perfmodel.workloads.matrices import Linear
from perfmodel.workloads.model_config import ModelConfig

#: iterations of the quintic of Newton and Schulz (Jordan et al. 2024, KellerJordan/Muon @ 00ba60d3, muon.py,
#: ``zeropower_via_newtonschulz5``)
ITERATIONS = 5


def orthogonal_products(rows: float, cols: float, libraries: tuple[str, ...] = ()) -> tuple[Product, Product, Product]:
    """Return the products of one iteration on a matrix X [m, n], m <= n, in 16 bits: X X', A A and B X.

    Five iterations on a square matrix are 5 x 6 m^3 FLOP; beside the 6 m^2 B FLOP of a step of B tokens they are the
    5 m / B of Jordan et al.
    """
    m, n = min(rows, cols), max(rows, cols)
    sizes = ((m, m, n), (m, m, m), (m, n, m))
    gram, squared, last = (Product(*size, "bf16", "bf16", libraries=libraries) for size in sizes)
    return gram, squared, last


def orthogonal_s(setup: Setup) -> float:
    """Return the time that the matrices of a GPU take [s].

    Each matrix is whole, as Muon needs it, on one of the tensor parallel ranks that hold its parts, and with a
    distributed optimizer on one of the data parallel ranks that share it, with HSDP those of a domain (Liu et al. 2025,
    arXiv 2502.16982, section 2.3); without one each of these repeats the work. Stages of a pipeline have equal shares.
    """
    plan, config, groups = setup.plan, setup.config, setup.groups
    if plan.lora:  # adapters have a rank: next to nothing
        return 0.0
    dense = plan.pp * plan.tp * (setup.sharing(groups.data).ranks if plan.zero else 1)
    experts = plan.pp * plan.ep * setup.etp * (setup.sharing(groups.expert_data).ranks if plan.zero else 1)
    counts: Counter[tuple[int, int]] = Counter()
    routed: Counter[tuple[int, int]] = Counter()
    for linears, times in _matrices(config):
        for one in linears:
            counts[one.n, one.k] += times
    for one in config.expert_linears():
        routed[one.n, one.k] += config.experts * config.moe_layers
    libraries = setup.shard.libraries_of("bf16")
    shapes = {(n, k): orthogonal_products(n, k, libraries) for n, k in {*counts, *routed}}
    known = product_times(setup.hardware, [product for three in shapes.values() for product in three])
    each = {shape: ITERATIONS * sum(known[product] for product in three) for shape, three in shapes.items()}
    return sum(each[shape] * (counts[shape] / dense + routed[shape] / experts) for shape in shapes)


def _matrices(config: ModelConfig) -> list[tuple[tuple[Linear, ...], int]]:
    """Return the matrices of layers and how many layers have them; routed experts stand apart."""
    found = [*config.attentions(), (config.mlp_linears(), config.mlp_layers)]
    found += [(config.shared_linears(), config.moe_layers)]
    if config.encoder:
        across = config.attention_matrices()
        found += [(across, config.layers), (config.encoder.layer_linears(), config.encoder_layers)]
    return found
