"""The verdict in words: what holds for the step, its evidence, and how to settle the rest."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.comparison.compared_rows import PRODUCT_FLOOR
from traceanalyzer.comparison.count_axis import program_changed
from traceanalyzer.comparison.formatting import percent
from traceanalyzer.comparison.result import Axes, StepAxis, Verdict, Waterfall, Word
from traceanalyzer.comparison.snapshot import Snapshot
from traceanalyzer.model.units import format_ns

_SETTLE = "record 3 more captures of each, in processes of their own"
_OPPOSED = (
    0.05  # of the step, that two groups must gain and lose for it to be said that one ate the other; chosen
)


def verdict_of(
    axes: Axes,
    because: Sequence[str],
    inputs: str,
    identical: bool,
    sides: tuple[Snapshot, Snapshot],
    waterfall: Waterfall | None,
) -> Verdict:
    """What is said of the step.

    Args:
        because: what made the difference.
        inputs: in what the two had other inputs; empty where they had not.
        identical: whether the recordings say the same to the nanosecond.
        waterfall: for what was gained here and lost there.
    """
    step = axes.step
    if identical:
        why = "the recordings are the same to the nanosecond"
        return Verdict(Word.IDENTICAL, 0.0, why, "", (), f"identical: {why}")
    if step is None:
        why = _no_step(sides)
        return Verdict(Word.UNKNOWN, None, why, "record both with a GPU", tuple(because), f"unknown: {why}")
    times = f"{format_ns(step.base_ns)} -> {format_ns(step.new_ns)} a step ({percent(step.difference)})"
    if inputs:
        settle = "record both with the same inputs"
        return Verdict(Word.UNKNOWN, None, inputs, settle, tuple(because), f"unknown: {inputs}; {times}")
    if sides[0].marked != sides[1].marked:
        why = "steps are marked on one side only"
        settle = "call prof.step() once an iteration on both"
        return Verdict(Word.UNKNOWN, None, why, settle, tuple(because), f"unknown: {why}; {times}")
    if cold := [name for name, side in zip(("BASE", "NEW"), sides, strict=True) if _is_cold(side)]:
        why = f"the one step of {' and '.join(cold)} is a cold start"
        settle = "record both after a warm-up, several steps each"
        return Verdict(Word.UNKNOWN, None, why, settle, tuple(because), f"unknown: {why}; {times}")
    return _of_step(axes, step, because, times, waterfall)


def _is_cold(side: Snapshot) -> bool:
    """Whether all that is known of a side is one step, a large part of which is a cold start."""
    return side.steps == 1 and any("cold-start" in one.rules for one in side.faults)


def _of_step(
    axes: Axes, step: StepAxis, because: Sequence[str], times: str, waterfall: Waterfall | None
) -> Verdict:
    changed = program_changed(axes.exact)
    silent = not changed and (axes.device is None or axes.device.word is Word.SAME)
    if step.word in (Word.SLOWER, Word.FASTER):
        why = _why(step)
        return Verdict(step.word, None, why, "", tuple(because), f"{step.word}: {times}; {why}")
    opposed = _opposed(waterfall)
    if step.word is Word.SAME or silent:
        within = max(_resolution(step), abs(step.difference))
        why = _why_same(step, silent) + opposed
        settle = "" if step.low is not None else f"to see less, {_SETTLE}"
        head = f"same within {within:.0%}".replace("%", " %") + f": {times}; {why}"
        return Verdict(Word.SAME, within, why, settle, tuple(because), head)
    what = "the program changed" if changed else "its work changed"
    why = f"{what}, but one recording per side cannot show differences below {step.needed:.0%}".replace(
        "%", " %"
    )
    why += opposed
    return Verdict(Word.UNKNOWN, None, why, _SETTLE, tuple(because), f"unknown: {times}; {why}")


def _resolution(step: StepAxis) -> float:
    """Which difference is not excluded: with captures enough the farther end of the interval, else where the GPU sets
    the pace what its kernels tell, else what steps do."""
    if step.low is not None and step.high is not None:
        return max(abs(step.low), abs(step.high))
    on_device = {step.base_bound, step.new_bound} == {"gpu"}
    return PRODUCT_FLOOR if on_device else step.needed


def _no_step(sides: tuple[Snapshot, Snapshot]) -> str:
    names = [name for name, side in zip(("BASE", "NEW"), sides, strict=True) if side.step is None]
    return f"no GPU work in {' and '.join(names)}"


def _why(step: StepAxis) -> str:
    if step.low is not None:
        interval = f"{percent(step.low)} to {percent(step.high or 0.0)}"
        return f"{step.captures[0]} and {step.captures[1]} captures, interval {interval}"
    kind = (
        "predicted without the profiler" if step.predicted else "as timed" if step.measured else "as recorded"
    )
    if abs(step.difference) > step.needed or step.difference < -step.needed / (1 + step.needed):
        return (
            f"{kind}; recordings of one program differ by {step.needed:.0%} at most in nine of ten".replace(
                "%", " %"
            )
        )
    return f"{kind}; work on the GPU explains it"


def _why_same(step: StepAxis, silent: bool) -> str:
    if step.low is not None:
        return f"interval {percent(step.low)} to {percent(step.high or 0.0)}"
    if silent:
        return "launches, work, waits and times of kernels are the same; the rest is noise of one recording a side"
    return "the difference is no larger than noise"


def _opposed(waterfall: Waterfall | None) -> str:
    if waterfall is None:
        return ""
    least = _OPPOSED * max(waterfall.base_ns, 1)
    groups = sorted(waterfall.groups.items(), key=lambda item: item[1][2])
    gained, lost = groups[0], groups[-1]
    if gained[1][2] > -least or lost[1][2] < least:
        return ""
    return (
        f". Nothing gained, because {gained[0]} gives {format_ns(-gained[1][2])}"
        f" ({format_ns(gained[1][0])} -> {format_ns(gained[1][1])}) and {lost[0]} takes {format_ns(lost[1][2])}"
        f" ({format_ns(lost[1][0])} -> {format_ns(lost[1][1])})"
    )
