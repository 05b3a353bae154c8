"""What a remedy takes where the trace was recorded: a newer torch, or the switches of ROCm."""

from __future__ import annotations

import re

_ERA = re.compile(
    r"^torch (\d+)\.(\d+)(?: to \d+\.\d+)?"
)  # of `Meta.dialect`: the oldest torch that it may be

# What advice names -> the first torch that has it, by its release notes.
_SINCE = {
    "fused=True to SGD": (2, 3),
    "fused=True": (2, 0),
    "torch.compile": (2, 0),
    "F.rms_norm": (2, 4),
    "scaled_dot_product_attention": (2, 0),
    "torch._foreach_copy_": (2, 1),
    "expandable_segments": (2, 1),
}
_CUPTI_ONLY = re.compile(
    r"(See which stream or rank it waits for: |Record with )enable_cuda_sync_events=True[^.]*\."
)
_OF_ROCM = r"\1rocprofv3 --sys-trace, since torch's profiler records no waits for events on ROCm."
_CHANNELS_LAST = (
    " On ROCm set PYTORCH_MIOPEN_SUGGEST_NHWC=1, too, and PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM=1 for batch norms: "
    "MIOpen may leave the layout unused without."
)


def as_recorded(advice: str, dialect: str) -> str:
    """The advice for the torch and the platform that recorded the trace.

    Args:
        dialect: `Meta.dialect`; empty where nothing is known.
    """
    if dialect.endswith("on ROCm"):
        advice = _CUPTI_ONLY.sub(_OF_ROCM, advice)
        advice += _CHANNELS_LAST if "channels_last" in advice else ""
    return advice + _newer(advice, dialect)


def _newer(advice: str, dialect: str) -> str:
    """What of the advice an old torch may not have, as a sentence."""
    era = _ERA.match(dialect)
    if era is None:
        return ""
    oldest = int(era[1]), int(era[2])
    needed: dict[str, tuple[int, int]] = {}
    for name, since in _SINCE.items():
        if name in advice and since > oldest and not any(name in longer for longer in needed):
            needed[name] = since
    each = [f"{name} needs torch {major}.{minor} or later" for name, (major, minor) in needed.items()]
    return f" {', '.join(each)}; this was recorded with {era[0]}." if each else ""
