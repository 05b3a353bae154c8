"""What loops of chance are made of."""

from __future__ import annotations

from typing import Any

_MM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >"
_CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc"
OPS: tuple[tuple[str, str, int, list[Any], str], ...] = (
    ("aten::mm", _MM, 90, [[512, 256], [256, 128]], "c10::BFloat16"),
    (
        "aten::mm",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(P)",
        140,
        [[96, 64]] * 2,
        "float",
    ),
    ("aten::add", ADD, 30, [[512, 512], [512, 512], []], "float"),
    ("aten::mul", ADD.replace("add", "mul"), 9, [[4_096], [4_096]], "float"),
    ("aten::cudnn_convolution", _CONV, 70, [[8, 16, 32, 32], [32, 16, 3, 3]], "float"),
    (
        "aten::sum",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(R)",
        20,
        [[640, 640]],
        "float",
    ),
    (
        "aten::index_select",
        "void at::native::indexSelectLargeIndex<float>(I)",
        16,
        [[900, 64], [], [77]],
        "float",
    ),
)  # name, kernel, us, inputs, type
SORTS = (
    *("op", "op", "op", "op", "nested", "backward", "graph", "upload", "item", "sync", "side", "device"),
    *("memset", "host", "alloc", "reduce", "gather", "send", "lost", "optimizer"),
)
COLLECTIVES = {
    "reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "send": ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}
