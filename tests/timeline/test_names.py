"""What names mean: copies, communication, launches and captures of every vendor."""

from __future__ import annotations

import pytest

from traceanalyzer.timeline import names


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllGather_LL",
        "void one_shot_all_reduce_kernel<c10::BFloat16, 4>(...)",
        "two_shot_all_reduce_kernel",
        "void c10d::symmetric_memory::multimem_one_shot_all_reduce_kernel<float>",
        "multimem_all_gather_kernel",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
        "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>",
        "hcomAllReduce_",
        "oneccl_allreduce_small",
        "mscclpp::allreduce7",
        "mscclKernel_Sum_float",
        "pplx::dispatch_kernel",
        "void deep_ep::internode_ll::dispatch<false, 7168>",
        "nvshmemi_barrier",
        "void at::native::all_reduce_one_shot<float>",
    ],
)
def test_communication(name: str) -> None:
    assert names.COMMUNICATION.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
        "triton_red_fused_add_all_0",
        "void cub::DeviceReduceKernel<...>",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel",
        "vectorized_gather_kernel",
    ],
)
def test_no_communication(name: str) -> None:
    assert not names.COMMUNICATION.search(name)


@pytest.mark.parametrize(
    ("name", "starts_work"),
    [
        ("cudaLaunchKernel", True),
        ("cudaLaunchKernelExC_v11060", True),
        ("cuLaunchKernelEx", True),
        ("hipLaunchKernel", True),
        ("hipExtModuleLaunchKernel", True),
        ("hipModuleLaunchKernel", True),
        ("cudaGraphLaunch", True),
        ("hipGraphLaunch", True),
        ("cudaLaunchCooperativeKernel", True),
        ("hipLaunchCooperativeKernel", True),
        ("urEnqueueKernelLaunch", True),
        ("piextEnqueueCooperativeKernelLaunch", True),
        ("zeCommandListAppendLaunchKernel", True),
        ("urEnqueueUSMMemcpy", False),
        ("cudaMemcpyAsync", False),
        ("cudaLaunchHostFunc", False),
        ("cudaFuncGetAttributes", False),
    ],
)
def test_launches(name: str, starts_work: bool) -> None:
    assert bool(names.LAUNCH.search(name)) == starts_work


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("CopyHostToDevice", "h2d"),
        ("Memcpy HtoA (Host -> Array)", "other"),
        ("Memcpy (Host -> Device)", "h2d"),
        ("Memcpy (Device -> Host)", "d2h"),
        ("Memcpy (Device -> Device)", "d2d"),
        ("Memcpy PeerToPeer", "p2p"),
        ("Memcpy M2D (MEMORY -> DEVICE)", "h2d"),
        ("Memcpy D2M (DEVICE -> MEMORY)", "d2h"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "d2d"),
        ("Memcpy S2D (SHARED -> DEVICE)", "other"),
    ],
)
def test_copies(name: str, kind: str) -> None:
    assert names.copy_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("entire_frame_compile (dynamo_timed)", True),
        ("CachingAutotuner.benchmark", True),
        ("CUDAGraphNode.record (dynamo_timed)", False),  # captures
        ("Torch-Compiled Region: 0/0", False),  # runs what was compiled
        ("## Call CompiledFxGraph fx_compile.x ##", False),
        ("aten::mm", False),
    ],
)
def test_compiling_is_not_running_compiled_code_or_capturing(name: str, compiles: bool) -> None:
    assert names.is_compilation(name) is compiles
