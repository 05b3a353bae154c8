"""What makes a call quicker that takes many times what its inputs need, by the kind of its bound."""

from __future__ import annotations

from collections.abc import Mapping

SHAPE = "Give the device more to do at once: more rows, another dimension, or parts that are combined"
_PLACES = "Let fewer additions meet in one place: sum equal indices first, or add into several tables"
_EQUAL = (
    "Equal indices are added up one after the other: look rows up with F.embedding or index_select instead of "
    "table[index], and add with index_add_ instead of index_put_(accumulate=True), which add many at once"
)
_ORDER = "Reduce along the dimension that lies together in memory, or transpose once before"
BROADCAST = (
    "In backward it sums the gradient of a bias, or of what else was broadcast: put the layer under torch.compile, or "
    "leave out a bias that a batch norm follows (bias=False)"
)
NORM = "Put the norm under torch.compile: torch's own kernels give each row a block, which short rows do not fill"
_FFT = (
    "Convolve by FFT: torch.fft.rfft of the signal and of the kernel, both padded to one length, their product, irfft "
    "(torchaudio.functional.fftconvolve); a direct convolution multiplies every output with every tap"
)
_ATTENTION = (
    "Let the flash kernel run: is_causal=True in place of a causal mask, no mask where nothing is masked; for biases "
    "and other masks torch.nn.attention.flex_attention"
)
FLASH = (
    "The flash kernel runs already: give it more to do at once (more heads, sequences or queries), or a size of heads "
    "that it is made for (64 or 128)"
)
_DEPTHWISE = "Use channels_last, for which cuDNN has kernels of its own, or put the layer under torch.compile"
REMEDIES: Mapping[str, str] = {
    "scatter": _PLACES,
    "row scatter": _PLACES,
    "indexed sum": _EQUAL,
    "indexed row sum": _EQUAL,
    "softmax": _ORDER,
    "reduction": f"{_ORDER}, or put it under torch.compile",
    "norm": NORM,
    "norm backward": NORM,
    "scan": f"{_ORDER}; cut a few long rows into pieces",
    "matmul": "Pad the odd dimension to a multiple of 8, or split a product with one long dimension into parts",
    "attention": _ATTENTION,
    "long conv": _FFT,
    "depthwise conv": _DEPTHWISE,
    "batch norm": "Use channels_last, or more channels or images at once",
}
