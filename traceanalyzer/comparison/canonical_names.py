"""Names that are equal in two recordings: without addresses, hashes, generated numbers, tiles and vendors."""

import re
from functools import cache

from traceanalyzer.model.text_queries import regex
from traceanalyzer.timeline.kernel_families import ATTENTION, CONVOLUTION, COPY, GEMM, POINTWISE, REDUCTION
from traceanalyzer.timeline.names import COMMUNICATION

_ADDRESS = regex(r"0x[0-9a-fA-F]+")
_HASH = regex(r"(?<![0-9A-Za-z])(?=[a-z0-9]*\d)(?=[a-z0-9]*[a-z])[a-z0-9]{16,}(?![0-9A-Za-z])")
_PYTHON_LINE = regex(r"(\.py)\(\d+\)")
_STEP_NUMBER = regex(r"^(ProfilerStep#)\d+$")
_REGION = regex(r"^(Torch-Compiled Region): \d+/\d+")
_INSTANCE = regex(r"(?<=[a-z])_\d+$")
_HIP = regex(r"^hip(?=[A-Z])")

# What a library picks anew for another GPU, size or release: it does not tell one product from another.
_TILES = regex(r"_?\d+x\d+(x\d+)*")
_ARCHITECTURE = regex(r"(?<![a-z0-9])sm_?\d+[a-z]?(?![0-9])|^(ampere|volta|turing|hopper)_")
_TUNING = regex(
    r"(?<=_)(stages?_?\w*?|ldg\d+|sliced\d+x\d+|tilesize\w*|warpgroupsize\w*|warpspecialized\w*|align\w*|coop[AB]?|bz|badd|[hv]"
    r"|splitK|execute|kernel__5x_cudnn|f2f|relu)(?=_|$)"
)
_TRITON = regex(r"^(triton_(?:poi|red|per|tem|unk|for|mm)_.*?)_?\d*$")
_VECTOR = regex(r"(?<=<)\d+, ")  # elements a thread, the first argument of torch's elementwise kernels
_BLANK = regex(r"_{2,}|\s{2,}")

_FAMILIES = (
    ("collective", COMMUNICATION),
    ("attention", ATTENTION),
    ("convolution", CONVOLUTION),
    ("GEMM", GEMM),
    ("norm", regex(r"norm|RowwiseMoments", re.IGNORECASE)),
    ("copy", COPY),
    ("reduction", REDUCTION),
    ("pointwise", POINTWISE),
)
_KINDS = {"communication": "collective", "memset": "memset"}


@cache
def plain_name(name: str) -> str:
    """An op's, call's or annotation's name without what differs from one run to the next, HIP's as CUDA's."""
    for pattern, by in ((_ADDRESS, "0x"), (_HASH, "#"), (_PYTHON_LINE, r"\1"), (_STEP_NUMBER, r"\1")):
        name = pattern.sub(by, name)
    name = _REGION.sub(r"\1", name)
    return _HIP.sub("cuda", name)


@cache
def canonical_kernel(name: str) -> str:
    """A kernel's name without tiles, architecture, stages and hashes; Triton's without its number, its ops kept."""
    triton = _TRITON.match(name)
    if triton:
        return triton[1]
    for pattern in (_ADDRESS, _HASH, _TILES, _ARCHITECTURE, _TUNING, _VECTOR):
        name = pattern.sub("", name)
    return _BLANK.sub("_", name).strip("_ ")


@cache
def family_of(kernel: str, kind: str) -> str:
    """What work does: GEMM, convolution, attention, norm, pointwise, reduction, copy, collective, memset or other."""
    if kind in _KINDS:
        return _KINDS[kind]
    if kind.startswith("copy"):
        return "copy"
    return next((family for family, pattern in _FAMILIES if pattern.search(kernel)), "other")


@cache
def region_name(name: str) -> str:
    """An annotation's or module's name without the number of its instance."""
    return _INSTANCE.sub("", plain_name(name))
