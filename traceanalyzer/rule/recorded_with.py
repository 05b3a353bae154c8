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
    "ncu": Feature(on_rocm="rocprof-compute"),
    "enable_cuda_sync_events=True": Feature(
        on_rocm="rocprofv3 --sys-trace, since torch's profiler records no waits for events on ROCm"
    ),
    "channels_last": Feature(
        on_rocm="channels_last and PYTORCH_MIOPEN_SUGGEST_NHWC=1",
        more_on_rocm=" Batch norms need PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM=1, too: otherwise MIOpen may ignore the "
        "layout.",
    ),
}

_MARK = re.compile(
    rf"\{{({'|'.join(map(re.escape, FEATURES))})\}}(\([^()]*\))?"
)  # with its arguments, and nothing else: names in a trace have braces, too
_ANY_MARK = re.compile(
    r"\{(?:(?:torch|F|nn)\.[\w.]+|\w+=\w+(?: to \w+)?)\}"
)  # nothing in a trace is named so


def unknown_marks(advice: str) -> list[str]:
    """What an advice marks as torch's and nothing is known of, with its braces."""
    return [mark for mark in _ANY_MARK.findall(advice) if mark[1:-1] not in FEATURES]


def as_recorded(advice: str, dialect: str) -> str:
    """The advice for the torch and the platform that recorded the trace: what that torch may lack says what it needs.

    Args:
        dialect: `Meta.dialect`; empty where nothing is known.
    """
    marked = {mark[1]: FEATURES[mark[1]] for mark in _MARK.finditer(advice)}
    on_rocm, era = dialect.endswith("on ROCm"), _ERA.match(dialect)
    needs = {
        name: f" (needs torch {'.'.join(map(str, one.since))} or later)"
        for name, one in marked.items()
        if era is not None and one.since > (int(era[1]), int(era[2]))
    }

    def named(mark: re.Match[str]) -> str:
        name = (on_rocm and marked[mark[1]].on_rocm) or mark[1]
        return f"{name}{mark[2] or ''}{needs.get(mark[1], '')}"

    recorded = f" This was recorded with {era[0]}." if era is not None and needs else ""
    more = "".join(one.more_on_rocm for one in marked.values() if on_rocm)
    return _MARK.sub(named, advice) + more + recorded
