"""Products of few rows: neighbours in size take times that are near each other, whatever kernels they take."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.operators.gemm import Gemm

COLUMNS = np.arange(64.0, 16000.0, 64.0)


@pytest.mark.parametrize("rows", [4, 8, 16, 32])
@pytest.mark.parametrize(
    ("machine", "dtype"),
    [*((name, "fp64") for name in ("b200", "a100", "p100-sxm2-16gb", "rtx-4090", "t4")),
     *((name, "fp32") for name in ("b200", "a100", "p100-sxm2-16gb", "p4", "gtx-1080", "l4"))],
)  # fmt: skip
def test_one_column_more_is_a_little_slower_where_the_depth_of_the_sum_binds(machine: str, dtype: str, rows: int):
    """Blocks that do not keep an SM busy are split along k, until there are enough of them."""
    for k in (4096, 65536):
        times = [
            np.asarray(
                pm.predict(Gemm(m=rows, n=COLUMNS + more, k=k, dtype=dtype), pm.hardware(machine)).predicted_time_s
            )
            for more in (0.0, 32.0)
        ]
        step = times[1] / times[0]
        assert step.max() < 2.2
        assert step.min() > 0.9


@pytest.mark.parametrize("machine", ["gb300", "rtx-4090", "t4", "b200", "a100", "p100-sxm2-16gb"])
def test_one_row_more_in_fp64_is_at_most_a_few_times_as_slow(machine: str):
    """Between a kernel of single rows and tiles that pad them to 32 there are others, which nobody measured."""
    product = Gemm(m=np.arange(1.0, 17.0), n=4096, k=4096, dtype="fp64")
    found = pm.predict(product, pm.hardware(machine))
    time = np.asarray(found.predicted_time_s)
    assert (time[1:] / time[:-1]).max() < 3.0
    assert (time[1:] / time[:-1]).min() > 0.9
    # twice what physics allows is not ruled out
    assert (np.asarray(found.predicted_time_low_s) < 2.5 * np.asarray(found.bound_time_s))[:4].all()


@pytest.mark.parametrize("machine", ["a100", "h100", "v100-sxm2-16gb"])
def test_how_the_weights_of_a_vector_lie_is_in_the_interval_where_nothing_says_it(machine: str):
    """A bias makes a linear layer, whose weights lie [n, k]: one warp reads a row of them."""
    for n, k in ((1000, 2048), (472, 3464), (1000, 512), (1024, 4096), (4096, 4096)):
        plain, linear = (
            pm.predict(Gemm(m=1, n=n, k=k, dtype="fp32", bias=bias), pm.hardware(machine)) for bias in (False, True)
        )
        assert plain.predicted_time_low_s < 1.3 * linear.predicted_time_s
        # it is no surer than the layer whose layout is known
        assert (
            plain.predicted_time_high_s / plain.predicted_time_low_s
            > 0.99 * linear.predicted_time_high_s / linear.predicted_time_low_s
        )


def test_one_product_takes_no_longer_than_two_in_a_batch():
    """On a P4, weights [n, k] are read again for each row of tiles; those of plain products, alone or not, are not."""
    one, two, layer = (
        pm.predict(Gemm(m=1450, n=3456, k=5768, batch=batch, bias=bias, dtype="fp32"), pm.hardware("p4"))
        for batch, bias in ((1, False), (2, False), (1, True))
    )
    assert one.predicted_time_s < two.predicted_time_s
    # but nobody measured as large ones alone
    assert one.predicted_time_high_s > 0.5 * layer.predicted_time_s


def test_what_holds_up_a_product_has_its_own_name():
    """Blocks too few for an SM, and weights that a P4 reads again off cache lines, are no pipelines that fill."""
    few = pm.predict(Gemm(m=32, n=32, k=4096, batch=4, dtype="fp32"), pm.hardware("v100-sxm2-16gb")).predicted_terms_s
    assert few["few blocks"] > 2.0 * few["pipeline"]
    again = pm.predict(Gemm(m=1450, n=3456, k=5768, bias=True, dtype="fp32"), pm.hardware("p4"))
    assert again.predicted_terms_s["addressing"] > 0.5 * again.predicted_time_s
    assert again.predicted_terms_s["pipeline"] < 0.1 * again.predicted_time_s
    assert sum(again.predicted_terms_s.values()) == pytest.approx(again.predicted_time_s)


@pytest.mark.parametrize("library", ["wvspltk", "aiter_flydsl_decode"])
def test_kernels_for_vectors_stream_the_matrix(library: str):
    """Up to four rows they read it once, and a row more or less changes next to nothing; beyond, there are tiles."""
    columns = np.arange(1024.0, 32768.0, 512.0)
    times = []
    for rows in (1, 4):
        found = pm.predict(Gemm(m=rows, n=columns, k=4096, dtype="bf16"), "mi300x", library=library)
        times.append(np.asarray(found.predicted_time_s))
        assert (times[-1] > np.asarray(found.bound_time_s)).all()
        assert (np.diff(times[-1]) > 0.0).all()
    assert times[1] == pytest.approx(times[0], rel=0.05)
    plain = [pm.predict(Gemm(m=rows, n=4096, k=4096, dtype="bf16"), "mi300x", library="hipblaslt") for rows in (4, 5)]
    vectors, tiles = (
        pm.predict(Gemm(m=rows, n=4096, k=4096, dtype="bf16"), "mi300x", library=library) for rows in (4, 5)
    )
    assert vectors.predicted_time_s < 0.8 * plain[0].predicted_time_s
    assert tiles.predicted_time_s > 1.1 * vectors.predicted_time_s
    # the terms of the breakdown add up to the time
    assert sum(vectors.rows()[0]["predicted_terms_s"].values()) == pytest.approx(vectors.predicted_time_s, rel=1e-6)


def test_products_that_no_kernel_for_vectors_takes_are_those_of_tiles():
    """Batches, and operands in 8 bits."""
    for product in (Gemm(m=4, n=4096, k=4096, batch=8, dtype="bf16"), Gemm(m=4, n=4096, k=4096, dtype="fp8_e4m3")):
        times = [
            pm.predict(product, "mi300x", library=name).predicted_time_s for name in ("wvspltk", "a library of nobody")
        ]
        assert times[0] == times[1]
