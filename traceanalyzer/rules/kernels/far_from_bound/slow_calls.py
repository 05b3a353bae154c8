"""What makes a call quicker that takes many times what its inputs need, by the kind of its bound."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE = (
    "Give the device more parallel work: more rows, another dimension, or split rows and combine the parts"
)
_PLACES = "Let fewer additions hit the same row: sum equal indices first, or add into several tables"
_COUNTS = (
    "Count with torch.histc or torch.bincount(index, weights): they add in each block's shared memory first, not one "
    "after the other in the result"
)
EQUAL = (
    "Equal indices are added one after the other: use F.embedding or index_select instead of table[index], and "
    "index_add_ instead of index_put_(accumulate=True); they add many at once"
)
_ORDER = "Reduce along the dimension that is contiguous in memory, or transpose once before"
BROADCAST = (
    "In backward it sums the gradient of a bias or another broadcast tensor: put the layer under {torch.compile}, or "
    "drop a bias before a batch norm (bias=False)"
)
NORM = "Put the norm under {torch.compile}: torch's own kernels use one block per row, which short rows do not fill"
_FFT = (
    "Convolve by FFT: torch.fft.rfft of the signal and of the kernel, both padded to one length, their product, "
    "irfft (torchaudio.functional.fftconvolve); a direct convolution multiplies every output with every tap"
)
PASSES = (
    "If the filter is the product of a column and a row, as a Gaussian or a mean is, convolve in two passes: "
    "conv2d(conv2d(x, row), column), with weights of 1 x k and k x 1"
)
RATES = (
    "Resample to a rate that shares a large divisor with the old one (8000 to 8100 has 81 kernels of 94 taps, 8000 to "
    "8101 has 8101 of 8014), or by FFT (scipy's resample: rfft, cut or pad, irfft); build the kernels once "
    "(torchaudio.transforms.Resample)"
)
_ATTENTION = (
    "Enable the flash kernel: is_causal=True instead of a causal mask, no mask where nothing is masked; for biases "
    "and other masks torch.nn.attention.flex_attention"
)
SQUEEZE = "Drop the dimension with a view (squeeze): one element needs no reduction"
FLASH = (
    "The flash kernel runs already: give it more parallel work (more heads, sequences or queries), or a head size "
    "that it is made for (64 or 128)"
)
_DEPTHWISE = (
    "Use {channels_last}, for which cuDNN has special kernels, or put the layer under {torch.compile}"
)
REMEDIES: Mapping[str, str] = {
    "scatter": _PLACES,
    "row scatter": _PLACES,
    "histogram": _COUNTS,
    **dict.fromkeys(("sorted sum", "sorted row sum", "indexed sum", "indexed row sum"), EQUAL),
    "softmax": _ORDER,
    "reduction": f"{_ORDER}, or put it under {{torch.compile}}",
    "norm": NORM,
    "norm backward": NORM,
    "scan": f"{_ORDER}; cut a few long rows into pieces",
    "matmul": "Pad the odd dimension to a multiple of 8, or split a product with one long dimension into parts",
    "attention": _ATTENTION,
    "long conv": _FFT,
    "separable conv": PASSES,
    "resampling conv": RATES,
    "depthwise conv": _DEPTHWISE,
    "batch norm": "Use {channels_last}, or more channels or images at once",
}
