"""Ops on complex fields and on spectra."""

from tests.rules.kernel_programs import Op

F32, BF16 = "float", "c10::BFloat16"
ADD = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::sum>(float)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
MOVE = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
"""Names as torch 2.11 gives them, in short."""


FIELD, C64 = [1_024, 1_024], "c10::complex<float>"


def spectral(inverse: str = "aten::real", kind: str = F32) -> list[Op]:
    """A field to its spectrum, a filter, and back."""
    fft = "void vector_fft<1024u>(float)"
    return [
        Op("aten::fft_fft2", fft, 1, [FIELD], [kind]),
        Op("aten::_fft_c2c", fft, 199, [FIELD], [C64]),
        Op("aten::mul", ADD, 100, [FIELD, FIELD], [C64, C64]),
        Op("aten::fft_ifft2", fft, 200, [FIELD], [C64]),
        Op(inverse, ADD, 1, [FIELD], [C64]),
    ]
