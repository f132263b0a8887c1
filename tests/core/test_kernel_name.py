"""Names of C++ kernels as people read them, and names that are none."""

from __future__ import annotations

import pytest

from perfmodel.core.kernel_name import function_of


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::max_pool<float, float>(int, float*)", "max_pool"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>(cudnnTensorStruct)", "bn_fw_tr_1C11_kernel_NCHW"),
        ("void foo(int)", "foo"),
        (
            "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, 8, (a)0>(cublasGemvParams<T5>)",
            "gemvx::kernel",
        ),
        ("unnamed>::gemm_naive_kernel(const float *)", "gemm_naive_kernel"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_f16>(cutlass_80_tensorop_f16::Params)",
            "cutlass::Kernel2<cutlass_80_tensorop_f16>",
        ),
        ("scale(float const*, float)", "scale"),
        ("reduce(unsigned long)", "reduce"),
        ("attention (forward)", "attention (forward)"),
        ("decode(int8 weights)", "decode(int8 weights)"),
        ("a <b", "a <b"),
        ("<<<", "<<<"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("aten::add(1x141x512) bf16", "aten::add(1x141x512) bf16"),
    ],
)
def test_kernels_are_called_by_their_function(name, short):
    assert function_of(name) == short
