"""Stretches without any op or call, as rules see them: time of the host that has no row of its own."""

from __future__ import annotations

from typing import Self

import numpy as np

from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views.calls import Calls
from traceanalyzer.rule.views.events import Events
from traceanalyzer.rule.views.selection import Mask, Rows
from traceanalyzer.timeline.quiet_time import QuietTime

_SAMPLES = 8  # instants of a stretch at which its line is asked for


class QuietCalls(Calls):
    """One row per stretch of `QuietTime`: its rows are the ops or calls after it, its times are its own."""

    __slots__ = ("_at", "_quiet")

    def __init__(self, events: Events, quiet: QuietTime, at: Rows) -> None:
        super().__init__(events, quiet.after[at])
        self._quiet, self._at = quiet, at

    @classmethod
    def build(cls, events: Events, quiet: QuietTime) -> Self:  # type: ignore[override]
        return cls(events, quiet, np.arange(len(quiet.start_ns)))

    def __getitem__(self, chosen: Mask | Rows) -> Self:
        return type(self)(self.events, self._quiet, self._at[chosen])

    @property
    def start_ns(self) -> Rows:
        return self._quiet.start_ns[self._at]

    @property
    def end_ns(self) -> Rows:
        return self._quiet.end_ns[self._at]

    @property
    def before(self) -> Calls:
        """The op or call that ended last before each."""
        return Calls(self.events, self._quiet.before[self._at])

    @property
    def after(self) -> Calls:
        """The op or call after each, with its own times."""
        return Calls(self.events, self._rows)

    @property
    def line(self) -> Texts:
        """The user's line in which most of each stretch went by; null without stacks."""
        code = self.events.user_code
        if not len(code.start_ns):
            return Texts.none(len(self))
        share = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        instants = self.start_ns[:, None] + np.multiply.outer(self.dur_ns, share).astype(np.int64)
        found = code.at(instants.ravel(), np.repeat(self.thread, _SAMPLES))
        seen = found.code.reshape(-1, _SAMPLES)
        votes = (seen[:, :, None] == seen[:, None, :]).sum(axis=2) * (seen >= 0)
        return Texts(seen[np.arange(len(seen)), votes.argmax(axis=1)], found.names)
