"""The verdict in one sentence: what a step takes, what bounds it, what it goes to, and what the fixes would give."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.units import format_ns
from traceanalyzer.report.costs import Cost

_BOUNDS = {
    "gpu": "the GPU",
    "cpu": "the CPU",
    "wait": "waits of CPU and GPU for each other",
    "communication": "communication",
}
_WORTH_SAYING = (
    0.03  # of the step: a gain below the severity `medium` is within what a step varies by; noise/
)


class Estimate(Protocol):
    """A step without the profiler, in ns, and what bounds it: gpu, cpu, wait or communication."""

    @property
    def unprofiled_ns(self) -> float: ...
    @property
    def low_ns(self) -> float: ...
    @property
    def high_ns(self) -> float: ...
    @property
    def bound(self) -> str: ...


def verdict(
    step: Estimate | None, findings: Sequence[Finding], together_ns: float | None, costs: Sequence[Cost]
) -> str:
    """One sentence without a full stop; empty where nothing is known at all.

    Args:
        step: the unprofiled step; None where it cannot be replayed.
        findings: in the order in which the report numbers them; those of severity info are passed over.
        together_ns: the unprofiled step when all others are fixed.
        costs: the largest items of the step, largest first.
    """
    numbers = [n for n, found in enumerate(findings, start=1) if found.severity is not Severity.INFO]
    largest = list(costs) if not numbers else _telling(step, costs)
    pace, spent = _pace(step), _spent(largest, whole=not numbers)
    said = ": ".join(part for part in (pace, spent) if part)
    return "; ".join(part for part in (said, _fixes(step, together_ns, numbers)) if part)


def _pace(step: Estimate | None) -> str:
    if step is None:
        return ""
    low, high = format_ns(step.low_ns), format_ns(step.high_ns)
    bound = _BOUNDS.get(step.bound, step.bound)
    return f"{format_ns(step.unprofiled_ns)} a step ({low} to {high} without the profiler), bound by {bound}"


def _telling(step: Estimate | None, costs: Sequence[Cost]) -> list[Cost]:
    """The one cost that shows what bounds the step: the GPU's where it is bound by the GPU."""
    wanted = {"gpu": "gpu", "communication": "gpu", "cpu": "idle", "wait": "idle"}
    kind = wanted.get(step.bound) if step is not None else None
    return [cost for cost in costs if kind is None or cost.kind == kind][:1] or list(costs[:1])


def _spent(costs: Sequence[Cost], *, whole: bool) -> str:
    """`52 % of it is aten::mm`; of several, all: `aten::mm 52 %, idle while data is loaded 20 %`."""
    if not costs:
        return "nothing to fix was found" if whole else ""
    if not whole:
        (one,) = costs
        return f"{100 * one.share:.0f} % of it is {_called(one)}"
    listed = ", ".join(f"{_called(cost)} {100 * cost.share:.0f} %" for cost in costs)
    return f"nothing to fix was found, and most of it goes to {listed}"


def _called(cost: Cost) -> str:
    return f"idle {cost.name}" if cost.kind == "idle" else cost.name


def _fixes(step: Estimate | None, together_ns: float | None, numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    if together_ns is None or step is None:
        one = len(numbers) == 1
        return f"finding{'' if one else 's'} {listed(numbers)} say{'s' if one else ''} what to fix"
    if together_ns > (1 - _WORTH_SAYING) * step.unprofiled_ns:
        return f"fixing {listed(numbers)} changes little"
    return f"fixing {listed(numbers)} gives about {format_ns(together_ns)}"


def listed(numbers: Sequence[int]) -> str:
    """`1`, `1 and 2`, `1 to 3`, `1 to 3 and 5`; the numbers are sorted."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [
        text
        for run in runs
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    return " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part)
