"""What matrix products reach at best on devices, as measured by others: data sheets promise more."""

from __future__ import annotations

import re

# First pattern found in the device's name -> best measured bf16 matmul, dense TFLOP/s.
# Source: "Maximum Achievable Matmul FLOPS", Machine Learning Engineering (S. Bekman), accelerators' chapter.
_BF16: tuple[tuple[str, float], ...] = (
    (r"GH200", 829.0),
    (r"A100.*SXM", 271.0),
    (r"H100 80GB HBM3", 794.0),
    (r"H200", 794.0),  # the same chip as H100 SXM, with other memory
    (r"B300", 1769.0),
    (r"GB200", 1822.0),
    (r"B200", 1745.0),
    (r"MI300X", 668.0),
    (r"MI325X", 785.0),
    (r"MI355X", 1565.0),
)


def achievable_bf16_tflops(name: str | None) -> float | None:
    """Best measured bf16 matmul of a device by its name in the trace; None where it is not known."""
    return next((rate for pattern, rate in _BF16 if name and re.search(pattern, name)), None)
