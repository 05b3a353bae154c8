"""What the host waits for in an op that copies a value, by the op's name or by what is around it, and the remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, distinct
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, ints_at, matching, texts_of
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.awaited_values import AwaitedValues


@dataclass(frozen=True, slots=True)
class Awaited:
    """One kind.

    Attributes:
        ops: pattern of names as the user calls them; None where it is told otherwise.
        why: the end of a sentence about the op.
        advice: the remedy, in the imperative.
        only_reads: the op does nothing else, and goes where nobody needs the value.
    """

    ops: str | None
    why: str
    advice: str
    only_reads: bool = False


_TRAINS = r"^autograd::engine::|^Optimizer\.step#"
_CHECKS = " Turn the checks of torch.distributions off (validate_args=False)."
_ANSWER = r"^aten::_is_all_true$"  # asked by torch.distributions alone, before it raises an error; torch 2.11
_CHECKING = re.compile(r"(^|/)torch/distributions/(constraints|distribution)\.py\(")
_MAYBE_CHECKS = " If torch.distributions checks its arguments there, turn that off (validate_args=False)."
_FIXED_BINS = (
    "Count into a fixed number of bins: torch.zeros(n, device=x.device).scatter_add_(0, x, torch.ones_like(x, "
    "dtype=torch.float32)). bincount reads the largest value back to the CPU, even if minlength is given."
)
_COUNTED = r"nonzero|nonzero_numpy|where|argwhere|_?unique\w*|bincount|repeat_interleave|combinations"

KINDS = {
    "boolean-mask": Awaited(
        r"^aten::(index|masked_select|index_put_?|_index_put_impl_)$",
        "waits until the GPU has counted how many elements of its mask are True",
        (
            "Keep the shape: use torch.where(mask, x, other), masked_fill or a product with the mask, which also run "
            "fewer kernels. If the mask stays the same, compute the indices once."
        ),
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
    "loss-scaling": Awaited(
        None,  # by the ops around it
        "is GradScaler's check for overflowed gradients, and waits for the answer",
        "Use an optimizer with {fused=True}, which checks on the device, or bfloat16, which needs no scaler.",
        only_reads=True,
    ),
}


def advice_of(kind: str, op: str, calls: Calls) -> str:
    """The remedy for a kind; checks of torch.distributions, which have a switch, only where there may be some.

    Args:
        op: what waits.
    """
    if kind != "branch":
        return _FIXED_BINS if op == "aten::bincount" else KINDS[kind].advice
    events = calls.events
    if events.user_code.recorded:
        names = map(str, texts_of(events.trace.lanes.python, "name"))
        return KINDS[kind].advice + _CHECKS * any("torch/distributions/" in name for name in names)
    return KINDS[kind].advice + _MAYBE_CHECKS * bool(calls.name.one_of("aten::all").any())


def kinds_of(ops: Calls, values: AwaitedValues, calls: Calls, work: Work) -> Texts:
    """Which of `KINDS` each op is: the first whose pattern its name has, but for those that are told otherwise.

    Args:
        calls, work: everything on the CPU and on the device.
    """
    names = list(KINDS)
    patterns = [(number, kind.ops) for number, kind in enumerate(KINDS.values()) if kind.ops is not None]
    found = np.select([ops.name.matches(ops_) for _, ops_ in patterns], [number for number, _ in patterns])
    if not calls.name.matches(_TRAINS).any():
        read = np.flatnonzero(found == names.index("copy-to-host"))
        found[read[_last(ops[read], work)]] = names.index("result")
    branches = np.flatnonzero(found == names.index("branch"))
    checks = _asked(ops[branches], calls) | _checking(ops[branches])
    found[branches[checks]] = names.index("argument-check")
    found[values.upwards] = names.index("copy-to-device")
    found[values.scaler] = names.index("loss-scaling")
    return Texts(found, np.array(names, object))


def _last(read: Calls, work: Work) -> Mask:
    """After which of these ops their step launches nothing but copies of other ones."""
    others = work.launch[(work.launch.step >= 0) & ~work.launch.inside(read)]
    last = np.zeros(max(int(read.step.max(initial=-1)), int(others.step.max(initial=-1))) + 2, np.int64)
    np.maximum.at(last, others.step, others.start_ns)
    return np.asarray((read.step >= 0) & (read.start_ns > last[read.step]))


def _asked(branches: Calls, calls: Calls) -> Mask:
    """Which of these ops come right after the question whether all of a tensor is true: checks, no decisions."""
    outer = calls[calls.is_top_op]
    outer = outer[np.lexsort((outer.start_ns, outer.thread))]
    place = np.flatnonzero(np.isin(outer.rows, branches.outer_op.rows))
    before = outer[np.maximum(place - 1, 0)]
    asked = before.name.matches(_ANSWER) & (before.thread == outer.thread[place]) & (place > 0)
    return np.isin(branches.outer_op.rows, outer.rows[place[asked]])


def _checking(branches: Calls) -> Mask:
    """Which of these ops run in Python code of torch.distributions that checks arguments; none without stacks."""
    trace, found = branches.events.trace, np.zeros(len(branches), bool)
    if not trace.meta.rows.get("python"):
        return found
    python = trace.lanes.python
    rows = np.flatnonzero(matching(python, "name", lambda name: bool(_CHECKING.search(name))))
    start, dur, tid = (ints(python, column)[rows] for column in ("start_ns", "dur_ns", "tid"))
    own = ints_at(trace.lanes.cpu, "tid", branches.rows)
    for thread in distinct(tid).tolist():
        checks = intervals.union(start[tid == thread], (start + dur)[tid == thread])
        inside = intervals.covered(checks, branches.start_ns, branches.start_ns + 1) > 0
        found |= (own == thread) & inside
    return found
