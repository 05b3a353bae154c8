"""Ops that wait for the GPU to hand a value or a size to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import Drop, Edit
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.awaited_values import AwaitedValues


@dataclass(frozen=True, slots=True)
class Limits:
    mask_passes: float = limit(
        2.0, "times the mask's kernel: `where` reads mask and data, and writes; H200, float32"
    )
    fill_ns: int = limit(
        800, "the kernel that makes a tensor of the scalar given to `where`; H200, torch 2.11"
    )
    where_ns: int = limit(20_000, "CPU time of `where`; 42 us under the profiler, H200 host, torch 2.11")


_CAUSES = ("synchronisation", "blocking-upload")  # of idle time, in the accounting's table

# cause -> (ops, as the user calls them; what they wait for; remedy); the first whose ops match.
_COUNTED = r"nonzero|nonzero_numpy|where|argwhere|_?unique\w*|bincount|repeat_interleave|combinations"
_KINDS = {
    "boolean-mask": (
        r"^aten::(index|masked_select|index_put_?|_index_put_impl_)$",
        "waits until the GPU has counted its mask",
        "Keep the shape: torch.where(mask, x, other), masked_fill or a product with the mask; or index once by numbers "
        "where the mask stays the same.",
    ),
    "data-dependent-size": (
        rf"^aten::({_COUNTED})$",
        "waits until the GPU has counted how large its result is",
        "Give the size (nonzero_static(size=), repeat_interleave(output_size=)), or keep the shape with a mask.",
    ),
    "branch": (
        r"^aten::(is_nonzero|equal|allclose)$",
        "waits for a value on which the host decides",
        "Decide on the device (torch.where), check every few steps, or turn the check off (validate_args=False).",
    ),
    "copy-to-host": (
        r"^aten::(to|_to_copy|copy_|cpu|clone)$",
        "waits for a copy to the host",
        "Collect on the device and copy once, or copy with non_blocking=True to pinned memory and read it later.",
    ),
    "read-back": (
        r"^aten::(item|_local_scalar_dense)$",
        "waits for a value on the host",
        "Keep the value on the device: add it up there, and read it back once every few steps.",
    ),
    "inside-op": (
        r"",
        "waits for a result on the host before it goes on",
        "Look for a variant of this op that stays on the device, or call it once for many inputs.",
    ),
    "copy-to-device": (
        r"^$",  # told by the direction of its copy
        "waits for a copy of a few bytes to the device, and with it for all that was queued before",
        "Make it on the device (torch.full, torch.arange with device=), keep it there, or copy from pinned memory with "
        "non_blocking=True.",
    ),
    "loss-scaling": (
        r"^$",  # told by what is around it
        "is GradScaler asking whether a gradient overflowed, and waits for the answer",
        "Use an optimizer with fused=True, which asks on the device, or bfloat16, which needs no scaler.",
    ),
}
_ONLY_READS = ("loss-scaling", "branch", "copy-to-host", "read-back")  # the op does nothing else


@rule(since="0.2", claims=Claims.EVENT, limits=Limits)
def implicit_sync(
    calls: Calls, work: Work, idle: IdleTime, values: AwaitedValues, limits: Limits
) -> Iterator[Hits]:
    """An op reads back from the GPU, and the host waits for it.

    What it looks for: an op that copies some bytes to the host and waits for them: .item(), bool(), .tolist(), .cpu()
    of small tensors, and ops whose result's size depends on the data (boolean index, nonzero, unique, bincount).
    Why it costs: the host cannot queue work while it waits, so the GPU runs dry; what the op computes only to count
    (kernels over the mask) and the copy come on top.
    Bad: `loss.item()` in every step; `x[x > 0]`. Good: add up on the device and read every 100 steps; `torch.where`.
    How sure: the op holds the copy and the call that waits. Its cost is the idle time that the accounting charges to
    that call, the copy and the counting kernels. Where the loop is bound by launches the GPU would be idle anyway:
    then the saving says so. Reading a CPU tensor launches nothing and is not looked at.
    When it is wrong: a value that decides what comes next has to be read; then ask for it later or less often.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    ops = Calls(work.events, values.op)
    copies, waits = Work(work.events, values.copy), Calls(work.events, values.wait)
    for (cause, op), found in ops.by(_causes(ops, values), ops.name):
        _, why, advice = _KINDS[cause]
        waiting, moved = waits[waits.inside(found)], copies[copies.launch.inside(found)]
        counting = work[np.isin(work.op.rows, waiting.op.rows)] if cause == "boolean-mask" else moved
        lines = found.line.sums(found.dur_ns)
        yield Hits(
            at=found,
            by=op,
            cause=cause,
            lost=_lost(found, counting, idle),
            fix=_fix(cause, found, waiting, moved, work, limits),
            message=f"{{by}} {why}, {{times_a_step}}: the host waits {{waited}} in all"
            + (", at {lines}" if lines else ""),
            advice=advice,
            evidence={"waited_ns": waiting.total_ns, "lines": lines},
        )


def _causes(ops: Calls, values: AwaitedValues) -> Texts:
    """Position in `_KINDS` of each op: by its name, but for those that are told otherwise."""
    kinds = list(_KINDS)
    kind = np.select([ops.name.matches(pattern) for pattern, *_ in _KINDS.values()], range(len(kinds)))
    kind[values.upwards] = kinds.index("copy-to-device")
    kind[values.scaler] = kinds.index("loss-scaling")
    return Texts(kind, np.array(kinds, object))


def _lost(found: Calls, spent: Work, idle: IdleTime) -> Lost:
    """The idle time charged to what is inside, and the work that is done only to read."""
    charged = idle.charged_to(*_CAUSES)
    waiting, working = charged.call.owner(found), spent.launch.owner(found)
    parts = Lost.all_of(charged[waiting >= 0], waiting[waiting >= 0]), Lost.all_of(spent, working)
    return Lost.joined([parts[0], parts[1][working >= 0]])


def _fix(cause: str, found: Calls, waiting: Calls, moved: Work, work: Work, limits: Limits) -> Edit:
    """What would be without the value; where the op does more than read it, the op stays and no longer waits."""
    if cause in _ONLY_READS:
        return Drop(found.rows)
    if cause == "copy-to-device":
        return Drop(np.setdiff1d(waiting.rows, moved.launch.rows))
    if cause != "boolean-mask":
        return Drop(np.union1d(waiting.rows, moved.launch.rows))
    order = np.argsort(work.launch.start_ns, kind="stable")
    before = np.searchsorted(work.launch.start_ns[order], found.start_ns) - 1  # whose kernel made the mask
    where = work.dur_ns[order[np.maximum(before, 0)]] * limits.mask_passes
    kernels = np.stack((np.full(len(found), limits.fill_ns), where), axis=1)
    return Replace(found.start_ns, found.end_ns, kernels, limits.where_ns)
