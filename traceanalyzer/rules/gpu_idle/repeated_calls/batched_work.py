"""What the kernels of one repeat take when they do the work of all repeats of their loop."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows
from traceanalyzer.replay.edits import Resize
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Work

# One block goes through all boxes, one after the other: of all images and classes at once it takes as long as of each
# in turn; H200, torch 2.11.
_IN_TURN = "gather_keep_from_mask"
# Time steps come one after the other in one call, too.
_STEPS = (
    r"^aten::(lstm|gru|rnn_\w+|lstm_cell|gru_cell|_cudnn_rnn)$|(CudnnRnn|MiopenRnn|(Lstm|Gru)Cell)\w*Backward"
)


def batched_work(
    work: Work, starts_ns: Rows, ends_ns: Rows, group: Rows, gpus: Gpus, floor_ns: int
) -> Resize:
    """Durations of the kernels of the repeat that does all: small grids run side by side until the device is full.

    A kernel of few blocks leaves most of the device empty, so that the same kernel of the other repeats fits beside
    it. Of each duration a floor is the start, which is paid once.

    Args:
        starts_ns, ends_ns, group: int64 (repeats,), the repeats, and the loop of each.
        floor_ns: of a kernel that does next to nothing.
    """
    order = np.argsort(starts_ns, kind="stable")
    launched = work.launch.start_ns
    at = np.searchsorted(starts_ns[order], launched, side="right") - 1
    inside = np.flatnonzero((at >= 0) & work.launch.there & (launched < ends_ns[order][np.maximum(at, 0)]))
    inside = inside[np.argsort(launched[inside], kind="stable")]
    work, repeat = work[inside], order[at[inside]]
    place = rank_within(repeat)
    own_ns = np.maximum(work.dur_ns - floor_ns, 0) * _shares(work, gpus)
    _, key = np.unique(group[repeat] * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    total, longest = np.zeros(int(key.max(initial=-1)) + 1), np.zeros(int(key.max(initial=-1)) + 1)
    np.add.at(total, key, own_ns)
    np.maximum.at(longest, key, work.dur_ns)
    return Resize(work.entries, np.maximum(longest, total + floor_ns)[key])


def _shares(work: Work, gpus: Gpus) -> Floats:
    """Share of the device's multiprocessors that each piece of work fills; 1 where that is unknown or no matter."""
    devices = sorted(set(work.device.tolist()))
    sms = np.array([gpus[device].sms or 0 for device in devices], np.float64)
    own = sms[np.searchsorted(devices, work.device)] if devices else np.empty(0)
    known = (own > 0) & (work.blocks > 0) & ~work.name.matches(_IN_TURN)
    known &= ~work.outer_op.name.matches(_STEPS)
    return np.where(known, np.minimum(work.blocks / np.maximum(own, 1.0), 1.0), 1.0)
