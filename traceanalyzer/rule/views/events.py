"""The indexes that all views look into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.trace import Trace, ints
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.user_code import UserCode


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """One trace's events as views read them; `work` is None where no device was recorded."""

    trace: Trace
    nesting: Nesting
    steps: Steps
    user_code: UserCode
    work: DeviceWork | None
    tid: Rows

    @classmethod
    def build(
        cls, trace: Trace, nesting: Nesting, steps: Steps, user_code: UserCode, work: DeviceWork | None
    ) -> Self:
        return cls(trace, nesting, steps, user_code, work, ints(trace.cpu, "tid"))
