"""Ops that wait until the GPU returns a value or a size."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, median
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import Drop, DropSpans, Edit, ReadLater
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.tensors.ops.table import is_view
from traceanalyzer.timeline.host_round_trips import AwaitedValues
from traceanalyzer.timeline.names import TRAINS

# Their result is a truth value, which nothing but a decision needs; a sum or a mean may be the loss itself.
_DECIDES = (
    r"^aten::(any|all|_is_any_true|_is_all_true|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|isneginf|isposinf|"
    r"logical_(and|or|not|xor)|__and__|__or__|bitwise_(and|or|not)|abs)$"
)
_ENDS = r"^aten::(any|all|_is_any_true|_is_all_true|eq|ne|lt|le|gt|ge|isnan|isinf|isfinite|logical_\w+|bitwise_\w+)$"
# Ops that make one value, such as abs, gt, any or isnan, logical_or, any.
_MAX_MAKERS = 4
# What picks tokens from logits, and what the next pass begins with.
_SAMPLES = r"^aten::(argmax|multinomial|topk|sort|max|searchsorted)$"
_LOOKS_UP = r"^aten::embedding$"
# Only torch.distributions calls this op, before it raises an error; torch 2.11.
_ANSWER = r"^aten::_is_all_true$"
_FIXED_BINS = (
    "Count into a fixed number of bins: torch.zeros(n, device=x.device).scatter_add_(0, x, torch.ones_like(x, "
    "dtype=torch.float32)). bincount reads the largest value back to the CPU, even if minlength is given."
)
_SENT_ONCE = (
    "Make a tensor of constants once and keep it on the device (register_buffer in a module). Of values that change, "
    "make one tensor before the loop, copy it once, and index it."
)
_COUNTED = r"nonzero|nonzero_numpy|where|argwhere|_?unique\w*|bincount|repeat_interleave|combinations"


class Awaited(NamedTuple):
    """A kind of blocking op."""

    ops: str | None  # pattern of the names that the user calls; None if names do not decide
    why: str
    advice: str
    only_reads: bool = False  # it does nothing else, and goes where nobody needs the value


KINDS = {
    "boolean-mask": Awaited(
        r"^aten::(index|masked_select|index_put_?|_index_put_impl_)$",
        "waits until the GPU has counted how many elements of its mask are True",
        "Keep the shape: use torch.where(mask, x, other), masked_fill or a product with the mask, which also run "
        "fewer kernels. If the mask stays the same, compute the indices once.",
    ),
    "data-dependent-size": Awaited(
        rf"^aten::({_COUNTED})$",
        "waits until the GPU has counted the size of its result",
        "Give the size (nonzero_static(size=), repeat_interleave(output_size=)), or keep the shape with a mask.",
    ),
    "branch": Awaited(
        r"^aten::(is_nonzero|equal|allclose)$",
        "waits for a value that the CPU needs to choose a branch",
        "Decide on the device (torch.where), or check every few steps.",
        only_reads=True,
    ),
    "argument-check": Awaited(
        None,  # by the op before
        "waits for a check of a distribution's arguments, which torch.distributions makes on the GPU",
        "Turn the checks off once the program runs: torch.distributions.Distribution.set_default_validate_args(False), "
        "or validate_args=False for each distribution.",
        only_reads=True,
    ),
    "copy-to-host": Awaited(
        r"^aten::(to|_to_copy|copy_|cpu|clone)$",
        "waits for a copy to the host",
        "Join results on the device, and copy them to the host together; or copy with non_blocking=True to pinned "
        "memory and read it later.",
        only_reads=True,
    ),
    "read-back": Awaited(
        r"^aten::(item|_local_scalar_dense)$",
        "reads a value back to the host and waits for it",
        "Keep the value on the device: accumulate it there, and read it back every few steps.",
        only_reads=True,
    ),
    "inside-op": Awaited(
        r"",
        "reads a result back to the host and waits for it",
        "Use a variant of this op that stays on the device, or call it once for many inputs.",
    ),
    "copy-to-device": Awaited(
        None,  # by the direction of its copy
        "waits for a copy of a few bytes to the device, and for all work queued before it",
        "Create the value on the device (torch.full, torch.arange with device=), keep it there, or copy from pinned "
        "memory with non_blocking=True.",
    ),
    "result": Awaited(
        None,  # by what the step still launches: nothing
        "waits for the result of an inference step",
        "If each step answers a request, leave this wait as it is. If steps follow each other, launch the next one "
        "before you read this result: copy it with non_blocking=True to pinned memory.",
        only_reads=True,
    ),
    "tokens": Awaited(
        None,  # by the ops around it
        "reads sampled tokens back to the host and waits for them",
        "Launch step n+1 before you read the tokens of step n: copy them with non_blocking=True to pinned memory, and "
        "read the copy one step later. If the CPU decides by them what runs next, keep the wait.",
    ),
    "loss-scaling": Awaited(
        None,  # by the ops around it
        "is GradScaler's check for overflowed gradients, and waits for the answer",
        "Use an optimizer with {fused=True}, which checks on the device, or bfloat16, which needs no scaler.",
        only_reads=True,
    ),
}


class Limits:
    min_repeats: int = 16
    """from this many torch.tensor(data, device=) in a step on, one copy or none can do for all of them; chosen"""
    mask_passes: float = 2.0
    """for the saving: torch.where, which replaces x[mask], takes this many times as long as the kernel that computes
    the mask (such as x > 0); torch.where reads mask and data, and writes a result of the data's size; H200, float32"""
    fill_ns: int = 800
    """for the saving: if torch.where gets a Python number, a kernel first fills a tensor with this number,
    and takes this time; H200, torch 2.11"""
    where_ns: int = 20_000
    """for the saving: torch.where takes this CPU time without the profiler (with the profiler it takes 42
    µs); H200 host, torch 2.11"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=tuple(KINDS))
def implicit_sync(calls: Calls, work: Work, idle: IdleTime, values: AwaitedValues, limits: Limits) -> Iterator[Hits]:
    """An op reads back from the GPU, and the host waits for it.

    What it looks for: an op that copies a few bytes to the host and waits for them. Examples are .item(),
    bool(), .tolist(), and .cpu() of small tensors. Ops whose result has a data-dependent size also wait, such
    as boolean index, nonzero and unique.
    Why it costs: the host cannot queue work while it waits, so the GPU becomes idle.
    Bad: `loss.item()` in every step. Good: add up the loss on the device and read the sum every 100 steps.
    Bad: `x[x > 0]`. Good: `torch.where`.
    How sure: the trace shows the copy and the waiting call inside the op. In a launch-bound loop the GPU
    would be idle anyway, so the saving is smaller.
    When it is wrong: the next step needs the value. If only a later step needs it, read it one step later, or
    less often. Sampled tokens that the next pass takes from the GPU (cause `tokens`) can be read after its launch.
    In inference, the last value that a step reads is usually its result, so the severity is info.
    Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization".
    """
    ops, outer = Calls(work.events, values.op), calls[calls.is_top_op]
    copies, waits = Work(work.events, values.copy), Calls(work.events, values.wait)
    charged = idle.waited()
    for (cause, op), reads in ops.by(kinds_of(ops, values, calls, work), _called_names(ops)):
        waiting, moved = waits[waits.inside(reads)], copies[copies.launch.inside(reads)]
        if cause == "copy-to-device" and np.isin(waiting.rows, moved.launch.rows).all():
            continue  # the call that copies waits itself: exposed-copy's
        counting = work[np.isin(work.op.rows, waiting.op.rows)] if cause == "boolean-mask" else moved
        waiter = charged.call.index_of_enclosing(reads)
        idling = charged[waiter >= 0]
        serving = counting.launch.index_of_enclosing(reads)
        spent = LostTime.all_of(counting[serving >= 0], serving[serving >= 0])
        waited_ns = int(_waited_ns(waiting).sum())
        tensors = _often_made(reads, outer, limits) if cause == "copy-to-device" else None
        advice = _FIXED_BINS if op == "aten::bincount" else _SENT_ONCE if tensors else KINDS[cause].advice
        yield Hits(
            occurrences=reads,
            named_by=op,
            cause=cause,
            lost=LostTime.joined([LostTime.all_of(idling, waiter[waiter >= 0]), spent]),
            fix=tensors or _fix(cause, reads, waiting, moved, work, last_makers(reads, outer), limits),
            message=f"{{by}} {KINDS[cause].why}, {{times_a_step}}{{at_lines:of these calls' time}}"
            + "; the GPU then has nothing queued and is idle until the next launch, for {idle_a_step} in the recording"
            * bool(len(idling))
            + ("; the CPU waits {each} on average" if len(reads) > 1 else "; the CPU waits {each}"),
            advice=advice,
            evidence={
                "waited_ns": waited_ns,
                "each_ns": waited_ns // max(len(reads), 1),
                "idle_ns": idling.total_ns,
                "lines": reads.line.sums(reads.dur_ns),
            },
            of_window=("idle_ns",),
            info=cause == "result",
        )


def _called_names(ops: Calls) -> Texts:
    """Names of the ops. The backward of an index waits for the mask that the user indexed with."""
    names = np.append(ops.name.names, "aten::index")
    backward = ops.outer_op.name.matches(r"\bIndexBackward") & ops.name.matches(r"index_put")
    return Texts(np.where(backward, np.flatnonzero(names == "aten::index")[0], ops.name.code), names)


def _waited_ns(waiting: Calls) -> Rows:
    """Waiting time of each call within the window, int64 ns."""
    steps = waiting.events.steps
    if steps.asked:  # then some lie outside of it, which wait no less
        return waiting.dur_ns
    begin, end = steps.window_start_ns, steps.window_end_ns
    waited: Rows = np.minimum(waiting.end_ns, end) - np.maximum(waiting.start_ns, begin)
    return np.maximum(waited, 0)


def _fix(cause: str, reads: Calls, waiting: Calls, moved: Work, work: Work, makers: Rows, limits: Limits) -> Edit:
    """The edits that remove the read. An op with another purpose stays and no longer waits."""
    if KINDS[cause].only_reads:
        return Drop(distinct(np.append(reads.rows, makers)))
    if cause == "tokens":
        return ReadLater(waiting.rows)
    if cause == "copy-to-device":
        return Drop(np.setdiff1d(waiting.rows, moved.launch.rows))
    if cause != "boolean-mask":
        return Drop(distinct(np.append(waiting.rows, moved.launch.rows)))
    order = np.argsort(work.launch.start_ns, kind="stable")
    before = np.searchsorted(work.launch.start_ns[order], reads.start_ns) - 1  # whose kernel made the mask
    where = work.dur_ns[order[np.maximum(before, 0)]] * limits.mask_passes
    kernels = np.stack((np.full(len(reads), limits.fill_ns), where), axis=1)
    return Replace(reads.start_ns, reads.end_ns, kernels, limits.where_ns)


def _often_made(sends: Calls, outer: Calls, limits: Limits) -> DropSpans | None:
    """The edit that removes all calls of torch.tensor(data, device=...); None of other copies, and of few a step."""
    outer, each_step = outer.in_order(), np.bincount(sends.step[sends.step >= 0])
    place = np.flatnonzero(np.isin(outer.rows, sends.rows))
    before, after = np.maximum(place - 1, 0), np.minimum(place + 1, len(outer) - 1)
    # torch.tensor fills a tensor on the CPU, copies it, and hands the copy out.
    fits = (outer.name.matches("^aten::empty$")[before]) & outer.name.matches("^aten::lift_fresh$")[after]
    fits &= (outer.thread[before] == outer.thread[place]) & (outer.thread[after] == outer.thread[place])
    # Without steps the median is no number.
    often = fits.sum() == len(sends) and median(each_step[each_step > 0]) >= limits.min_repeats
    return DropSpans(outer.start_ns[before], outer.end_ns[after], stall=False) if often else None


def last_makers(reads: Calls, outer: Calls) -> Rows:
    """Rows of the outermost ops right before each read-back, on its thread, that make its truth value."""
    outer = outer.in_order()
    decides, ends = outer.name.matches(_DECIDES), outer.name.matches(_ENDS)
    place = np.flatnonzero(np.isin(outer.rows, reads.outer_op.rows))
    alive = np.ones(len(place), bool)
    rows = [np.empty(0, np.int64)]
    for back in range(1, _MAX_MAKERS + 1):
        alive &= place >= back
        before = np.maximum(place - back, 0)
        alive &= outer.thread[before] == outer.thread[place]
        alive &= (ends if back == 1 else decides)[before]
        rows.append(outer.rows[before[alive]])
    return np.concatenate(rows)


def kinds_of(ops: Calls, values: AwaitedValues, calls: Calls, work: Work) -> Texts:
    """The kind in `KINDS` of each op: the first pattern that matches, or what else identifies it."""
    names = list(KINDS)
    patterns = [(number, kind.ops) for number, kind in enumerate(KINDS.values()) if kind.ops is not None]
    numbers = np.select([ops.name.matches(ops_) for _, ops_ in patterns], [number for number, _ in patterns])
    if not calls.name.matches(TRAINS).any():
        read = np.flatnonzero(numbers == names.index("copy-to-host"))
        numbers[read[is_last_launch(ops[read], work)]] = names.index("result")
        read = np.flatnonzero(np.isin(numbers, [names.index("copy-to-host"), names.index("read-back")]))
        outer = calls[calls.is_top_op & ~calls.name.meets(is_view)].in_order()
        sampled = _next_to(ops[read], outer, _SAMPLES, -1) & _next_to(ops[read], outer, _LOOKS_UP, 1)
        numbers[read[sampled]] = names.index("tokens")
    branches = np.flatnonzero(numbers == names.index("branch"))
    checks = _next_to(ops[branches], calls[calls.is_top_op].in_order(), _ANSWER, -1)
    numbers[branches[checks]] = names.index("argument-check")
    numbers[values.upwards] = names.index("copy-to-device")
    numbers[values.scaler] = names.index("loss-scaling")
    return Texts(numbers, np.array(names, object))


def is_last_launch(read: Calls, work: Work) -> Mask:
    """True for each op after which its step launches only copies for other reads."""
    other_launches = work.launch[(work.launch.step >= 0) & ~work.launch.inside(read)]
    last = np.zeros(max(int(read.step.max(initial=-1)), int(other_launches.step.max(initial=-1))) + 2, np.int64)
    np.maximum.at(last, other_launches.step, other_launches.start_ns)
    return np.asarray((read.step >= 0) & (read.start_ns > last[read.step]))


def _next_to(reads: Calls, outer: Calls, names: str, by: int) -> Mask:
    """True for each op next to an outermost op of such a name on its thread: before it (`by` -1) or after it (1)."""
    place = np.flatnonzero(np.isin(outer.rows, reads.outer_op.rows))
    beside = np.clip(place + by, 0, len(outer) - 1)
    fits = outer.name.matches(names)[beside] & (outer.thread[beside] == outer.thread[place]) & (beside != place)
    return np.isin(reads.outer_op.rows, outer.rows[place[fits]])
