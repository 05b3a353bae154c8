"""Ops that wait for the GPU to hand a value or a size to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, sums_of
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import Drop, DropSpans, Edit
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule
from traceanalyzer.rule.views.cpu_gaps import HostCalls
from traceanalyzer.rules.gpu_idle.implicit_sync.awaited_kinds import KINDS, advice_of, kinds_of
from traceanalyzer.rules.gpu_idle.implicit_sync.host_loops import loops_after, most_often
from traceanalyzer.rules.gpu_idle.implicit_sync.value_makers import makers_of
from traceanalyzer.timeline.awaited_values import AwaitedValues

_LOOP = "Do on the device what the loop does: keep the data there, and index or pad all rows at once. "


@dataclass(frozen=True, slots=True)
class Limits:
    mask_passes: float = limit(
        2.0,
        "for the saving: torch.where, which replaces x[mask], takes this many times as long as the kernel "
        "that computes the mask (such as x > 0); torch.where reads mask and data, and writes a result of "
        "the data's size; H200, float32",
    )
    fill_ns: int = limit(
        800,
        "for the saving: if torch.where gets a Python number, a kernel first fills a tensor with this "
        "number, and takes this time; H200, torch 2.11",
    )
    alike_times: float = limit(
        2.0,
        "the finding shows the longest wait only if it is more than this many times as long as the mean "
        "wait; else it shows the mean alone; chosen",
    )
    min_loop_ops: int = limit(
        100,
        "the ops between a copy to the host and the next launch are a loop over the copied values if "
        "there are at least so many; chosen",
    )
    where_ns: int = limit(
        20_000,
        "for the saving: torch.where takes this CPU time without the profiler (with the profiler it takes "
        "42 µs); H200 host, torch 2.11",
    )


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=tuple(KINDS))
def implicit_sync(
    calls: Calls, work: Work, idle: IdleTime, values: AwaitedValues, stretches: HostCalls, limits: Limits
) -> Iterator[Hits]:
    """An op reads back from the GPU, and the host waits for it.

    What it looks for: an op that copies a few bytes to the host and waits for them. Examples are .item(),
    bool(), .tolist(), and .cpu() of small tensors. Ops whose result has a data-dependent size also wait, such
    as boolean index, nonzero and unique.
    Why it costs: the host cannot queue work while it waits, so the GPU becomes idle.
    Bad: `loss.item()` in every step. Good: add up the loss on the device and read the sum every 100 steps.
    Bad: `x[x > 0]`. Good: `torch.where`.
    How sure: the trace shows the copy and the waiting call inside the op. In a launch-bound loop the GPU
    would be idle anyway, so the saving is smaller. If the host runs a long loop over the values that it read,
    the cost includes this loop.
    When it is wrong: the next step needs the value. If only a later step needs it, read it one step later, or
    less often. In inference, the last value that a step reads is usually its result, so the severity is info.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    ops, outer = Calls(work.events, values.op), calls[calls.is_top_op]
    copies, waits = Work(work.events, values.copy), Calls(work.events, values.wait)
    charged = idle.waited()
    for (cause, op), found in ops.by(kinds_of(ops, values, calls, work), _as_called(ops)):
        waiting, moved = waits[waits.inside(found)], copies[copies.launch.inside(found)]
        if cause == "copy-to-device" and np.isin(waiting.rows, moved.launch.rows).all():
            continue  # the call that copies waits itself: exposed-copy's
        counting = work[np.isin(work.op.rows, waiting.op.rows)] if cause == "boolean-mask" else moved
        lines, waiter = found.line.sums(found.dur_ns), charged.call.index_of_enclosing(found)
        idling = charged[waiter >= 0]
        waited = _waited_ns(waiting)
        loops = loops_after(found if cause == "copy-to-host" else found[:0], stretches, limits.min_loop_ops)
        yield Hits(
            occurrences=found,
            named_by=op,
            cause=cause,
            lost=_lost(found, counting, idling, waiter[waiter >= 0]),
            fix=(
                _fix(cause, found, waiting, moved, work, makers_of(found, outer), limits),
                DropSpans(loops.start_ns, loops.end_ns),
            ),
            message=f"{{by}} {KINDS[cause].why}, {{times_a_step}}"
            + (", at {lines:of these calls' time}" if lines else "")
            + (
                "; then the CPU works for {host_a_step} before the next launch: a loop of short ops, mostly {host_ops}"
                if len(loops)
                else "; the GPU then has nothing queued and is idle until the next launch, for {idle_a_step} in "
                "the recording" * bool(len(idling))
            )
            + _waits(
                longest := _longest(waiting, waited, found),
                total := int(waited.sum()),
                len(found),
                limits.alike_times,
            ),
            advice=_LOOP * bool(len(loops)) + advice_of(cause, op, calls),
            evidence={
                "waited_ns": total,
                "each_ns": total // max(len(found), 1),
                "longest_ns": longest,
                "idle_ns": idling.total_ns,
                "lines": lines,
                **({"host_ns": loops.total_ns, "host_ops": most_often(loops)} if len(loops) else {}),
            },
            of_window=("idle_ns",),
            info=cause == "result",
        )


def _as_called(ops: Calls) -> Texts:
    """Names of the ops; what waits in the backward of an index waits for the mask that the user indexed with."""
    names = np.append(ops.name.names, "aten::index")
    backward = ops.outer_op.name.matches(r"\bIndexBackward") & ops.name.matches(r"index_put")
    return Texts(np.where(backward, np.flatnonzero(names == "aten::index")[0], ops.name.code), names)


def _waited_ns(waiting: Calls) -> Rows:
    """How long each call waits within the window: what was launched before the recording is nobody's."""
    steps = waiting.events.steps
    if steps.asked:  # then some lie outside of it, which wait no less
        return waiting.dur_ns
    begin, end = steps.window_start_ns, steps.window_end_ns
    waited: Rows = np.minimum(waiting.end_ns, end) - np.maximum(waiting.start_ns, begin)
    return np.maximum(waited, 0)


def _longest(waiting: Calls, waited: Rows, found: Calls) -> int:
    """How long the op that waits longest waits in all."""
    return int(sums_of(waiting.index_of_enclosing(found), waited, len(found)).max(initial=0))


def _waits(longest_ns: int, waited_ns: int, count: int, most: float) -> str:
    """How long the CPU waits: of each where they are alike."""
    if count == 1:
        return "; the CPU waits {each}"
    alike = longest_ns * count <= most * waited_ns
    return f"; the CPU waits {{each}} {'each time' if alike else 'on average, at most {longest}'}"


def _lost(found: Calls, spent: Work, idling: IdleTime, waiter: Rows) -> LostTime:
    """The idle time charged to what is inside each, and the work that is done only to read."""
    working = spent.launch.index_of_enclosing(found)
    reading = LostTime.all_of(spent[working >= 0], working[working >= 0])
    return LostTime.joined([LostTime.all_of(idling, waiter), reading])


def _fix(
    cause: str, found: Calls, waiting: Calls, moved: Work, work: Work, makers: Rows, limits: Limits
) -> Edit:
    """What would be without the value; where the op does more than read it, the op stays and no longer waits."""
    if KINDS[cause].only_reads:
        return Drop(np.union1d(found.rows, makers))
    if cause == "copy-to-device":
        return Drop(np.setdiff1d(waiting.rows, moved.launch.rows))
    if cause != "boolean-mask":
        return Drop(np.union1d(waiting.rows, moved.launch.rows))
    order = np.argsort(work.launch.start_ns, kind="stable")
    before = np.searchsorted(work.launch.start_ns[order], found.start_ns) - 1  # whose kernel made the mask
    where = work.dur_ns[order[np.maximum(before, 0)]] * limits.mask_passes
    kernels = np.stack((np.full(len(found), limits.fill_ns), where), axis=1)
    return Replace(found.start_ns, found.end_ns, kernels, limits.where_ns)
