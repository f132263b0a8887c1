"""What names of kernels tell of their arithmetic: dtype and engine, as the libraries write them."""

import pytest

from perfmodel.profile.arithmetic import kernel_arithmetic, uses_tf32


@pytest.mark.parametrize(
    ("name", "dtype", "engine"),
    [
        # cuBLAS, cuDNN
        ("volta_sgemm_128x64_nn", "fp32", "vector"),
        ("volta_dgemm_64x64_nn", "fp64", "vector"),
        ("maxwell_hgemm_256x128_nt", "fp16", "vector"),
        ("maxwell_scudnn_128x64_relu_small_nn_v1", "fp32", "vector"),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "fp32", "vector"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "fp16", "tensor"),
        ("volta_s884cudnn_fp16_256x128_ldg8_relu_exp_interior_nhwc_tn_v1", "fp16", "tensor"),
        ("volta_h884gemm_256x64_ldg8_tn", "fp16", "tensor"),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", "bf16", "tensor"),
        ("void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int)", "fp32", "vector"),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", "fp32", "vector"),
        # CUTLASS
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "fp32", "vector"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)", "tf32", "tensor"),
        ("cutlass_75_tensorop_s1688gemm_f16_256x128_nt_align8", "fp16", "tensor"),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8", "bf16", "tensor"),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8", "bf16", "tensor"),
        ("cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1", "fp64", "tensor"),
        ("cutlass_tensorop_i16832gemm_s8_256x128_128x3_tn_align16", "int8", "tensor"),
        ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128", "fp8", "tensor"),
        ("cutlass3x_sm90_tensorop_s64x128x8tf32gemm_f32_f32_f32_f32_f32_128x128x32", "tf32", "tensor"),
        # xmma
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", "bf16", "tensor"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma", "fp32", "vector"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16_tensor16x8x8", "tf32", "tensor"),
        (
            "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16",
            "tf32",
            "tensor",
        ),
        # rocBLAS and hipBLASLt, MIOpen
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1", "fp32", "vector"),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1_SN_K1", "fp32", "tensor"),
        ("Cijk_Ailk_Bljk_DB_MT64x64x8_SE_K1", "fp64", "vector"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", "fp16", "tensor"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1_SN", "bf16", "tensor"),
        ("Cijk_Alik_Bljk_S_MX_B_Bias_HA_S_SAV_UserArgs_MT64x32x32_MI16x16x1_SN", "tf32", "tensor"),
        ("Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x64_MI16x16x1_SN", "fp8", "tensor"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8", "bf16", "tensor"),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", "fp32", "vector"),
    ],
)
def test_dtype_and_engine(name, dtype, engine):
    assert kernel_arithmetic(name) == (dtype, engine)
    assert uses_tf32(name) is (dtype == "tf32")


@pytest.mark.parametrize(
    "name",
    [
        "triton_tem_fused_mm_0",
        "matmul_kernel_0d1d2d3de4de5de",
        "nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)",
        "some_gemm",
        "gemm",
        "fused_mlp_fprop",
    ],
)
def test_other_names_tell_nothing(name):
    assert kernel_arithmetic(name) is None
