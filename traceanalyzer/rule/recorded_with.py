"""What a remedy takes where the trace was recorded: a newer torch, or the switches of ROCm.

An advice marks what it takes, `Put the norm under {torch.compile}.`: what is known of it stands here, and nothing is
read out of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ERA = re.compile(
    r"^torch (\d+)\.(\d+)(?: to \d+\.\d+)?"
)  # of `Meta.dialect`: the oldest torch that it may be


@dataclass(frozen=True, slots=True)
class Feature:
    """What an advice may take.

    Attributes:
        since: the first torch that has it, by its release notes; empty where all have it.
        on_rocm: what stands in its place on ROCm.
        more_on_rocm: a sentence that follows the advice there.
    """

    since: tuple[int, ...] = ()
    on_rocm: str = ""
    more_on_rocm: str = ""


FEATURES: Mapping[str, Feature] = {
    "fused=True to Adam": Feature((2, 0)),
    "fused=True to AdamW": Feature((2, 0)),
    "fused=True to SGD": Feature((2, 3)),
    "fused=True": Feature((2, 0)),
    "torch.compile": Feature((2, 0)),
    "F.rms_norm": Feature((2, 4)),
    "F.scaled_dot_product_attention": Feature((2, 0)),
    "torch._foreach_copy_": Feature((2, 1)),
    "expandable_segments": Feature((2, 1)),
    "enable_cuda_sync_events=True": Feature(
        on_rocm="rocprofv3 --sys-trace, since torch's profiler records no waits for events on ROCm"
    ),
    "channels_last": Feature(
        more_on_rocm=" On ROCm set PYTORCH_MIOPEN_SUGGEST_NHWC=1, too, and PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM=1 "
        "for batch norms: MIOpen may leave the layout unused without."
    ),
}

_MARK = re.compile(
    rf"\{{({'|'.join(map(re.escape, FEATURES))})\}}"
)  # nothing else: names in a trace have braces, too


def as_recorded(advice: str, dialect: str) -> str:
    """The advice for the torch and the platform that recorded the trace.

    Args:
        dialect: `Meta.dialect`; empty where nothing is known.
    """
    marked = {name: FEATURES[name] for name in _MARK.findall(advice)}
    on_rocm = dialect.endswith("on ROCm")
    text = _MARK.sub(lambda mark: (on_rocm and marked[mark[1]].on_rocm) or mark[1], advice)
    return text + "".join(one.more_on_rocm for one in marked.values() if on_rocm) + _newer(marked, dialect)


def _newer(marked: Mapping[str, Feature], dialect: str) -> str:
    """What of it an old torch may not have, as a sentence."""
    era = _ERA.match(dialect)
    if era is None:
        return ""
    oldest = int(era[1]), int(era[2])
    each = [
        f"{name} needs torch {'.'.join(map(str, one.since))} or later"
        for name, one in marked.items()
        if one.since > oldest
    ]
    return f" {', '.join(each)}; this was recorded with {era[0]}." if each else ""
