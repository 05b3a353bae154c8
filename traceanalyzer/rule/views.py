"""What rules see: calls, pieces of work and idle time, as selections that know their op, line, step and device."""

from typing import Self

import numpy as np

from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import CAUSES, SAYS_WHY, Idle
from traceanalyzer.idle.stalled_calls import standing_out
from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, pick, rank_within
from traceanalyzer.model.texts import ClosedTexts
from traceanalyzer.timeline.calls_and_work import Calls, Work
from traceanalyzer.timeline.device_work import find
from traceanalyzer.timeline.selection import Chosen, Events, Selection, cached_readonly, positions

__all__ = ["Calls", "IdleTime", "Work"]


class IdleTime(Selection):
    """Idle stretches within the window, cut at steps and where the cause changes, by device and start."""

    __slots__ = ("_accounting", "_idle")

    def __init__(self, events: Events, rows: Rows, accounting: Accounting, idle: Idle) -> None:
        super().__init__(events, rows)
        self._accounting, self._idle = accounting, idle

    @classmethod
    def build(cls, events: Events, accounting: Accounting, idle: Idle) -> Self:
        return cls(events, np.flatnonzero(accounting.piece >= 0), accounting, idle)

    def __getitem__(self, chosen: Chosen) -> Self:
        return type(self)(self.events, self._rows[positions(chosen, len(self))], self._accounting, self._idle)

    @cached_readonly
    def start_ns(self) -> Rows:
        return self._accounting.start_ns[self._rows]

    @cached_readonly
    def end_ns(self) -> Rows:
        return self.start_ns + self._accounting.dur_ns[self._rows]

    @cached_readonly
    def device(self) -> Rows:
        """GPU ordinal within the process."""
        return self._accounting.device[self._rows]

    @cached_readonly
    def step(self) -> Rows:
        """Position in `Steps` of the step on the device, 0 the first; -1 before it."""
        return self._accounting.step[self._rows]

    @cached_readonly
    def piece(self) -> Rows:
        """Position in `Idle`."""
        return self._accounting.piece[self._rows]

    def piece_bounds_ns(self) -> tuple[Rows, Rows]:
        """(starts, ends) of the pieces, in the order of time; those of one device are disjoint, and cut at no step."""
        _, first, which = np.unique(self.piece, return_index=True, return_inverse=True)
        end = np.zeros(len(first), np.int64)
        np.maximum.at(end, which, self.end_ns)
        order = np.argsort(self.start_ns[first], kind="stable")
        return self.start_ns[first][order], end[order]

    @cached_readonly
    def cause(self) -> ClosedTexts:
        """Name as in `CAUSES`, such as `module-loading`; docs/accounting.md says when each holds."""
        return ClosedTexts(self._idle.cause[self.piece], np.array(CAUSES, object))

    def charged_to(self, *causes: str) -> Self:
        """The stretches of these causes, named as in docs/accounting.md: `synchronisation`, `module-loading`.

        Raises ValueError: there is no such cause.
        """
        return self[self.cause.one_of(*causes)]

    def for_launches(self) -> Self:
        """Without what waits after its launch, for an event or for work that the trace does not show."""
        return self[~self.cause.one_of("waiting")]

    def waited(self) -> Self:
        """The stretches in which the CPU waited for the device, or for a copy to it."""
        return self.charged_to("synchronisation", "blocking-upload")

    def standing_out(self, min_steps: int, spike: float) -> tuple[Mask, Mask]:
        """(what is idle in leading steps only, what stands out in a single step): a start, and a hiccup.

        Only of causes that say no more than that the launch came late; with fewer steps, or steps that the user
        gave, only what lies before the first work of all is a start. A cause stands out in a step where it takes more
        than `spike` times its median over all steps.
        """
        plain, steps = ~self.cause.one_of(*SAYS_WHY), self.events.steps
        head = (self.before_entries < 0) & (plain | self.cause.one_of("unknown"))
        if len(steps) < min_steps or steps.asked or not len(self):
            return head, np.zeros(len(self), bool)
        key, _ = grouped([self.device, self.cause.code])
        leading, alone = standing_out(key, self.step, self.dur_ns, len(steps), spike)
        return head | (leading | (self.step < 0)) & plain, alone & plain & ~head

    def happening_once(self, min_steps: int) -> Self:
        """Without the causes that come back in half of the steps after the leading third; all of fewer steps."""
        steps = len(self.events.steps)
        leading = max(1, steps // 3)
        later = self[self.step >= leading]
        by_cause = later.by(later.cause)
        recurring = [cause for cause, each in by_cause if 2 * len(distinct(each.step)) >= steps - leading]
        return self if steps < min_steps else self[~self.cause.one_of(*recurring)]

    @cached_readonly
    def call(self) -> Calls:
        """The row that decided the cause: the synchronising call, the stalled op, the launch."""
        return Calls(self.events, self._idle.row[self.piece])

    def held_up_at(self) -> Rows:
        """Equal where calls of one name, and the same of them in their steps, decided the cause; int64."""
        deciding = self.call
        named = Calls.build(self.events)
        named = named[np.isin(named.name.code, distinct(deciding.name.code))]
        named = named[np.argsort(named.start_ns, kind="stable")]
        which = rank_within(grouped([named.name.code, named.step])[0])
        place, _ = grouped([deciding.name.code, pick(which, find(named.rows, deciding.rows))])
        return place

    @cached_readonly
    def op(self) -> Calls:
        """The op to name, none where the time went by between ops."""
        return Calls(self.events, self._idle.op[self.piece])

    @cached_readonly
    def launch(self) -> Calls:
        """The call that launched the work after it."""
        return Calls(self.events, pick(self._launches, self.next_entries))

    @cached_readonly
    def launch_before(self) -> Calls:
        """The call that launched the work before it; none at the head."""
        return Calls(self.events, pick(self._launches, self.before_entries))

    @property
    def _launches(self) -> Rows:
        return Work.build(self.events).launch.rows

    @property
    def has_next(self) -> Mask:
        """Whether any work came after it."""
        return self.next_entries >= 0

    @property
    def next_entries(self) -> Rows:
        """Entry of `DeviceWork` after each row, -1 at the tail."""
        return self._idle.work[self.piece]

    @property
    def before_entries(self) -> Rows:
        """Entry of `DeviceWork` before each row, -1 at the head."""
        return self._idle.before[self.piece]
