"""What names tell: kinds of work, data types, kinds of calls."""

import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.formats.exchange_names import kernel_operation
from perfmodel.formats.kernel_names import call_kind, event_kind, kernel_dtype
from perfmodel.profile.timeline import CallKind


@pytest.mark.parametrize(
    ("name", "recorded_as", "kind"),
    [
        ("__amd_rocclr_copyBuffer", "kernel", EventKind.MEMCPY),
        ("__amd_rocclr_fillBufferAligned", "kernel", EventKind.MEMSET),
        ("__amd_rocclr_initHeap", "kernel", EventKind.KERNEL),
        ("ampere_sgemm_128x64_nn", "kernel", EventKind.KERNEL),
        ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", EventKind.MEMCPY),
        ("Memset (Device)", "gpu_memset", EventKind.MEMSET),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)", "kernel", EventKind.COMMUNICATION),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(RankData*)", "kernel", EventKind.COMMUNICATION),
        ("rcclDevKernel_Generic(x)", "kernel", EventKind.COMMUNICATION),
        ("mscclKernel_Sum_half_Simple(x)", "kernel", EventKind.COMMUNICATION),
        ("nvshmemi_transfer_rma(x)", "kernel", EventKind.COMMUNICATION),
        ("void symm_mem::barrier_kernel(x)", "kernel", EventKind.COMMUNICATION),
        ("void two_shot_all_reduce_kernel<16>(x)", "kernel", EventKind.COMMUNICATION),
        ("void one_shot_allreduce<float>(x)", "kernel", EventKind.COMMUNICATION),
        ("multimem_all_reduce_kernel(x)", "kernel", EventKind.COMMUNICATION),
        ("void deep_ep::intranode::dispatch<8>(x)", "kernel", EventKind.COMMUNICATION),
        ("void deep_ep::internode::combine<8>(x)", "kernel", EventKind.COMMUNICATION),
        ("void deep_ep::intranode::layout(x)", "kernel", EventKind.KERNEL),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(x)", "kernel", EventKind.COMMUNICATION),
        ("void deep_ep::intranode::notify_dispatch<8>(x)", "kernel", EventKind.COMMUNICATION),
        ("void deep_ep::internode::cached_notify<false, 4>(x)", "kernel", EventKind.COMMUNICATION),
        ("MscclKernel_Sum_half_Simple(x)", "kernel", EventKind.COMMUNICATION),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", "kernel", EventKind.COMMUNICATION),
        ("userbuffers_fp16_sum_inplace_gpu_rw_ag(x)", "kernel", EventKind.COMMUNICATION),
        ("kuserbuffers_pushsend(int*, int*)", "kernel", EventKind.COMMUNICATION),
        ("void aiter::allreduce_fusion_kernel_1stage<bf16, 8>(x)", "kernel", EventKind.COMMUNICATION),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __half, 4>(x)",
            "kernel",
            EventKind.COMMUNICATION,
        ),
        # a compiler names its kernels after the operators around them
        ("triton_poi_fused_all_reduce_wait_tensor_0", "kernel", EventKind.KERNEL),
        ("triton_red_fused_one_shot_all_reduce_1", "kernel", EventKind.KERNEL),
        ("void block_all_reduce_sum<float>(x)", "kernel", EventKind.KERNEL),
        # a category decides; without one, a name that starts like a copy is one
        ("memcpy_kernel(float*)", "kernel", EventKind.KERNEL),
        ("[CUDA memcpy HtoD]", "", EventKind.MEMCPY),
        ("[CUDA memset]", "", EventKind.MEMSET),
        ("HIP memset", "", EventKind.MEMSET),
        ("my_memcpy_kernel", "", EventKind.KERNEL),
        ("void gemm<float>(float*)", "", EventKind.KERNEL),
    ],
)
def test_the_kind_of_work(name, recorded_as, kind):
    assert event_kind(name, recorded_as) is kind


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "reduce_scatter"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(x)", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(x)", "dispatch"),
        ("void deep_ep::intranode::cached_notify_combine<8>(x)", "barrier"),
        ("void deep_ep::internode::cached_notify<false, 4>(x)", "barrier"),
        ("kuserbuffers_pushrecv(int*)", "send_recv"),
        ("userbuffers_fp16_sum_inplace_gpu_rw(x)", "all_reduce"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs(x)", "reduce_scatter"),
        ("void userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<half>(x)", "reduce_scatter"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_ag(x)", "all_gather"),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", "all_reduce"),
        ("void c10d::<unnamed>::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", "all_reduce"),
        ("nvshmemi_transfer_rma(x)", "nvshmemi_transfer_rma(x)"),
    ],
)
def test_what_a_kernel_exchanges(name, said):
    assert kernel_operation(name) == said


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", CallKind.LAUNCH),
        ("hipGraphLaunch", CallKind.LAUNCH),
        ("cuLaunchKernel", CallKind.LAUNCH),
        ("cudaStreamSynchronize", CallKind.SYNC),
        ("hipMemcpyWithStream", CallKind.COPY),
        ("cudaMemsetAsync", CallKind.COPY),
        ("cudaMalloc", CallKind.OTHER),
        ("urQueueFinish", CallKind.SYNC),
        ("urEventWait", CallKind.SYNC),
        ("piEventsWait", CallKind.SYNC),
        ("zeEventHostSynchronize", CallKind.SYNC),
        # waits of a queue for events, not of the host
        ("urEnqueueEventsWait", CallKind.OTHER),
        ("urEnqueueKernelLaunch", CallKind.LAUNCH),
        ("urEnqueueUSMMemcpy", CallKind.COPY),
    ],
)
def test_the_kind_of_a_call(name, kind):
    assert call_kind(name) is kind


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("ampere_sgemm_128x64_nn", "float"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "float"),
        ("turing_hgemm_64x64", "c10::Half"),
        ("void f<c10::Half, float>(int)", "c10::Half"),
        ("void f<c10::BFloat16, float>(int)", "c10::BFloat16"),
        ("void copy<OpaqueType<8u>, 4>(char*)", "double"),
        ("cub::DeviceScanKernel", ""),
    ],
)
def test_the_data_type(name, dtype):
    assert kernel_dtype(name) == dtype
