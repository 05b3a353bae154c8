"""Families of kernels by the names that libraries and compilers give them: what a kernel computes, and how.

NVIDIA: cuBLAS (nvjet, xmma, ampere_, volta_, turing_), cuDNN, CUTLASS. AMD: hipBLASLt and Tensile (Cijk), MIOpen,
composable kernel. Triton: what Inductor calls poi, red and per. The rest is torch's own, alike on CUDA and HIP.
"""

import re
from functools import lru_cache

from traceanalyzer.model.text_queries import regex

_I = re.IGNORECASE

GEMM = regex(r"nvjet_|gemm|cutlass.*(tensorop|simt)|Cijk_|wmma_tensorop|triton_tem_fused.*mm|dot_kernel_batched", _I)
CONVOLUTION = regex(
    r"conv|fprop|[wd]grad|implicit|winograd|scudnn|hcudnn|igemm_(fwd|bwd|wrw)|naive_conv|dgrad2d|wgrad2d", _I
)
AMD_PRODUCT = regex(r"Cijk_|(?<![a-z])ck(_tile)?::|miopen|igemm_\w+_gtc|rocblas", _I)
GEMM_OR_CONVOLUTION = regex(f"{GEMM.pattern}|{CONVOLUTION.pattern}", _I)
ATTENTION = regex(r"flash|fmha|sdpa|mem_eff|attention|attn_[fb]wd|bwd_kernel_(dq|dk|fuse)|fwd_splitkv", _I)

# One thread per element, or a few: eager TensorIterator kernels and Inductor's pointwise ones.
POINTWISE = regex(
    r"(vectorized_|unrolled_|legacy_|vectorized_templated_)?elementwise_kernel|triton_poi_|triton_unk_"
    r"|elementwise_kernel_helper|CUDALoops|fused_dropout_kernel|GeluCUDAKernel"
)
# They are written as elementwise kernels, but read or write where an index says, or count.
INDEXED = regex(r"(index|scatter_gather)_elementwise_kernel|elementwise_kernel_with_index")
COMPLEX = regex(r"complex<")  # Inductor makes no code for complex numbers: it calls the ops; torch 2.13
REDUCTION = regex(r"at::native::reduce_kernel|triton_(red|per)_|row_reduce|RowwiseMoments|softmax_warp_|SoftMax")
EAGER_REDUCTION = regex(r"at::native::reduce_kernel|^reduce_kernel|RowwiseMoments")
DEQUANTIZATION = regex(r"dequant(?!\w*(gemm|matmul|_mm))", _I)  # of weights with few bits, alone
FILL = regex(r"FillFunctor|fill_kernel|memset", _I)
SOFTMAX = regex(r"softmax", _I)
SOFTMAX_OF_ROWS = regex(r"SoftMax(?:For|Back)ward")  # over long rows; short rows have another kernel
LOG_SOFTMAX = regex(r"LogSoftMax(?:For|Back)ward")

# Kernels that only move or convert. A copy between equal types is a memcpy where both sides are contiguous, and else
# the plain elementwise kernel; conversions have an own name or the unrolled kernel.
STRIDED_COPY = regex(r"(?<!vectorized_)(?<!unrolled_)elementwise_kernel<.*direct_copy_kernel|transpose_(read|write)")
# Ops that copy their bias into the output and add a product to it.
ADDS_PRODUCT = regex(r"^aten::_?(addmm|baddbmm|addbmm)")
CONCATENATION = regex(r"CatArrayBatchedCopy|chunk_cat|triton_poi_fused_cat")
CONVERSION = regex(
    r"(bfloat16|float16|float8_?\w*)_copy_kernel|unrolled_elementwise_kernel<.*direct_copy_kernel"
    r"|unrolled_elementwise_kernel<.*(bfloat16|float16)_copy_kernel"
)
COPY = regex(
    rf"{STRIDED_COPY.pattern}|{CONCATENATION.pattern}|{CONVERSION.pattern}|direct_copy_kernel|_copy_kernel_cuda"
    r"|split_with_sizes_copy|batched_transpose|repeat_interleave|indexSelect|index_select|gather_kernel|PadKernel|_pad_"
)

# Layout conversions that a convolution library puts around its kernels.
LAYOUT = regex(
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose_\d+x|transposeTensor"
    r"|convertTensor_kernel(?!.*unsigned long\))"  # that one has a flat count: it rounds operands for TF32
    r"|SubTensorOpWithCastTensor.*transpose",
    _I,
)
# torch's batch norm for NCHW: one block per channel. Channels-last kernels say so in their names.
NCHW_BATCH_NORM = regex(r"batch_norm_(?!\w*channels_last)(collect_statistics|backward|transform_input)\w*_kernel")
DEPTHWISE = regex(r"conv_depthwise2d_(forward|backward|grad_weight)")

# Float32 products on units that are no tensor cores: CUTLASS's simt, cuBLAS's ffma and sgemm, cuDNN's scudnn, and
# Tensile's single precision (its type comes after the two operands' indices) unless it computes in xf32.
FP32_ARITHMETIC = regex(
    r"simt_s(gemm|fprop|dgrad|wgrad)|f32f32_f32f32_c?f32.*ffma|cf32cf32_f32f32.*ffma|(?<![a-z])sgemm_(?!\w*tensorop)|scudnn"
    r"|convolve_sgemm<float|fft2d_|winograd.*(fp32|<float|<\d, float)"
    r"|(conv2d|dgrad2d|wgrad2d)_\w+<[^>]*float, float, float"
    r"|dgrad2d_alg1_\w+<float|[dw]grad\w*_engine<float"
    r"|Cijk_[A-Z][a-z]+_[A-Z][a-z]+_S_?B_|(igemm|[cC]onv)\w*_fp32|fmha_cutlass[FB]_f32"
)
# AMD's matrix cores: the matrix instruction of Tensile, MIOpen's and composable kernel's own words for it.
MATRIX_CORES = regex(r"_MI\d+x\d+x|gtcx|xdl|mfma", _I)
FEWER_PRODUCTS = regex(r"winograd|sp3asmconv|fft2d|cf32cf32", _I)  # convolutions that trade products for sums
TENSOR_CORES_FP32 = regex(r"tf32|tfloat32|s1688|s16816|xf32|tensorop_s(?!\w*simt)", _I)
# cuDNN's convolutions on ordinary units, also of 16-bit numbers: where no kernel on tensor cores fits sizes and stride.
SCALAR_CONVOLUTION = regex(r"[dw]grad\w*_engine<|convolve_sgemm<")
FP32_ATTENTION = regex(r"fmha_cutlass[FB]_f32")
# A matrix times a vector is bound by memory on whatever unit.
VECTOR_PRODUCT = regex(r"gemv|gemvx|dot_kernel|splitKreduce|split_k_reduce|gemmk1", _I)

FP64_ARITHMETIC = regex(
    r"f64f64|(?<![a-z])d(gemm|gemv|884|syrk|trsm)|_d884|dmma|Cijk_[A-Z][a-z]+_[A-Z][a-z]+_D_?B_|(igemm|conv)\w*_fp64"
    r"|(Functor\w*|ReduceOp|Ops|std::plus|std::multiplies|_kernel\w*)<double|<double, double|lambda\(double\)"
    r"|complex<double|_fft\w*<.*\bdouble\b"
)

# Half-precision products whose loads are narrower than 16 bytes, and tensor-core kernels of an older architecture.
NARROW_LOADS = regex(r"(align[124]|aligna[124]_alignc[124]|_a[124]_b[124])(?!\d)")
HALF_ARITHMETIC = regex(
    r"bf16|fp?16|cutlass\w*::(bfloat16|half)_t|h(1688|16816|884)|s(1688|16816|884)(gemm|fprop)_(bf16|f16)|_h(gemm|mma)",
    _I,
)
OTHER_ARITHMETIC = regex(r"simt|tf32|f32f32|f64")
# Products in 16 and 8 bits: also cuBLAS's nvjet by its letter for the operands (t bfloat16, h float16, q float8),
# Tensile by its letters, and flash attention, which has no other type.
LOW_PRECISION = regex(
    rf"{HALF_ARITHMETIC.pattern}|nvjet_(sm\d+_)?(oo)?[thq]\w\w+_|Cijk_[A-Z][a-z]+_[A-Z][a-z]+_(H|B|F8)\w*_|flash_(fwd|bwd)",
    _I,
)
OLD_TENSOR_CORES = regex(r"cutlass_(70|75)_(wmma_)?tensorop|(volta|turing)_[hs]?\w*gemm")

_MOST_NAMES = 8_192  # whose answers are kept: ranks of a job run the same kernels, some hundred

# What libraries of computation and compilers of kernels call theirs, beside the families above.
_LIBRARY = regex(
    r"at::native|at_cuda_detail|(?<![a-z])(cub|thrust|cudnn|cutlass|cute|ck|rocprim|miopen|fbgemm_gpu|flashinfer|vllm)::"
    r"|triton_(poi|red|per|tem|for|unk|mm)_|multi_tensor|fused_?adam|layer_?norm|rms_?norm|rotary|quant|memset|memcpy|topk"
    r"|silu|gelu|swiglu|embedding|transpose|cudnn|splitKreduce|RNN|LSTM|GRU_|fft|curand|philox",
    re.IGNORECASE,
)


@lru_cache(_MOST_NAMES)
def computes(name: str) -> bool:
    """Whether the name is one that only kernels have which compute or copy on their own device."""
    families = (GEMM_OR_CONVOLUTION, ATTENTION, POINTWISE, REDUCTION, COPY, LAYOUT, VECTOR_PRODUCT, SOFTMAX)
    return bool(_LIBRARY.search(name)) or any(family.search(name) for family in families)


@lru_cache(_MOST_NAMES)
def is_product(name: str) -> bool:
    """A matrix product, a convolution or attention."""
    return bool(GEMM_OR_CONVOLUTION.search(name) or ATTENTION.search(name))


@lru_cache(_MOST_NAMES)
def is_full_fp32(name: str) -> bool:
    """A product in full float32 precision, which NVIDIA's tensor cores lack; more than a matrix times a vector."""
    others = (TENSOR_CORES_FP32, HALF_ARITHMETIC, VECTOR_PRODUCT)
    return bool(FP32_ARITHMETIC.search(name)) and not any(other.search(name) for other in others)


@lru_cache(_MOST_NAMES)
def is_tf32(name: str) -> bool:
    """A matrix product or convolution of float32 on tensor cores; `s16816` is that of half precision as well."""
    product = GEMM_OR_CONVOLUTION.search(name) and TENSOR_CORES_FP32.search(name)
    return bool(product and not HALF_ARITHMETIC.search(name))


@lru_cache(_MOST_NAMES)
def is_half_with_narrow_loads(name: str) -> bool:
    """A half-precision matrix product that loads less than 16 bytes at once, or is for older tensor cores."""
    if CONVOLUTION.search(name) or OTHER_ARITHMETIC.search(name):
        return False
    slow = NARROW_LOADS.search(name) or OLD_TENSOR_CORES.search(name)
    return bool(slow and HALF_ARITHMETIC.search(name) and GEMM.search(name))


@lru_cache(_MOST_NAMES)
def is_gemm(name: str) -> bool:
    """A product of two matrices: neither a convolution, nor a vector's product, nor what adds up the parts of one."""
    other = CONVOLUTION.search(name) or VECTOR_PRODUCT.search(name)
    return other is None and GEMM.search(name) is not None


_ROWS = regex(rf"{REDUCTION.pattern}|softmax|_norm|RowwiseMoments|argm(ax|in)|cunn_|nll_loss", _I)
_ELEMENTS = regex(rf"{POINTWISE.pattern}|multi_tensor|fused_?adam|rotary|silu|gelu|swiglu", _I)


@lru_cache(_MOST_NAMES)
def family_of(name: str) -> str:
    """What a kernel does: attention, gemm (convolutions, too), moving, reduction, elementwise, or kernel."""
    if ATTENTION.search(name):
        return "attention"
    if LAYOUT.search(name):
        return "moving"
    if GEMM_OR_CONVOLUTION.search(name) or VECTOR_PRODUCT.search(name):
        return "gemm"
    named = {"moving": COPY, "reduction": _ROWS, "elementwise": _ELEMENTS}
    return next((family for family, names in named.items() if names.search(name)), "kernel")


@lru_cache(_MOST_NAMES)
def on_tensor_cores(name: str) -> bool:
    """A product whose name shows 16-bit, 8-bit or TF32 arithmetic, or the matrix instruction itself."""
    narrow = LOW_PRECISION.search(name) or TENSOR_CORES_FP32.search(name) or MATRIX_CORES.search(name)
    return is_product(name) and bool(narrow) and not is_full_fp32(name) and not VECTOR_PRODUCT.search(name)
