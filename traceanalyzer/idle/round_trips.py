"""Which gaps a synchronising call or a blocking copy is to blame for: it drained the device and held up the CPU."""

from __future__ import annotations

import numpy as np

from traceanalyzer.idle.gaps import Gaps
from traceanalyzer.idle.pieces import MOST
from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

# A stretch without ops below this says nothing: after a synchronisation the step's end and prof.step() alone take
# up to 0.10 ms on an H200 under the profiler (torch 2.11, device_sync), and deliberate pauses start at 0.3 ms.
LONG_PAUSE_NS = 200_000


def round_trips(
    gaps: Gaps,
    late: Mask,
    work: DeviceWork,
    nesting: Nesting,
    activity: Activity,
    syncs: SyncCalls,
) -> tuple[Rows, Rows]:
    """(direct, refill): rows of the synchronising call that the gap is charged to, -1 for none.

    Direct: launched late, and the last call that began before the launch reaches into the gap, unless the CPU then
    paused (`_paused`); or the launch is a blocking copy whose call covers most of the gap. Refill: launched in time,
    right after work that such a gap held up; or the work is the copy that the call waits for.
    """
    usable = np.flatnonzero(~syncs.profiler & activity.launching[syncs.thread])
    none = np.full(len(gaps), -1)
    if len(usable) == 0:
        return none, none
    usable = usable[np.argsort(syncs.start_ns[usable], kind="stable")]
    rows, starts, ends = syncs.row[usable], syncs.start_ns[usable], syncs.end_ns[usable]
    at = np.searchsorted(starts, gaps.launched_ns, side="left") - 1
    last = np.maximum(at, 0)
    inside = gaps.overlap_ns(starts[last], ends[last])
    drained = gaps.previous_work >= 0  # at the head of the trace nothing is known to have been
    # A call that began when the device was dry already, and did not wait, explains no more than a short gap.
    dry = np.searchsorted(starts, gaps.start_ns, side="right") - 1
    waited = (dry >= 0) & (ends[np.maximum(dry, 0)] >= gaps.start_ns)
    waited |= (gaps.dur_ns <= LONG_PAUSE_NS) | (inside >= MOST * gaps.dur_ns)
    waited &= ~_drained_nothing(gaps, work, rows[last], starts[last]) | (inside >= MOST * gaps.dur_ns)
    holds = late & (at >= 0) & (inside > 0) & drained & waited
    charged = np.flatnonzero(holds)
    holds[charged] = ~_paused(nesting, activity, gaps.start_ns[charged], gaps.end_ns[charged], rows)
    direct = np.where(holds, rows[last], np.where(_is_blocking(gaps, rows), gaps.call, -1))
    following = np.minimum(np.searchsorted(starts, gaps.launched_ns, side="right"), len(rows) - 1)
    waited_for = gaps.in_time & _reads_back(gaps, work) & (gaps.call >= 0)
    waited_for &= (starts[following] > gaps.launched_ns) & (starts[following] < gaps.end_ns)
    return direct, np.where(waited_for, rows[following], _chained(direct, gaps))


def _drained_nothing(gaps: Gaps, work: DeviceWork, call: Rows, start_ns: Rows) -> Mask:
    """The call waited for nothing but its own copy to the device, which was dry when the call began.

    Args:
        call, start_ns: the row and the start of the call in question of each gap.
    """
    copies = (work.kind == KINDS.index("copy_h2d"))[gaps.previous_work] & (
        work.call[gaps.previous_work] == call
    )
    dry = np.zeros(len(gaps), bool)
    dry[1:] = (gaps.next_work[:-1] == gaps.previous_work[1:]) & (gaps.start_ns[:-1] <= start_ns[1:])
    return np.asarray((gaps.previous_work >= 0) & copies & dry)


def _paused(nesting: Nesting, activity: Activity, starts: Rows, ends: Rows, syncs: Rows) -> Mask:
    """One stretch without ops is most of the gap, and longer than the CPU had waited when the device ran dry.

    Without the wait the CPU would have come that much earlier, and the device would have run dry all the same.
    It waited since the op around the call began, since that may wait more than once.

    Args:
        starts, ends: of the gaps.
    """
    low, high = int(starts.min(initial=0)), int(ends.max(initial=0))
    stretches = intervals.complement(activity.sets["dispatching"], low, high)
    _, pause = intervals.longest_overlap(stretches, starts, ends)
    since = nesting.start_ns[np.where(nesting.op[syncs] >= 0, nesting.op[syncs], syncs)]
    at = np.maximum(np.searchsorted(nesting.start_ns[syncs], starts, side="right") - 1, 0)
    waited = np.where(nesting.end_ns[syncs[at]] >= starts, starts - since[at], 0)
    return (pause >= MOST * (ends - starts)) & (pause >= LONG_PAUSE_NS) & (pause > waited)


def _is_blocking(gaps: Gaps, rows: Rows) -> Mask:
    """The launch that ends the gap is a blocking copy, and most of the gap lies inside the call.

    Not at the head of the trace, where it may wait for work that is not in it.
    """
    own = (gaps.call >= 0) & (gaps.previous_work >= 0) & np.isin(gaps.call, rows)
    return own & (gaps.overlap_ns(gaps.launched_ns, gaps.returned_ns) >= MOST * gaps.dur_ns)


def _reads_back(gaps: Gaps, work: DeviceWork) -> Mask:
    """The next work is a copy to the host."""
    to_host = work.kind == KINDS.index("copy_d2h")
    return np.asarray((gaps.next_work >= 0) & to_host[gaps.next_work])


def _chained(direct: Rows, gaps: Gaps) -> Rows:
    """The call of the gap before, where each gap since was launched in time after the work of the last."""
    chained = np.zeros(len(direct), bool)
    follows = (gaps.previous_work[1:] == gaps.next_work[:-1]) & (gaps.next_work[1:] >= 0)
    chained[1:] = gaps.in_time[1:] & follows
    first = np.maximum.accumulate(np.where(chained, 0, np.arange(len(direct))))
    return np.where(chained, direct[first], -1)
