"""CUPTI requests and flushes its buffers."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.units import format_ns
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule
from traceanalyzer.timeline.activity import ProfilerRows
from traceanalyzer.timeline.selection import Events


class Limits:
    min_stall_ns: int = 20_000
    """shorter stalls are ignored; a flush takes 80 µs and a request 1.5 to 3 ms (H200, B200); a normal launch
    call takes only 4 to 10 µs"""


@rule(since="0.1", claims=Claims.RECORDING, min_share=0.0, limits=Limits)
def activity_buffer_request(profiler: ProfilerRows, events: Events, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """The profiler asked for a buffer in the middle of an op.

    What it looks for: ops and calls that stall while an event `Activity Buffer Request` or `Buffer Flush`
    runs. These events come from CUPTI, the library that records the GPU for the profiler.
    Why it costs: the stalled op seems to take milliseconds, and the GPU may be idle meanwhile. Without the
    profiler this does not happen, so the finding is always `info`.
    Bad: schedule(wait=0, warmup=0), or a recording of many thousand launches. Good: a schedule with warm-up.
    How sure: the profiler records these events itself. The stalled op is the op that the same thread runs at that time.
    When it is wrong: no wrong finding is known.
    What it misses: CUPTI of CUDA before 12.7 records no such events. The stall then looks like a slow launch.
    Source: kineto issue 1020; measured on an H200 with torch 2.11.
    """
    stall = profiler.stall_end_ns - profiler.stall_start_ns
    chosen = np.flatnonzero(profiler.buffer & (profiler.stalled >= 0) & (stall >= limits.min_stall_ns))
    rows = Calls(events, profiler.row[chosen])
    stalled = Calls(events, profiler.stalled[chosen])
    for kind, affected_rows in rows.by(rows.name):
        which = chosen[np.isin(rows.rows, affected_rows.rows)]
        starts, ends = profiler.stall_start_ns[which], profiler.stall_end_ns[which]
        victims = stalled[np.isin(rows.rows, affected_rows.rows)]
        ops = victims.op.name.or_else(victims.name).sums(ends - starts)
        idle_for = LostTime.idle_within(idle, starts, ends)
        stall_ns, idle_ns = int((ends - starts).sum()), int((idle_for.end_ns - idle_for.start_ns).sum())
        part = "all that time" if format_ns(idle_ns) == format_ns(stall_ns) else "for {idle} of it"
        yield Hits(
            occurrences=affected_rows,
            named_by=kind,
            lost=idle_for,
            message=f"{{by}} by the profiler, {{times}}: {{ops}} stalled for {{stall}}, the GPU was idle {part}",
            advice="The profiler, not your code, held ops up because it needed buffers: a longer warm-up, "
            "schedule(wait=1, warmup=3), or fewer steps avoid this.",
            evidence={"stall_ns": stall_ns, "idle_ns": idle_ns, "ops": ops},
            related=(victims, victims.op),
            info=True,
        )
