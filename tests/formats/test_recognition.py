"""Real files are recognised by their content, whatever their name."""

import shutil

import pytest

from perfmodel.errors import InputFileError
from perfmodel.formats.detect import read_profile


@pytest.mark.parametrize(
    ("file", "format_", "entries"),
    [
        ("nsys/ginda_h100_2gpu_megatron_before.sqlite", "nsys sqlite", 36),
        ("nsys/ginda_rtx3080_mock_minimal.sqlite", "nsys sqlite", 3),
        ("nsys/yashlabs_qwen_decode_cuda_api_sum.csv", "nsys stats", 10),
        ("nsys/yashlabs_qwen_decode_cuda_gpu_kern_sum.csv", "nsys stats", 34),
        ("nsys/yashlabs_qwen_decode_nvtx_sum_top.csv", "nsys stats", 22),
        ("ncu/olajide_rtx5070_gemm_naive.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_gemm_tiled.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_saxpy.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_transpose_naive.csv", "ncu", 1),
        ("torch_profiler/ao_sdpa_key_averages.txt", "key_averages", 1),
        ("torch_profiler/ao_stablediffusion_key_averages.txt", "key_averages", 7),
        ("profile_tables/tracelens_h100_qwen_kernel_summary.csv", "table", 26),
        ("profile_tables/tracelens_h100_qwen_ops_summary.csv", "table", 20),
    ],
)
def test_each_real_file_has_its_reader(data_dir, tmp_path, file, format_, entries):
    shutil.copyfile(data_dir / file, tmp_path / "anything")
    profile = read_profile(tmp_path / "anything")
    assert (profile.format, len(profile.entries)) == (format_, entries)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("ncu/olajide_rtx5070_nvml.csv", "no column holds a name; the columns are 'timestamp', 'power_w'"),
        ("ncu/olajide_rtx5070_peaks.csv", "no column holds a time; the columns are 'label', 'peak_flops'"),
        ("ncu/olajide_rtx5070_manifest.json", "holds no list of rows"),
        (
            "profile_tables/neusight_opgraph_A100-PCIE-40GB_bert_large-inf-512-16.csv",
            "'latency' has no unit.*latency_ms",
        ),
        ("profile_tables/neusight_opgraph_H100_80GB_HBM3_bert_large-train-512-2.csv", "'latency' has no unit"),
    ],
)
def test_a_file_that_is_no_profile_says_why(data_dir, file, message):
    with pytest.raises(InputFileError, match=message):
        read_profile(data_dir / file)
