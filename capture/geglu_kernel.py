"""A fused GeGLU kernel as libraries bring it along: imported on a GPU only, as it needs Triton."""

# No deferred annotations: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _geglu_tanh_forward_kernel(gate, up, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    x = tl.load(gate + place, mask=inside).to(tl.float32)
    # tanh(y) is 2 sigmoid(2 y) - 1.
    tanh = 2 * tl.sigmoid(2 * 0.7978845608 * (x + 0.044715 * x * x * x)) - 1
    result = 0.5 * x * (1 + tanh) * tl.load(up + place, mask=inside).to(tl.float32)
    tl.store(out + place, result, mask=inside)


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """gelu(gate, approximate="tanh") * up, elementwise and in one kernel; both contiguous and of one shape."""
    out = torch.empty_like(gate)
    _geglu_tanh_forward_kernel[(triton.cdiv(gate.numel(), 1024),)](gate, up, out, gate.numel(), BLOCK=1024)
    return out
