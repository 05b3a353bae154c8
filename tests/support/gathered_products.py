"""GEMMs of gathered rows and of joined messages."""

from tests.rules.kernel_programs import F32, Op

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"


def messages(*between: Op, nodes: int = 30_000) -> list[Op]:
    """Rows of nodes gathered for 600,000 edges, joined, and multiplied."""
    gather = Op(
        "aten::index_select",
        MOVE,
        200,
        [[nodes, 64], [], [600_000]],
        [F32, "Scalar", "long int"],
        scalars=["", "0", ""],
    )
    joined = Op("aten::cat", MOVE, 100, [[[600_000, 64], [600_000, 64]], []], ["TensorList", "Scalar"])
    layer = Op("aten::linear", GEMM, 900, [[600_000, 128], [64, 128], [64]], [F32, F32, F32], inside="aten::linear")
    product = Op("aten::addmm", GEMM, 900, [[64], [600_000, 128], [128, 64]], [F32] * 3, inside=layer.name)
    return [gather, gather, joined, *between, layer, product]


def joined(points: int, times: int, width: int = 64, second: tuple[int, ...] | None = None) -> list[Op]:
    """cat of centres, expanded, and neighbours; then a product of all edges."""
    shape = [points, times, width]
    other = list(second or shape)
    strides = [[[width, 0, 1], [times * width, width, 1]], []]
    join = Op("aten::cat", MOVE, 100, [[shape, other], []], ["TensorList", "Scalar"], strides=strides)
    rows = points * times
    return [join, Op("aten::mm", GEMM, 900, [[rows, 2 * width], [2 * width, 64]], [F32, F32])]
