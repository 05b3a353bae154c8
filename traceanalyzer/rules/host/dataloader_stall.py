"""The step waits for its next batch."""

from collections.abc import Iterator, Mapping

import numpy as np

from traceanalyzer.model.arrays import distinct, median
from traceanalyzer.replay.edits import Drop, DropSpans
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.steps import Steps

NO_LINE = "code without a recorded line"
_NO_OP = "code outside of ops"
# Instants. A function with a tenth of the time is met 51 times.
_SAMPLES = 512
# Time to take a batch that is ready, without the profiler, in ns; H200 host, torch 2.11.
_NEXT_NS = 150_000.0
_ADVICE = {
    "SingleProcess": "Load in other processes: DataLoader(num_workers=4 or more, pin_memory=True, "
    "persistent_workers=True). At present (num_workers=0), every batch is created inside the step.",
    "MultiProcessing": "The workers are too slow: raise num_workers towards the number of CPU cores, make "
    "the transforms cheaper or cache their results, and raise prefetch_factor.",
    "": "Prepare the next batch ahead of the step, in a DataLoader with workers or in another process with a queue.",
}
_ON_DEVICE = (
    "Keep the dataset on the CPU, and copy each batch to the GPU once: tensors on the GPU make each item launch "
    "kernels and copies. Workers cannot load from a GPU."
)
_ONCE = "Record more steps, to see whether this recurs. If it does: "


class Limits:
    min_wait_ns: int = 200_000
    """shorter waits for a batch are ignored; fetching a batch that is ready takes 50 µs under the profiler
    (measured on the host of an H200)"""
    min_steps_share: float = 0.5
    """waiting is regarded as recurring if at least this share of the steps waits; chosen"""
    min_function_share: float = 0.5
    """the advice names a function if the function takes at least this share of the loader's time"""
    min_launches: int = 32
    """a loader that launches at least this many kernels and copies a batch works on tensors on the GPU; a
    loader that copies a batch launches one per tensor; chosen"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=("on-device",))
def dataloader_stall(
    calls: Calls, activity: Activity, idle: IdleTime, steps: Steps, limits: Limits
) -> Iterator[Hits]:
    """The step waits for its next batch of data.

    What it looks for: idle time of the GPU while the launching thread loads data. The thread is in a
    DataLoader's next(), in a DataPipe, or in an annotation such as load_batch.
    Why it costs: the CPU cannot launch work on a batch before the batch is there.
    If the loader's own ops launch kernels and copies, the dataset lies on the GPU (`on-device`). Then its ops are
    what can go, and its Python code stays.
    Bad: DataLoader(num_workers=0) with images decoded in the step. Good: enough workers, pinned memory and
    prefetching, so that next() returns at once.
    How sure: the time of next() and the GPU's idle time during next() are measured.
    When it is wrong: an annotation named load_batch does something else. Or only a few steps wait, perhaps
    because the workers have just started. A longer recording shows whether the wait recurs.
    Source: PyTorch's performance tuning guide, "Enable asynchronous data loading and augmentation".
    """
    loading = calls[np.isin(calls.rows, activity.rows["data_loading"])]
    outermost = loading[~loading.parent.inside(loading)]
    waits = outermost[outermost.dur_ns >= limits.min_wait_ns]
    for name, same_waits in waits.by(waits.name):
        inside = same_waits.contents()
        names = "".join(inside.name.distinct())
        kind = next((kind for kind in _ADVICE if kind and kind in names), "")
        spent = time_in_ops(same_waits, inside) if kind == "SingleProcess" else {}
        functions = time_in_functions(same_waits, inside) if kind != "MultiProcessing" else {}
        waited = distinct(same_waits.step)
        few = len(waited) < limits.min_steps_share * len(steps)
        once = few and bool((np.diff(waited) == 1).all())  # a few steps in a row
        launched, _ = same_waits.launched()
        on_device = len(launched) >= limits.min_launches * len(same_waits)
        leaving = DropSpans(same_waits.start_ns, same_waits.end_ns, leaving_ns=_NEXT_NS)
        yield Hits(
            occurrences=same_waits,
            named_by=name,
            cause="on-device" if on_device else "",
            lost=LostTime.idle_within(idle, same_waits.start_ns, same_waits.end_ns),
            fix=Drop(needless_on_device(launched).rows) if on_device else leaving,
            message="{by} leaves the GPU idle for {total_a_step} under the profiler; it takes {typical} each time "
            "(at most {largest}), {in_steps}"
            + (" (the others do not wait)" if once else "")
            + ("; it launches work {number} times a batch" if on_device else "")
            + ("; the loader spends its time in {ops:of the loader's time}" if spent else "")
            + (
                "; the same time by function: {functions:of the loader's time}"
                if next(iter(functions), NO_LINE) != NO_LINE
                else ""
            ),
            advice=_ONCE * once
            + (_ON_DEVICE if on_device else _ADVICE[kind])
            + _loader_advice(functions, same_waits.total_ns, limits),
            evidence={
                "typical_ns": int(median(same_waits.dur_ns)),
                "largest_ns": int(same_waits.dur_ns.max()),
                "wait_ns": same_waits.total_ns,
                "number": round(len(launched) / len(same_waits)),
                "ops": spent,
                "functions": functions,
                "lines": {name: ns for name, ns in functions.items() if name != NO_LINE},
            },
            info=once,
        )


def needless_on_device(launched: Work) -> Calls:
    """What a loader of tensors on the CPU does without: the launches of its kernels, and the ops that copy."""
    copies = ~launched.kind.one_of("compute")
    rows = np.where(copies & launched.op.there, launched.op.rows, launched.launch.rows)
    return Calls(launched.events, distinct(rows))


def _loader_advice(functions: Mapping[str, int], wait_ns: int, limits: Limits) -> str:
    """Advice if one function takes most of the time."""
    name, ns = next(iter(functions.items()), ("", 0))
    mostly = name != NO_LINE and ns >= limits.min_function_share * wait_ns
    return f" {name} itself may be faster with arrays instead of lists and Python loops." if mostly else ""


def time_in_ops(waits: Calls, inside: Calls) -> dict[str, int]:
    """Op -> ns of its own within the waits, and what lies in no op; empty where no op was recorded."""
    ops = inside[inside.is_op & ~inside.is_annotation]
    if not len(ops):
        return {}
    own_ns = ops.name.sums(ops.self_ns)
    inner = inside[~inside.is_op & ~inside.is_annotation & (inside.parent.op.rows >= 0)]
    calls_ns = inner.op.name.sums(inner.self_ns)  # a call's time is its op's
    return with_rest({op: ns + calls_ns.get(op, 0) for op, ns in own_ns.items()}, waits.total_ns, _NO_OP)


def time_in_functions(waits: Calls, inside: Calls) -> dict[str, int]:
    """The user's innermost function within the waits -> ns, and the rest; empty where no stacks were recorded.

    Read at instants that lie evenly in all waits; where only ops have stacks, from these.
    """
    code = waits.events.user_code
    if not len(code.start_ns):
        ops = inside[inside.is_op & ~inside.is_annotation]
        lines = ops.line.sums(ops.self_ns)
        return with_rest(lines, waits.total_ns, NO_LINE) if lines else {}
    reached = np.cumsum(waits.dur_ns)
    within = ((np.arange(_SAMPLES) + 0.5) / _SAMPLES * reached[-1]).astype(np.int64)
    row = np.searchsorted(reached, within, side="right")
    frame = code.open_at(waits.end_ns[row] - (reached[row] - within), waits.thread[row])
    frame = frame[(frame >= 0) & (code.start_ns[frame] >= waits.start_ns[row])]
    names = code.names[code.code[frame]].tolist()
    each = int(reached[-1]) // _SAMPLES
    lines = {str(name): names.count(name) * each for name in dict.fromkeys(names)}
    return with_rest(lines, int(reached[-1]), NO_LINE) if lines else {}


def with_rest(parts: Mapping[str, int], whole_ns: int, rest: str) -> dict[str, int]:
    """The parts and the rest of the whole in ns, largest first. A rest below 1 % is left out."""
    remaining = whole_ns - sum(parts.values())
    every = {**parts, rest: remaining} if remaining * 100 >= whole_ns else dict(parts)
    return dict(sorted(every.items(), key=lambda part: -part[1]))
