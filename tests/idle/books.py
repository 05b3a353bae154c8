"""What the index tests ask of a trace: its books in the reference's terms."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from tests.idle import reference
from traceanalyzer.idle.accounting import CLASSES, Accounting
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.steps import Steps

Parts = Mapping[str, int]


@dataclass(frozen=True)
class Books:
    """The indexes that the accounting rests on, and sums over it."""

    trace: Trace
    accounting: Accounting
    idle: Idle
    steps: Steps
    analysis: Analysis

    @classmethod
    def of(cls, trace: Trace, window: tuple[int, int] | None = None) -> Self:
        return cls.within(Analysis(trace, window))

    @classmethod
    def within(cls, analysis: Analysis) -> Self:
        indexes = (analysis.index(Accounting), analysis.index(Idle), analysis.index(Steps))
        return cls(analysis.trace, *indexes, analysis)

    @property
    def devices(self) -> list[int]:
        return [row.device for row in self.accounting.summaries]

    def parts(self, device: int) -> dict[str, int]:
        """Class -> ns of one device, idle time with its causes."""
        return self.accounting.parts_ns(self.idle, device)

    def idle_share(self, device: int) -> float:
        """Idle time over the window."""
        return collapsed(self.parts(device)).get("idle", 0) / self.steps.window_ns

    def by_step(self, device: int) -> dict[int | None, dict[str, int]]:
        """Number of the step (None for before the first) -> class -> ns of one device."""
        found: dict[int | None, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        books, numbers = self.accounting, [*self.steps.number.tolist(), None]
        for i in np.flatnonzero(books.device == device).tolist():
            found[numbers[books.step[i]]][CLASSES[books.time_class[i]]] += int(books.dur_ns[i])
        return {step: dict(parts) for step, parts in found.items()}

    def causes(self) -> list[tuple[int, int, int, str, str | None]]:
        """(device, start, end, cause, op) of every piece, relative to the window."""
        names = self.trace.cpu["name"]
        low = self.steps.window_start_ns
        gaps = zip(
            *(column.tolist() for column in (self.idle.device, self.idle.start_ns, self.idle.end_ns)),
            self.idle.cause.tolist(),
            self.idle.op.tolist(),
            strict=True,
        )
        return [
            (device, start - low, end - low, CAUSES[cause], str(names.iloc[op]) if op >= 0 else None)
            for device, start, end, cause, op in gaps
        ]

    def dominant(self) -> tuple[str, str | None]:
        """(cause, op) of the largest share of the first device's idle time."""
        largest = self.accounting.summaries[0].idle_causes[0]
        return largest.cause.removeprefix("idle:"), largest.op

    def dominant_cause(self) -> str:
        """The cause with the largest share of the first device's idle time, all ops together."""
        idle = {name: ns for name, ns in self.parts(self.devices[0]).items() if name.startswith("idle:")}
        return max(idle, key=lambda name: idle[name]).removeprefix("idle:")


def collapsed(parts: Parts) -> dict[str, int]:
    """The parts with all idle time as one."""
    found: dict[str, int] = defaultdict(int)
    for name, ns in parts.items():
        found[name.split(":")[0]] += ns
    return dict(found)


def check_against_reference(books: Books, work: list[reference.Work], begins: list[int]) -> None:
    """The books agree with the reference: parts, their sums, per step, and the table.

    Args:
        begins: starts of the steps on the CPU.
    """
    low, high = books.steps.window_start_ns, books.steps.window_end_ns
    assert books.devices == sorted({member.device for member in work})
    for device in books.devices:
        mine = [member for member in work if member.device == device]
        parts = books.parts(device)
        assert all(ns > 0 for ns in parts.values())
        assert sum(parts.values()) == high - low
        expected: dict[str, int] = defaultdict(int)
        for start, end, name in reference.stretches(mine, low, high):
            expected[name] += end - start
        assert collapsed(parts) == expected
        whole = {0: dict(expected)}
        by_step = reference.parts_by_step(mine, begins, low, high) if books.steps.marked else whole
        numbers = [*books.steps.number.tolist(), None]
        assert books.by_step(device) == {numbers[step]: parts for step, parts in by_step.items() if parts}
        check_frame(books, device)


def check_frame(books: Books, device: int) -> None:
    """The table's rows sum to the parts, and to each step's."""
    frame = books.accounting.frame(books.trace, books.idle, books.steps)
    rows = frame[frame["device"] == device]
    steps = [None if missing else int(step) for step, missing in zip(rows["step"], rows["step"].isna(), strict=True)]
    summed: dict[str, int] = defaultdict(int)
    by_step: dict[int | None, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for step, name, cause, ns in zip(steps, rows["class"], rows["cause"], rows["ns"], strict=True):
        assert (name == "idle") == isinstance(cause, str)
        summed[f"idle:{cause}" if name == "idle" else name] += ns
        by_step[step][name] += ns
    assert summed == books.parts(device)
    assert {step: dict(parts) for step, parts in by_step.items()} == books.by_step(device)
