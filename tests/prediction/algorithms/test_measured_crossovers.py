"""Crossovers that others measured, within a factor of 2, and what the closed forms say by hand."""

from __future__ import annotations

import math

import pytest

import perfmodel as pm

KIB, MIB = 2.0**10, 2.0**20


def within(factor: float, value: float | None, measured: float) -> bool:
    return value is not None and measured / factor <= value <= measured * factor


def test_strassen_pays_from_thousands_on() -> None:
    """n* = 54 s F / B: with 4 B, 16.4 TFLOP/s and 1380 GB/s of an A100 2.6k; 16 bits 16k on A100 and 24k on H100."""
    fp32 = pm.choose("product", "a100-sxm4-40gb", m=4096, n=4096, k=4096).crossover("library", "strassen")
    assert within(2.0, fp32, 54 * 4 * 16.41e12 / 1380e9)
    for machine, size in (("a100", 16e3), ("h100", 24e3)):
        half = pm.choose(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), machine).crossover("library", "strassen")
        assert within(1.25, half, size)


@pytest.mark.parametrize(("size", "naive_s", "tiled_s"), [(512, 0.165e-3, 0.195e-3), (2048, 8.42e-3, 10.36e-3)])
def test_tiling_a_naive_product_loses_below_the_size_of_l2(size: int, naive_s: float, tiled_s: float) -> None:
    """RTX 5070, olajide's table; its cores, clock and cache are those that the closed form takes."""
    machine = rtx_5070()
    found = pm.choose(pm.Gemm(m=size, n=size, k=size), machine)
    assert found["tiled"].time_s > found["naive"].time_s
    assert within(1.5, found["naive"].time_s, naive_s)
    assert within(1.5, found["tiled"].time_s, tiled_s)
    # naive and tiled meet between 2048 and 4096 in the table, where n k s outgrows 48 MiB: 3.5k
    assert within(2.0, found.crossover("naive", "tiled"), 3500)


def rtx_5070():
    """An RTX 5090 cut down to an RTX 5070: 48 SMs, 48 MiB of L2, 672 GB/s."""
    import dataclasses

    big = pm.hardware("rtx-5090")
    peaks = tuple(dataclasses.replace(peak, flop_per_s=peak.flop_per_s * 48 / big.sm_count) for peak in big.peaks)
    memory = tuple(
        dataclasses.replace(
            level,
            capacity_bytes=48 * MIB if level.name == "l2" else level.capacity_bytes,
            bandwidth_bytes_per_s=672e9 if level.name == "hbm" else level.bandwidth_bytes_per_s,
            sustained_bytes_per_s=None,
        )
        for level in big.memory
    )
    return dataclasses.replace(big, name="rtx-5070", sm_count=48, peaks=peaks, memory=memory)


def test_winograd_unfused_pays_where_products_outweigh_its_traffic() -> None:
    """c k / (c + k) = s F / (3 B) = 25 on V100 in fp32: 50 channels; measured between 10.7 and 21.3."""
    crossover = pm.choose("convolution", "v100").crossover("implicit_gemm", "winograd_f43")
    assert within(2.0, crossover, 50)


@pytest.mark.parametrize(("c", "k", "gemm"), [(3, 64, True), (16, 32, True), (32, 64, False), (64, 64, False)])
@pytest.mark.parametrize("machine", ["v100", "v100-pcie-32gb", "v100-sxm2-16gb"])
def test_gemm_up_to_11_channels_in_parallel_and_winograd_from_21(machine: str, c: int, k: int, gemm: bool) -> None:
    """The harmonic sum c k / (c + k) is 2.9, 10.7, 21.3 and 32."""
    for n, size in ((1, 56), (16, 56), (16, 28), (8, 112)):
        best = pm.choose(pm.Conv2d(n=n, c=c, h=size, w=size, k=k, r=3, s=3, padding=1), machine).best
        assert (best == "implicit_gemm") == gemm, (n, size)


@pytest.mark.parametrize(
    ("n", "c", "k", "size", "taps", "best"),
    [(16, 192, 32, 28, 5, "fft"), (16, 512, 48, 14, 5, "fft"), (16, 832, 128, 7, 5, "fft"),
     (16, 192, 64, 28, 1, "implicit_gemm"), (16, 16, 32, 28, 5, "implicit_gemm")],
)  # fmt: skip
def test_fourier_from_5_x_5_and_32_channels_on(n: int, c: int, k: int, size: int, taps: int, best: str) -> None:
    op = pm.Conv2d(n=n, c=c, h=size, w=size, k=k, r=taps, s=taps, padding=taps // 2)
    assert pm.choose(op, "v100").best == best


@pytest.mark.parametrize("machine", ["v100", "a100", "h100", "t4"])
@pytest.mark.parametrize("c", [64, 256, 512])
def test_never_winograd_on_tensor_engines_in_16_bits(machine: str, c: int) -> None:
    op = pm.Conv2d(n=16, c=c, h=28, w=28, k=c, r=3, s=3, padding=1, dtype="fp16")
    found = pm.choose(op, machine)
    assert found.best == "implicit_gemm"
    assert "cost less than the transforms" in found["winograd_f43"].why_not


@pytest.mark.parametrize("machine", ["v100", "a100", "h100", "l40s", "mi210"])
@pytest.mark.parametrize(("dtype", "layout"), [("fp32", "nchw"), ("fp16", "nhwc")])
def test_im2col_never_pays_on_a_gpu(machine: str, dtype: str, layout: str) -> None:
    for c in (16, 64, 512):
        op = pm.Conv2d(n=16, c=c, h=28, w=28, k=c, r=3, s=3, padding=1, dtype=dtype, layout=layout)
        found = pm.choose(op, machine)
        implicit = found["implicit_gemm"].time_s
        # in fp32 on an H100, implicit GEMM takes more than twice what a plain product does
        assert found["im2col"].time_s > (0.8 if (machine, dtype) == ("h100", "fp32") else 1.0) * implicit
        assert found.best != "im2col"


def test_a_bitonic_network_is_for_one_block() -> None:
    """PyTorch 79628: bitonic for up to 32 items, a radix sort within a block up to 4096."""
    found = pm.choose("sort", "a100")
    assert within(2.0, found.crossover("bitonic", "radix"), 16 * KIB)
    one_block = {row.algorithm: row for row in found.at(32)}
    assert one_block["bitonic"].time_s == one_block["merge"].time_s
    assert one_block["bitonic"].kernels == 1


def test_a_gpu_sorts_more_than_some_thousand_keys_faster_than_a_cpu() -> None:
    """Keys on the host: over PCIe a GPU wins from about 1k keys against a comparison sort, 10k to 30k against AVX-512.

    Nobody's table has both; the start of a copy, some microseconds, decides.
    """
    found = pm.choose("sort_on_host", "a100")
    stable, vector = (found.crossover(name, "radix_over_pcie") for name in ("host_stable", "host_avx512"))
    assert within(2.0, stable, 1000)
    assert within(2.0, vector, 18_000)
    assert pm.choose("sort_on_host", "a100", cols=2**20).best == "radix_over_pcie"


def test_4_bit_weights_pay_for_few_rows() -> None:
    """TensorRT-LLM's products with weights of 4 bits on A100: 1.7 times at 2 rows, no gain from 96 rows on."""
    import numpy as np

    rows = np.array([2.0, 16.0, 48.0, 96.0, 192.0, 256.0, 512.0])
    ratios = []
    for n, k in ((4096, 4096), (8192, 8192), (14336, 4096)):
        op = pm.Gemm(m=rows, n=n, k=k, dtype="fp16")
        narrow = op.changed(weight_dtype="int4", scale="group:128")
        times = [pm.predict(each, "a100", library="trtllm").predicted_time_s for each in (op, narrow)]
        ratios.append(np.asarray(times[0]) / np.asarray(times[1]))
    gain = np.mean(ratios, axis=0)
    assert gain[0] > 1.4
    assert np.all(gain[rows <= 48] > 1.0)
    assert np.all(gain[rows > 192] < 1.05)


def test_onesweep_over_the_older_radix_sort() -> None:
    """29.4 Gkey/s on A100; 3 accesses a pass instead of 2: 52 B a key instead of 36, 1.5 times slower measured."""
    found = pm.choose("sort", "a100-sxm4-40gb", cols=2**28)
    assert within(1.05, 2**28 / found["radix"].time_s, 29.4e9)
    assert found["radix"].bytes == 36.0 * 2**28
    assert within(1.05, 4 * (1 + 3 * 4) / 36.0, 1.5)


def test_merge_sorts_are_faster_for_few_keys() -> None:
    """PyTorch kept a merge sort for small inputs (NVIDIA/cub issue 283); 16k keys by launches."""
    for machine in ("a100", "h100"):
        assert within(2.0, pm.choose("sort", machine).crossover("merge", "radix"), 16 * KIB)
    assert pm.choose("sort", "a100", dtype="fp64").crossover("merge", "radix") > 32 * KIB  # type: ignore[operator]


@pytest.mark.parametrize("rows", [1, 20])
def test_many_blocks_share_a_row_from_20_000_elements_on(rows: int) -> None:
    """PyTorch's should_use_multiblock (TensorTopK.cu): up to 20 rows from 20 000 elements on."""
    found = pm.choose("topk", "a100", rows=rows, k=50)
    assert within(2.0, found.crossover("radix_select", "radix_select_multi"), 20_000)


def test_a_select_in_one_block_loses_to_a_sort_of_a_long_row() -> None:
    """20 times at a million (pytorch/pytorch pull request 68632)."""
    found = pm.choose("topk", "a100", rows=1, cols=10**6, k=50)
    assert within(2.0, found.speedup("radix_select", "sort"), 20.0)


@pytest.mark.parametrize(
    ("machine", "dtype", "cols", "measured_us"),
    [("a100-sxm4-80gb", "int8", 2**28, 912.6), ("b200", "int8", 2**28, 490.7), ("b200", "fp32", 2**28, 543.9),
     ("a100-sxm4-80gb", "int8", 2**24, 68.4)],
)  # fmt: skip
def test_look_back_takes_its_instructions_whatever_its_bytes(
    machine: str, dtype: str, cols: int, measured_us: float
) -> None:
    """NVIDIA/cccl pull requests 302, 6639 and 3559: NVBench, cold; the clocks of an element are read off these."""
    found = pm.predict(pm.Scan(cols=cols, dtype=dtype), machine, library="cub")
    assert 1e6 * float(found.predicted_time_s) == pytest.approx(measured_us, rel=0.15)


def test_look_back_moves_least_and_is_fastest() -> None:
    for cols in (2**12, 2**20, 2**28):
        assert pm.choose("scan", "a100", cols=cols).best == "look_back"


@pytest.mark.parametrize(("seq", "speedup"), [(512, 3.0), (1024, 3.0), (2048, 3.0)])
def test_flash_attention_is_3_times_faster(seq: int, speedup: float) -> None:
    """3 times at 1k (Dao et al. 2022, arXiv 2205.14135, abstract), 2 to 4 in its table."""
    op = pm.Attention(batch=8, heads=16, seq_q=seq, head_dim=64, dtype="fp16")
    assert within(1.5, pm.choose(op, "a100").speedup("unfused", "flash"), speedup)


def test_linear_attention_from_some_thousand_positions_on() -> None:
    """Selective scans beat FlashAttention-2 beyond 2K (Mamba, arXiv 2312.00752, section 4.5)."""
    op = pm.Attention(batch=8, heads=16, seq_q=2048, head_dim=64, dtype="bf16", causal=True)
    found = pm.choose(op, "a100")
    assert within(2.0, found.crossover("flash", "linear"), 2048)
    assert found.best == "flash", "another function is no choice"


@pytest.mark.parametrize(
    ("machine", "gpus", "measured"),
    [
        ("a100", 4, 512 * KIB),  # vLLM, custom_all_reduce.cuh: 512 KiB up to 4 devices, 256 KiB up to 8
        ("a100", 8, 256 * KIB),
        ("h100", 4, 512 * KIB),
        ("h100", 8, 256 * KIB),
        ("a100", 8, MIB / 8),  # FlashInfer: S n up to 1 MiB
        ("h100", 8, MIB / 8),
        ("gb200-nvl72", 8, 5.3 * MIB / 8),  # lightseekorg/tokenspeed pull request 1234: S n = 5.3 MiB and 4.4 MiB
        ("gb200-nvl72", 16, 4.4 * MIB / 16),
    ],
)
def test_one_shot_and_two_shot(machine: str, gpus: int, measured: float) -> None:
    found = pm.choose("all_reduce", machine, num_gpus=gpus)
    assert within(2.0, found.crossover("one_shot", "two_shot"), measured)


def test_one_shot_by_hand() -> None:
    # 8 devices, 1 MiB: one-shot reads 7 MiB, two-shot 2 x 7/8
    found = pm.choose("all_reduce", "h100", bytes=2**20, num_gpus=8)
    assert (found["one_shot"].bytes, found["two_shot"].bytes) == (7 * MIB, 1.75 * MIB)
    assert found["recursive_doubling"].bytes == 3 * MIB
    assert pm.choose("all_reduce", "h100", num_gpus=6)["recursive_doubling"].why_not


def test_a_switch_that_reduces_takes_nine_eighths_of_the_message() -> None:
    found = pm.choose("all_reduce", "h100", bytes=2**30, num_gpus=8)
    assert found.best == "in_switch"
    assert found["in_switch"].bytes == 1.125 * 2**30
    predicted = float(pm.predict(pm.AllReduce(bytes=2**30, num_gpus=8), "h100").predicted_time_s)
    assert found["in_switch"].time_s == pytest.approx(predicted)
    none = pm.choose("gradient_compression", "h100", bytes=2**30, num_gpus=8)["none"]
    assert none.time_s == pytest.approx(found["in_switch"].time_s)
    for machine, gpus in (("a100", 8), ("h100", 2), ("l40s", 8)):
        listed = pm.choose("all_reduce", machine, bytes=2**30, num_gpus=gpus)
        assert "in_switch" not in {row.algorithm for row in listed.rows}


def test_through_the_host_rings_share_its_bridges() -> None:
    found = pm.choose("all_reduce", "l40s", bytes=2**26, num_gpus=8)
    assert "through the host" in found["one_shot"].why_not
    pair = pm.choose("all_reduce", "l40s", bytes=2**26, num_gpus=2)
    assert not pair["one_shot"].why_not
    assert found["ring"].time_s > 2 * pair["ring"].time_s


def test_a_tree_pays_for_small_messages_of_many_devices() -> None:
    """NCCL's flags go up and down a tree; the ring, which synchronises first, takes over at some MiB on 8 devices."""
    found = pm.choose("all_reduce", "h100", num_gpus=8)
    assert within(2.0, found.crossover("tree", "ring"), 8 * MIB)
    many = pm.choose("all_reduce", "h100", num_gpus=64)
    assert many.crossover("tree", "ring") > 5 * found.crossover("tree", "ring")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("machine", "gpus"), [("h100", 8), ("h100", 2), ("h100", 16), ("h100", 64), ("a100", 4), ("b200", 8), ("l40s", 8),
                          ("mi300x", 8), ("a100", 16)],
)  # fmt: skip
@pytest.mark.parametrize("size", [2**14, 2**20, 2**24, 2**30])
def test_the_fastest_all_reduce_of_nccl_is_what_a_prediction_says(machine: str, gpus: int, size: int) -> None:
    op = pm.AllReduce(bytes=size, num_gpus=gpus)
    call, found = pm.predict(op, machine), pm.choose(op, machine)
    of_nccl = [row for row in found.rows if row.algorithm in ("ring", "in_switch")]
    if machine != "l40s":  # through the host NCCL has rings
        of_nccl.append(found["tree"])
    best = min(of_nccl, key=lambda row: row.time_s)
    assert best.time_s == pytest.approx(float(call.predicted_time_s))
    assert best.time_low_s == pytest.approx(float(call.predicted_time_low_s))
    assert best.time_high_s == pytest.approx(float(call.predicted_time_high_s))
    assert best.basis.startswith("NCCL's choice")


def test_compressing_gradients_gains_little_or_loses() -> None:
    """Agarwal et al. 2021, arXiv 2103.00543: net speedups are marginal or negative; encoding is kernels, not bytes."""
    found = pm.choose("gradient_compression", "h100", bytes=100e6, num_gpus=8)  # ResNet-50
    assert found.best == "none"
    large = pm.choose("gradient_compression", "a100", bytes=1.3e9, num_gpus=8)  # BERT-large
    assert large.speedup("none", large.best) < 2.0


def test_gelu_by_any_form_takes_the_same_time_on_a_gpu() -> None:
    for machine in ("h100", "a100", "l40s"):
        times = {row.algorithm: row.time_s for row in pm.choose("gelu", machine).rows}
        assert len(set(times.values())) == 1, machine


def test_gumbel_max_pays_only_where_it_is_fused() -> None:
    """92 and 14 us for 64 rows of 128k on H100; a compiler's gain is 4 to 6 % (pytorch/pytorch issue 171143)."""
    found = pm.choose("sampling", "h100", rows=64, vocab=128256)
    assert 1.0 <= found.speedup("multinomial", "gumbel") < 1.1
    assert within(1.1, found.speedup("multinomial", "gumbel_fused"), 92 / 14)
    assert math.isclose(found["gumbel"].bytes, found["multinomial"].bytes)


def test_top_p_without_a_sort() -> None:
    """A pivot search reads a few times what a sort moves 25 times (flashinfer pull request 1035)."""
    found = pm.choose("sampling", "h100", rows=64, vocab=128256, algorithm="top_p")
    assert found.best == "top_p_pivot"
    assert found.speedup("top_p", "top_p_pivot") > 4


def test_the_loss_in_chunks_buys_memory_and_no_time() -> None:
    """Liger-Kernel's own benchmark on A100: 221 ms for plain logits and loss, 277 ms in chunks, 12.6 GB less."""
    found = pm.choose(pm.LinearCrossEntropy(rows=16384, hidden=4096, vocab=128256, dtype="bf16"), "a100-sxm4-80gb")
    assert within(1.3, found["plain"].time_s, 0.221)
    assert within(1.3, found["chunked"].time_s, 0.277)
    assert found["chunked"].time_s > found["plain"].time_s
    assert found["plain"].workspace_bytes - found["chunked"].workspace_bytes == pytest.approx(12.5e9, rel=0.02)


def test_a_fused_optimizer_moves_28_bytes_a_weight() -> None:
    found = pm.choose("optimizer", "a100", parameters=2**27)
    assert found.best == "fused"
    assert [found[name].bytes / 2**27 for name in ("fused", "foreach")] == [28.0, 80.0]
    assert within(1.1, found.speedup("foreach", "fused"), 80 / 28)
    master = pm.choose(pm.Optimizer(parameters=2**20, dtype="bf16", master=True), "a100")
    assert "does not exist" in master["loop"].why_not
