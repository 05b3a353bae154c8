"""The op table: one row per family of ops says what they read, write, make and cost.

Everything that asks what an op does asks this table. Ops in place (`add_`) have the row of their family, with a write
into the first input. Of extensions, those that torch itself ships have rows, and fused ops of servers whose inputs
determine their cost. Those of paged attention do not: `tensors/launch_inputs` takes the lengths from marks.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

from traceanalyzer.model.text_queries import regex
from traceanalyzer.tensors.ops import costs, shapes
from traceanalyzer.tensors.ops.costs import CostOf, OpCost
from traceanalyzer.tensors.ops.ffts import fft_cost
from traceanalyzer.tensors.ops.shapes import UNREADABLE, ShapeOf
from traceanalyzer.tensors.signatures import ITEM_BYTES, Shape, Signature


class Kind(StrEnum):
    """What an op computes."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    LINEAR_ALGEBRA = "linear algebra"
    FFT = "fft"
    POINTWISE = "pointwise"
    COPY = "copy"
    VIEW = "view"
    REARRANGE = "rearrange"
    REDUCTION = "reduction"
    SCAN = "scan"
    SOFTMAX = "softmax"
    NORM = "norm"
    LOSS = "loss"
    LOOKUP = "lookup"
    SCATTER = "scatter"
    SORT = "sort"
    COUNT = "count"
    POOL = "pool"
    RESAMPLING = "resampling"
    RANDOM = "random"
    CREATION = "creation"
    LISTS = "lists"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class OpRow:
    """A family of ops.

    Attributes:
        shape: shape of the first result; None if inputs do not determine it.
        cost: operations and bytes at least; None without a model.
        writes: positions of the inputs that it changes.
        unread: positions of the tensors whose numbers it does not read.
        type: element type of the first result: "first" or "widest" of the tensors, or a type's name; "" if unknown.
        batch_dims: dimensions of the result that it computes independently of each other, from the first one on.
        view: whether the result shares the input's memory; some copy if that is impossible.
        deterministic: whether equal inputs give equal results.
        fills: whether it makes a tensor of which all elements are one number.
        row_wise: whether each row, the last dimension, depends on the same row of the first tensor only.
        sums_rows: positions of the tensors of which one may be the data of which each result is a weighted sum of rows:
            linear, with one weight for all elements of a row.
    """

    kind: Kind
    shape: ShapeOf | None = None
    cost: CostOf | None = None
    writes: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    type: str = ""
    batch_dims: int = 0
    view: bool = False
    deterministic: bool = True
    row_wise: bool = False
    fills: bool = False
    sums_rows: tuple[int, ...] = ()


UNKNOWN = OpRow(Kind.OTHER)
_TABLE: dict[str, OpRow] = {}


def _add(names: str, row: OpRow) -> None:
    for name in names.split():
        if name in _TABLE:
            raise ValueError(f"{name} has two rows")
        _TABLE[name] = row


def _pointwise(names: str, **fields: object) -> None:
    row = OpRow(Kind.POINTWISE, shapes.broadcast, costs.pointwise(), type="widest", row_wise=True)
    _add(names, replace(row, **fields))  # type: ignore[arg-type]


# -- products, convolutions, attention, recurrent layers, linear algebra ---------------------------------------

_GEMM = OpRow(Kind.GEMM, type="first", row_wise=True)
_add("mm", replace(_GEMM, shape=shapes.product(0, 1), cost=costs.gemm(0, 1)))
_add("bmm", replace(_GEMM, shape=shapes.product(0, 1), cost=costs.gemm(0, 1), batch_dims=1))
_add("matmul", replace(_GEMM, shape=shapes.product(0, 1)))
_add("linear", replace(_GEMM, shape=lambda op: (*op.shape(0)[:-1], op.shape(1)[0])))
_ADDED = replace(_GEMM, shape=shapes.product(1, 2), cost=costs.gemm(1, 2, bias=0))
_add("addmm _addmm_activation", _ADDED)
_add("baddbmm", replace(_ADDED, batch_dims=1))
_add("_scaled_mm", replace(_GEMM, shape=shapes.product(0, 1), cost=costs.scaled_gemm, type=""))
_add("_weight_int4pack_mm", OpRow(Kind.GEMM, cost=costs.int4_gemm))
_add("_grouped_mm", OpRow(Kind.GEMM, cost=costs.grouped_gemm))
_add("mv dot vdot", OpRow(Kind.GEMM, cost=costs.vector_product(0, 1), type="first"))
_add("addmv", OpRow(Kind.GEMM, cost=costs.vector_product(1, 2), type="first"))
_add("outer", OpRow(Kind.POINTWISE, lambda op: (op.shape(0)[0], op.shape(1)[0]), type="first"))

_CONV = OpRow(Kind.CONVOLUTION, type="first", batch_dims=1)
_add("conv1d conv2d conv3d", replace(_CONV, shape=shapes.convolved(4, 3, 5)))
_add("convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d", _CONV)
_add("cudnn_convolution", replace(_CONV, shape=shapes.convolved(2, 3, 4), cost=costs.conv(2, 3, 4)))
_add("cudnn_convolution_relu", replace(_CONV, shape=shapes.convolved(4, 3, 5), cost=costs.conv(4, 3, 5)))
_add("cudnn_convolution_transpose", replace(_CONV, cost=costs.conv(2, 4, 5, groups=6)))
_add("miopen_convolution", replace(_CONV, shape=shapes.convolved(3, 4, 5), cost=costs.conv(3, 4, 5)))
_add("miopen_convolution_transpose", replace(_CONV, cost=costs.conv(3, 5, 6, groups=7)))
_add("miopen_depthwise_convolution", replace(_CONV, cost=costs.conv(3, 4, 5, costs.DEPTHWISE)))
_add("_conv_depthwise2d conv_depthwise3d", replace(_CONV, cost=costs.conv(5, 4, 6, costs.DEPTHWISE)))
_add("_slow_conv2d_forward slow_conv3d_forward", replace(_CONV, cost=costs.conv(5, 4, None)))
_add("slow_conv_dilated2d slow_conv_dilated3d", replace(_CONV, cost=costs.conv(5, 4, 6)))
_add("slow_conv_transpose2d slow_conv_transpose3d", replace(_CONV, cost=costs.conv(5, 4, 7, groups=-1)))
_add("convolution_backward", OpRow(Kind.CONVOLUTION, cost=costs.conv_backward))

_SDPA = OpRow(Kind.ATTENTION, type="first", batch_dims=2)
_add("scaled_dot_product_attention", replace(_SDPA, shape=lambda op: (*op.shape(0)[:-1], op.shape(2)[-1])))
for _names, _causal in (
    ("_scaled_dot_product_cudnn_attention", 6),
    ("_flash_attention_forward", 8),
    ("_efficient_attention_forward", 9),
    ("_cudnn_attention_forward", 10),
    ("_flash_attention_backward", 11),
    ("_efficient_attention_backward _cudnn_attention_backward _scaled_dot_product_cudnn_attention_backward", 14),
):
    _add(_names, replace(_SDPA, cost=costs.attention(_causal)))

_add("lstm gru rnn_tanh rnn_relu", OpRow(Kind.RECURRENT))
_add("_cudnn_rnn", OpRow(Kind.RECURRENT, cost=costs.recurrent(6, 1)))
_add("_cudnn_rnn_backward", OpRow(Kind.RECURRENT, cost=costs.recurrent(10, 2)))
_REWRITES_FIRST = costs.reads("elementwise", writes=0)
_add("_thnn_fused_lstm_cell _thnn_fused_gru_cell", OpRow(Kind.RECURRENT, cost=_REWRITES_FIRST))
_add("_cdist_forward _euclidean_dist", OpRow(Kind.LINEAR_ALGEBRA, cost=costs.distances))
for _names, _times in (
    ("linalg_cholesky_ex cholesky", 1 / 3),
    ("linalg_lu_factor_ex _linalg_solve_ex linalg_ldl_factor_ex", 2 / 3),
    ("linalg_solve_triangular cholesky_solve triangular_solve", 1),
    ("linalg_inv_ex linalg_qr linalg_householder_product", 2),
    ("_linalg_eigh linalg_eig _linalg_svd", 9),
):
    _add(_names, OpRow(Kind.LINEAR_ALGEBRA, cost=costs.cubic(_times)))
_add("_fft_r2c _fft_c2r _fft_c2c", OpRow(Kind.FFT, cost=fft_cost))

# -- element by element ---------------------------------------------------------------------------------------

# Of one tensor.
_pointwise(
    """abs acos acosh angle asin asinh atan atanh bitwise_not ceil celu conj_physical cos cosh elu erf erfc exp exp2
    expm1 floor frac gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log log10 log1p log2 log_sigmoid_forward
    logit mish nan_to_num neg reciprocal relu relu6 round rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh
    softplus softshrink sqrt square tan tanh threshold trunc""",
    shape=shapes.same,
)
# Of several tensors, or of one and numbers.
_pointwise(
    """add addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
    clamp clamp_max clamp_min copysign elu_backward float_power floor_divide fmax fmin fmod
    gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward heaviside hypot
    leaky_relu_backward lerp log_sigmoid_backward logaddexp masked_fill maximum minimum mish_backward pow
    _prelu_kernel _prelu_kernel_backward remainder rsub sigmoid_backward silu_backward softplus_backward sub
    tanh_backward threshold_backward where xlogy"""
)
_pointwise("mul", sums_rows=(0, 1))
_pointwise("div divide", sums_rows=(0,))
_pointwise("true_divide log_sigmoid", cost=None)
_pointwise("__and__ __or__ __xor__")
_pointwise("eq ne lt le gt ge logical_and logical_or logical_xor", cost=costs.pointwise(truth=True), type="bool")
_pointwise("isnan isinf isfinite logical_not", shape=shapes.same, cost=costs.pointwise(truth=True), type="bool")
_add("dropout", OpRow(Kind.POINTWISE, shapes.same, type="first", row_wise=True, deterministic=False))
_add("native_dropout", OpRow(Kind.POINTWISE, None, costs.dropout, row_wise=True, deterministic=False))
_add("native_dropout_backward", OpRow(Kind.POINTWISE, None, _REWRITES_FIRST, row_wise=True))

_COPY = OpRow(Kind.COPY, shapes.same, row_wise=True, sums_rows=(0,))
_add("to _to_copy type_as", _COPY)
_add("contiguous clone", replace(_COPY, type="first"))
_COPY_INTO = OpRow(Kind.COPY, shapes.same, costs.moves("elementwise", 0, 1), (0,), (0,), "first", row_wise=True)
_add("copy_", _COPY_INTO)
_add("fill_ zero_", OpRow(Kind.CREATION, shapes.same, costs.moves("elementwise", 0), (0,), (0,), "first"))
_FILL = OpRow(Kind.CREATION, shapes.same, unread=(0,), fills=True)
_add("zeros_like ones_like full_like", _FILL)
_add("empty_like", OpRow(Kind.CREATION, shapes.same, unread=(0,), deterministic=False))
_add("rand_like randn_like randint_like", OpRow(Kind.RANDOM, shapes.same, unread=(0,), deterministic=False))
_add("zeros ones full", replace(_FILL, shape=shapes.sizes_at(0), unread=()))
_add("empty empty_strided", OpRow(Kind.CREATION, shapes.sizes_at(0), deterministic=False))
_NEW = replace(_FILL, shape=shapes.sizes_at(1))
_add("new_zeros new_ones new_full", _NEW)
_add("new_empty new_empty_strided", replace(_NEW, fills=False, deterministic=False))
_add("rand randn", OpRow(Kind.RANDOM, shapes.sizes_at(0), deterministic=False))
_add("randperm", OpRow(Kind.RANDOM, shapes.length_at(0), type="long int", deterministic=False))
_add("randint", OpRow(Kind.RANDOM, type="long int", deterministic=False))
_add("arange", OpRow(Kind.CREATION, shapes.counted))
_add("linspace logspace", OpRow(Kind.CREATION, shapes.length_at(2)))
_add("diag_embed", OpRow(Kind.CREATION, type="first"))
# eye(rows, columns), the columns optional.
_add("eye", OpRow(Kind.CREATION, lambda op: (int(op.scalar(0)), int(op.scalar(1 if len(op.dims) > 5 else 0)))))
_add("fft_fftfreq", OpRow(Kind.CREATION, shapes.length_at(0)))
_add("fft_rfftfreq", OpRow(Kind.CREATION, lambda op: (int(op.scalar(0)) // 2 + 1,)))
_WINDOWS = "hann_window hamming_window blackman_window bartlett_window kaiser_window"
_add(_WINDOWS, OpRow(Kind.CREATION, shapes.length_at(0)))
_DRAWN = OpRow(Kind.RANDOM, shapes.same, costs.reads("random"), (0,), (0,), "first", deterministic=False)
_add("uniform_ normal_ bernoulli_ exponential_ random_ log_normal_ geometric_ cauchy_", _DRAWN)
_add("bernoulli normal", OpRow(Kind.RANDOM, deterministic=False))
_add("multinomial", OpRow(Kind.RANDOM, None, costs.multinomial, type="long int", deterministic=False))

# -- views and other orders -----------------------------------------------------------------------------------

_VIEW = OpRow(Kind.VIEW, type="first", view=True)
_add("view reshape _unsafe_view", replace(_VIEW, shape=shapes.viewed))
_add("expand broadcast_to", replace(_VIEW, shape=shapes.expanded))
_add("expand_as view_as reshape_as", replace(_VIEW, shape=lambda op: op.shape(1)))
_add("detach alias", replace(_VIEW, shape=shapes.same))
_add("unsqueeze", replace(_VIEW, shape=shapes.unsqueezed))
_add("slice", replace(_VIEW, shape=shapes.sliced))
_add("select", replace(_VIEW, shape=shapes.selected))
_add("transpose swapaxes swapdims", replace(_VIEW, shape=shapes.transposed))
_add("t numpy_T", replace(_VIEW, shape=lambda op: op.shape(0)[::-1]))
_add("permute", replace(_VIEW, shape=lambda op: tuple(op.shape(0)[int(dim)] for dim in op.scalar(1))))
_add("as_strided", replace(_VIEW, shape=shapes.sizes_at(1)))
_add("squeeze", replace(_VIEW, shape=shapes.squeezed))
_add("flatten", replace(_VIEW, shape=shapes.flattened))
_add("unfold", replace(_VIEW, shape=shapes.unfolded))
_add(
    """_reshape_alias view_as_real view_as_complex split
    chunk hsplit vsplit dsplit tensor_split split_with_sizes unsafe_split unsafe_chunk diagonal
    unflatten unflatten_dense_tensors movedim moveaxis narrow real imag resolve_conj resolve_neg mT mH adjoint
    unbind lift_fresh""",
    _VIEW,
)
_REARRANGE = OpRow(Kind.REARRANGE, type="first")
_add("flip roll tril triu", replace(_REARRANGE, shape=shapes.same, cost=costs.reads("transposition", writes=0)))
_add("cat", replace(_REARRANGE, shape=shapes.concatenated, cost=costs.concatenation))
_add("stack", replace(_REARRANGE, shape=shapes.stacked))
_add("repeat", replace(_REARRANGE, shape=shapes.repeated))
_add("repeat_interleave", replace(_REARRANGE, shape=shapes.interleaved))
_add("pad constant_pad_nd", replace(_REARRANGE, shape=shapes.padded))
_add("pixel_shuffle", replace(_REARRANGE, shape=shapes.pixel_shuffled, batch_dims=1))
_add("im2col", replace(_REARRANGE, shape=shapes.columns_of_image, cost=costs.reads("resampling", writes=0)))
_add("col2im", replace(_REARRANGE, cost=costs.reads("resampling", writes=0)))
_PADS = " ".join(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))
_add(_PADS, replace(_REARRANGE, cost=costs.reads("resampling", writes=0)))

# -- reductions, scans, norms, losses -------------------------------------------------------------------------

_REDUCTION = OpRow(Kind.REDUCTION, shapes.reduced(1), costs.reads("reduction"))
_add("sum mean", replace(_REDUCTION, sums_rows=(0,)))
_add("amax amin logsumexp", replace(_REDUCTION, type="first"))
_add("argmax argmin", replace(_REDUCTION, type="long int"))
_add("any all", replace(_REDUCTION, type="bool"))
_add("max min", replace(_REDUCTION, shape=shapes.larger_or_smaller, type="first"))
_add("linalg_vector_norm norm", replace(_REDUCTION, shape=shapes.reduced(2)))
_add("prod var std var_mean std_mean count_nonzero nansum aminmax", replace(_REDUCTION, shape=None))
_SCAN = OpRow(Kind.SCAN, shapes.same, costs.reads("scan", writes=0))
_add("cumsum cumprod", _SCAN)
_add("cummax cummin logcumsumexp _logcumsumexp", replace(_SCAN, shape=None))
_add("_cummax_helper", replace(_SCAN, shape=None, writes=(1, 2), unread=(1, 2)))
_SOFTMAX = OpRow(Kind.SOFTMAX, shapes.same, costs.reads("softmax", writes=0))
_add("softmax log_softmax _softmax _log_softmax", _SOFTMAX)
_add("_softmax_backward_data _log_softmax_backward_data", replace(_SOFTMAX, shape=None))
_add("layer_norm rms_norm", OpRow(Kind.NORM, shapes.same, row_wise=True))
_NORM = OpRow(Kind.NORM, None, costs.reads("norm", writes=0))
_add("native_layer_norm _fused_rms_norm", replace(_NORM, shape=shapes.same, row_wise=True))
_add("native_group_norm", replace(_NORM, shape=shapes.same, batch_dims=1))
_add("group_norm", OpRow(Kind.NORM, shapes.same, batch_dims=1))
_add("batch_norm", OpRow(Kind.NORM, shapes.same, writes=(3, 4), batch_dims=1))
_add("instance_norm", OpRow(Kind.NORM, shapes.same, batch_dims=2))
_NORM_BACKWARD = OpRow(Kind.NORM, None, costs.reads("norm backward", writes=0))
_add("native_layer_norm_backward native_group_norm_backward", _NORM_BACKWARD)
# In training they update the running mean and variance.
_BATCH_NORM = OpRow(Kind.NORM, shapes.same, costs.reads("batch norm", writes=0), writes=(3, 4))
_add("native_batch_norm cudnn_batch_norm miopen_batch_norm", _BATCH_NORM)
_BATCH_NORM_BACKWARD = OpRow(Kind.NORM, None, costs.reads("batch norm", writes=0))
_add("native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward", _BATCH_NORM_BACKWARD)
_LOSSES = "mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss l1_loss"
_add(_LOSSES, OpRow(Kind.LOSS, None, costs.reads("reduction")))
_add(" ".join(f"{name}_backward" for name in _LOSSES.split()), OpRow(Kind.LOSS, None, _REWRITES_FIRST))
_add("cross_entropy_loss nll_loss nll_loss2d nll_loss_nd kl_div poisson_nll_loss", OpRow(Kind.LOSS))
_add("nll_loss_forward nll_loss2d_forward", OpRow(Kind.LOSS, None, costs.nll_forward))
_add("nll_loss_backward nll_loss2d_backward", OpRow(Kind.LOSS, None, costs.moves("elementwise", 1, 2)))

# -- look-ups, sorting, counting, images, lists ---------------------------------------------------------------

# embedding(table, indices): a row of the table for each index; backward, (grad, indices, rows), makes the table.
_LOOKUP = OpRow(Kind.LOOKUP, type="first")
_EMBEDDED = replace(_LOOKUP, shape=lambda op: (*op.shape(1), op.shape(0)[-1]))
_add("embedding", replace(_EMBEDDED, cost=costs.looked_up(1)))
_TAKEN = replace(_LOOKUP, sums_rows=(0,))
_add("index_select", replace(_TAKEN, shape=shapes.indexed, cost=costs.looked_up(2)))
_add("gather", replace(_TAKEN, shape=lambda op: op.shape(2), cost=costs.looked_up(2, rows=False)))
_add("index", _TAKEN)
_add("take take_along_dim", _LOOKUP)
_add("_embedding_bag _embedding_bag_forward_only", replace(_LOOKUP, cost=costs.bags))
_SCATTER = OpRow(Kind.SCATTER, shapes.same, type="first")
_TABLE_GRADIENT = replace(_SCATTER, shape=lambda op: (int(op.scalar(2)), op.shape(0)[-1]))
_add("embedding_dense_backward", replace(_TABLE_GRADIENT, cost=costs.embedding_backward))
_add("scatter", replace(_SCATTER, cost=costs.scatter))
_add("scatter_add", replace(_SCATTER, cost=costs.scatter, sums_rows=(3,)))
_add("scatter_reduce index_fill index_put slice_scatter select_scatter masked_scatter", _SCATTER)
_ROWS_INTO = replace(_SCATTER, cost=costs.moves("scatter", 3, 3, 3, 2))
_add("index_add", replace(_ROWS_INTO, sums_rows=(3,)))
_add("index_copy", _ROWS_INTO)
_add("_index_put_impl_", replace(_SCATTER, writes=(0,)))
_add("resize_", OpRow(Kind.CREATION, shapes.sizes_at(1), writes=(0,), unread=(0,), deterministic=False))
_add("set_", OpRow(Kind.CREATION, writes=(0,), unread=(0,), deterministic=False))
_add("sort argsort msort", OpRow(Kind.SORT, shapes.same, costs.moves("sort", 0, 0, places=0)))
_add("topk kthvalue median mode", OpRow(Kind.SORT, None, costs.moves("select", 0)))
_add("searchsorted", OpRow(Kind.COUNT, None, costs.moves("search", 0, 1, places=1), type="long int"))
_add("bucketize", OpRow(Kind.COUNT, shapes.same, costs.moves("search", 0, 1, places=0), type="long int"))
_COUNTS = "bincount histc _unique2 unique_dim unique_consecutive masked_select nonzero isin"
_add(_COUNTS, OpRow(Kind.COUNT, None, costs.reads("count")))
_POOL = OpRow(Kind.POOL, type="first", batch_dims=2)
_add("max_pool1d max_pool2d max_pool3d", replace(_POOL, shape=shapes.pooled(4, 5)))
_add("avg_pool1d", replace(_POOL, shape=shapes.pooled(None, 4)))
_add("avg_pool2d avg_pool3d", replace(_POOL, shape=shapes.pooled(None, 4), cost=costs.moves("pool", 0)))
_ADAPTIVE = " ".join(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3))
_add(_ADAPTIVE, replace(_POOL, shape=shapes.adaptive))
_add("max_pool2d_with_indices _adaptive_avg_pool2d", replace(_POOL, cost=costs.moves("pool", 0)))
_add("max_pool2d_with_indices_backward avg_pool2d_backward", replace(_POOL, cost=costs.moves("pool backward", 0, 1)))
_RESAMPLING = OpRow(Kind.RESAMPLING, shapes.resized, costs.resized, type="first", batch_dims=2)
_MODES = "nearest1d nearest2d nearest3d bilinear2d bicubic2d trilinear3d linear1d"
_add(" ".join(f"upsample_{mode}" for mode in _MODES.split()), _RESAMPLING)
_SAMPLED = OpRow(Kind.RESAMPLING, batch_dims=1)
_add("grid_sampler", replace(_SAMPLED, shape=lambda op: (*op.shape(0)[:2], *op.shape(1)[1:-1]), type="first"))
_add("grid_sampler_2d grid_sampler_3d", replace(_SAMPLED, cost=costs.sampled))

_ABSURD_FLOPS = 2**62  # operations: damaged files have such shapes

_LISTS = regex(r"^_(foreach|fused)_(?!rms|moving|sdp)")
_RESIZE = regex(r"^_?upsample_\w+$")
_IN_PLACE = replace(UNKNOWN, shape=shapes.same, writes=(0,), type="first")
_COMPILED = regex(r"^triton_(poi|red|per)_fused_")
_COMPILED_ROW = OpRow(Kind.OTHER, cost=costs.compiled)
_EXPERTS = "vllm::rocm_aiter_fused_moe vllm::inplace_fused_experts vllm::outplace_fused_experts"
_EXPERTS += " sglang::inplace_fused_experts sglang::outplace_fused_experts"
_EXTENSIONS = dict.fromkeys(_EXPERTS.split(), OpRow(Kind.GEMM, cost=costs.fused_experts))
_EXTENSIONS["_C::static_scaled_fp8_quant"] = OpRow(Kind.COPY, None, costs.moves("elementwise", 0, 1), (0,), (0,))
_LIST_ROW = OpRow(Kind.LISTS, None, costs.lists)


@cache
def op_row(name: str) -> OpRow:
    """Row of an op's family; `UNKNOWN` for ops that the table does not have."""
    short = name.removeprefix("aten::")
    if short == name:
        return _COMPILED_ROW if _COMPILED.match(name) else _EXTENSIONS.get(name, UNKNOWN)
    if short in _TABLE:
        return _TABLE[short]
    base = _TABLE.get(short.removesuffix("_"))
    if base is not None and base.view:
        return base
    if base is not None and short.endswith("_"):
        return replace(base, shape=shapes.same, writes=(0,), type="first")
    if _LISTS.search(short):
        return replace(_LIST_ROW, writes=(0,)) if short.endswith("_") else _LIST_ROW
    if _RESIZE.search(short):
        return replace(_RESAMPLING, cost=None)
    return _IN_PLACE if short.endswith("_") else UNKNOWN


def result_shape(op: Signature) -> Shape | None:
    """Shape of the first result of a call; None if the inputs do not determine it."""
    shape_of = op_row(op.name).shape
    try:
        return None if shape_of is None else shape_of(op)
    except UNREADABLE:
        return None


def constant_shape(op: Signature) -> Shape | None:
    """Shape of the result of an op that makes equal ones of equal recorded numbers and tensors, and reads nothing else.

    None for layers, which read parameters, for random numbers, and for tensors of one number, which is not recorded.
    """
    row = op_row(op.name)
    numbers = zip(op.dims, op.types, strict=False)
    unrecorded = any(dims == [] and kind in _SINGLE_TENSORS for dims, kind in numbers)
    return result_shape(op) if row.deterministic and row.kind in _WITHOUT_WEIGHTS and not unrecorded else None


# A number of Python is recorded as Scalar, double, long int or bool; a tensor of one number by its own type.
_SINGLE_TENSORS = ITEM_BYTES.keys() - {"double", "long int", "bool"}
_WITHOUT_WEIGHTS = {Kind.POINTWISE, Kind.COPY, Kind.VIEW, Kind.REARRANGE}
_WITHOUT_WEIGHTS |= {Kind.SCAN, Kind.REDUCTION, Kind.SOFTMAX, Kind.CREATION}
_HALVES = {"c10::Half", "c10::BFloat16"}


def result_type(op: Signature) -> str | None:
    """Element type of the first result, such as `float`; None if unknown."""
    rule = op_row(op.name).type
    types = [kind for dims, kind in zip(op.dims, op.types, strict=False) if kind in ITEM_BYTES and dims]
    if rule == "widest":
        # Floating types are wider than integers.
        floats = {kind: kind in ("float", "double") or kind.startswith("c10::") for kind in types}
        widest = max(types, key=lambda kind: (floats[kind], ITEM_BYTES[kind]), default=None)
        return widest if len({*types} & _HALVES) < 2 else "float"
    return (types[0] if types else None) if rule == "first" else rule or None


def op_cost(op: Signature) -> OpCost | None:
    """Operations and bytes of one call at least; None without a model, and if the inputs do not determine them."""
    cost_of = op_row(op.name).cost
    try:
        return None if cost_of is None else cost_of(op)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def flops_of(signature: Signature) -> int:
    """Operations of one call; 0 where no model knows them, or nothing computes so many."""
    work = op_cost(signature)
    flops = (work.flops or 0) if work else 0
    return flops if flops < _ABSURD_FLOPS else 0


def is_view(name: str) -> bool:
    """Whether an op only looks at a tensor in another way, and touches none of its elements."""
    return op_row(name).view
