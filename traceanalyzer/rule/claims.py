"""Every nanosecond of a device has at most one finding: who keeps it where several rules would."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Rows, sums_of
from traceanalyzer.rule.hits import Hits, LostTime


class Kind(StrEnum):
    """What the findings of a rule are, for whoever ranks and sums them up."""

    FAULT = "fault"
    FACT = "fact"  # worth knowing, and no fault: where the time goes
    # A fault or not: only whoever wrote the program can look; `gpu_share` in its evidence.
    QUESTION = "question"
    CHOICE = "choice"  # costs time for another gain, such as memory
    ONCE = "once"  # paid once, when the program starts: no step without it is in the trace
    REMAINDER = "remainder"  # time that no other rule claims


class Claims(IntEnum):
    """When a rule claims its time: the specific before the general. The only table of this order.

    Within one, rules go by their `specificity`, then the older before the newer, then by name: never by what they lost.
    """

    RECORDING = 0  # the profiler's own: nobody's code spent it
    ONCE = 1  # what happens once: a cold start, a compilation, a hiccup
    EVENT = 2  # a call or op that says what happened: a synchronisation, a copy, an allocation, a wait for data
    WORK = 3  # work that takes longer than it need, by its kind: arithmetic, layout, occupancy, contention
    PATTERN = 4  # calls and work that form a pattern: an optimizer's loop, a chain of pointwise kernels, repeated calls
    GENERAL = 5  # what is known of the time but not of its reason: host code
    HOST_CATCH_ALL = 6  # what the CPU works on for long without a launch, whatever it is: a net, too
    LAUNCHES = 7  # the way from launch to launch, ops and what lies between them, where no stretch of it stands out
    CATCH_ALL = 8  # what takes the time, whatever it is
    REMAINDER = 9  # idle time that nobody else claimed


REGION = "region"  # cause of a finding about the launches of one region of code alone
_CATCH_ALLS = (Claims.HOST_CATCH_ALL, Claims.CATCH_ALL)


@dataclass(frozen=True, slots=True, eq=False)
class PendingFinding:
    """One finding in the making: the hits of one rule, cause and `by` on one device.

    Attributes:
        precedence: within its order the smaller first, as of `Rule`; no trace decides it.
        which: positions of its occurrences in `hits.occurrences`, int64, ordered.
        lost: what they lost on this device, owners as in `hits.occurrences`.
        own: what of it no other finding has; all of it until `settled`.
    """

    rule: str
    order: Claims
    device: int | None
    hits: Hits
    which: Rows
    lost: LostTime
    own: intervals.Set = intervals.EMPTY
    precedence: tuple[int, ...] = ()

    @property
    def cost_ns(self) -> int:
        """Time that this finding alone owns."""
        return intervals.length(self.own)

    def costs_ns(self) -> Rows:
        """Of each occurrence, parallel to `which`; what two occurrences lost together counts for the earlier."""
        lost = self.lost
        if (lost.start_ns[1:] <= lost.start_ns[:-1]).any():
            lost = lost[np.lexsort((lost.end_ns, lost.start_ns))]
        before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(lost.end_ns)[:-1]))
        start = np.maximum(lost.start_ns, before[: len(lost.owner)])
        held = intervals.covered(self.own, start, np.maximum(lost.end_ns, start))
        return sums_of(np.searchsorted(self.which, lost.owner), held, len(self.which))


def takes_all_launches(pending: PendingFinding) -> bool:
    """Whether the fix takes all launches off the CPU: it comes after the fixes of others."""
    return pending.order is Claims.LAUNCHES and pending.hits.cause != REGION


def resolve_claims(all_pending: Sequence[PendingFinding], window: tuple[int, int]) -> list[PendingFinding]:
    """The findings of one trace with what each alone owns within the window; order as given.

    The table's order decides, then the rules' precedence and names, and of one rule the larger loss.
    """
    spans = [pending.lost.merged() for pending in all_pending]

    def priority(i: int) -> tuple[Any, ...]:
        one, lost_ns = all_pending[i], intervals.length(spans[i])
        return one.order, one.precedence, one.rule, -lost_ns, one.hits.cause, one.hits.named_by or ""

    first = sorted(range(len(all_pending)), key=priority)
    claimed: dict[int | None, intervals.Set] = {}
    result = list(all_pending)
    for i in first:
        pending = all_pending[i]
        lost = intervals.clip(spans[i], *window)
        earlier = claimed.get(pending.device, intervals.EMPTY)
        remaining = intervals.difference(lost, earlier)
        if pending.order in _CATCH_ALLS and 2 * intervals.length(remaining) < intervals.length(lost):
            remaining = intervals.EMPTY  # others have named what most of it is
        claimed[pending.device] = intervals.union(*map(np.concatenate, zip(remaining, earlier, strict=True)))
        result[i] = replace(pending, own=remaining)
    return result
