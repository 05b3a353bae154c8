"""Projections before and after upsampling, propagation and decoding."""

from tests.rules.kernel_programs import Op

F32 = "float"
MOVE = "void at::native::vectorized_gather_kernel<16, long>(char*)"
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3"
SHAPES = [F32, "ScalarList", "Scalar", ""]


def upsampled(*between: Op, narrow: int = 7, kernel: int = 1) -> list[Op]:
    """128 channels made four times as large, and a convolution of them."""
    wide = [8, 128, 512, 512]
    return [
        Op(
            "aten::upsample_bilinear2d",
            MOVE,
            2_400,
            [[8, 128, 128, 128], [], [], []],
            SHAPES,
            scalars=["", "[512, 512]"],
        ),
        *between,
        Op("aten::conv2d", GEMM, 800, [wide, [narrow, 128, kernel, kernel], [narrow]], [F32, F32, F32]),
        Op("aten::relu", MOVE, 100, [[8, narrow, 512, 512]], [F32]),
    ]
