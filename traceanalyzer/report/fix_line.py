"""The verdict's line on fixes: what to look at first, and how long a step takes with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport, fixed_along
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.report.words import format_span, listed

_MOST = 0.99  # of a step: all of it nobody can save, so that it is not told


def fix_line(trace: TraceReport, wrong: Mapping[int, Finding]) -> str:
    """What to look at first, and what fixing the findings gives, where a replay says so of any.

    Args:
        wrong: the findings above `info`, by number; at least one.
    """
    replayed = [number for number, finding in wrong.items() if finding.saving is not None]
    first, top = next(iter(wrong.items()))
    if trace.step is None or trace.together is None or not replayed:
        return f"begin with finding {first} ({top.rule})"
    now_ns, then_ns = trace.step.unprofiled_ns, trace.together.unprofiled_ns
    saved = 1 - then_ns / max(now_ns, 1)
    gone = fixed_along(fault for fault in trace.faults if fault.findings[0] in replayed)
    own, others = [number for number in replayed if number not in gone], sorted(gone)
    several = len(own) > 1
    own, idle = _adding(trace, wrong, own, saved)
    which = named_findings(own, {number: finding.rule for number, finding in wrong.items()})
    also = f", which also fix{'es' * (len(own) == 1)} {listed(others)}" if others else ""
    span = format_span(then_ns, now_ns, "instead of")
    takes = f"a step takes about {span} (-{percent(min(saved, _MOST))}){_then(trace)}"
    gives = f"{takes}{_doubt(trace, wrong, own)}{_adds_nothing(idle)}"
    if Severity.of(saved) is Severity.INFO:
        gives = f"{'together they save' if len(own) > 1 else 'it saves'} almost nothing"
    later = [number for number in wrong if number not in (first, *replayed, *others)]
    unknown = "what finding{} {} would save cannot be predicted"
    if first in replayed:
        return f"{which}{also}: {gives}" + (
            f"; {unknown.format('s' * (len(later) > 1), listed(later))}" if later else ""
        )
    whose = (
        f"; {unknown.format('s', listed([first, *later]))}" if later else ", whose saving cannot be predicted"
    )
    without = f"without finding{'s' * bool(later)} {listed([first, *later])}"
    rest = f"; {which}, {without}{also}: {gives}" if several else ""
    return f"begin with finding {first} ({top.rule}){whose}{rest}"


def named_findings(numbers: Sequence[int], rules: Mapping[int, str]) -> str:
    """`finding 1 (launch-bound)`, `findings 1 and 2 (strided-copy)`, `findings 1 (host-gap), 2 and 3`."""
    first, *more = numbers
    rule = f" ({rules[first]})"
    if len({rules[number] for number in numbers}) == 1:
        return f"finding{'s' * bool(more)} {listed(numbers)}{rule}"
    if len(more) == 1:
        return f"findings {first}{rule} and {more[0]} ({rules[more[0]]})"
    return f"findings {first}{rule}, {listed(more)}"


def _adding(
    trace: TraceReport, wrong: Mapping[int, Finding], own: Sequence[int], saved: float
) -> tuple[list[int], list[int]]:
    """(those that together save this much, the others): the first alone where the rest save the same time again."""
    first, *rest = own
    saving = _saving(trace, wrong, first)
    alone = saving is not None and saving.share >= saved - Severity.LOW.least_share
    return ([first], rest) if alone and Severity.of(saved) is not Severity.INFO else (list(own), [])


def _adds_nothing(others: Sequence[int]) -> str:
    several = len(others) > 1
    return (
        f"; finding{'s' * several} {listed(others)} add{'s' * (not several)} almost nothing to this"
        * bool(others)
    )


def _doubt(trace: TraceReport, wrong: Mapping[int, Finding], own: Sequence[int]) -> str:
    """Of which of them it is not sure that they save anything."""
    unsure = [number for number in own if (saving := _saving(trace, wrong, number)) and not saving.sure]
    if len(unsure) == len(own):
        return "; this saving is not sure"
    return f"; the saving of finding{'s' * (len(unsure) > 1)} {listed(unsure)} is not sure" if unsure else ""


def _saving(trace: TraceReport, wrong: Mapping[int, Finding], number: int) -> Saving | None:
    """Of the finding, or of the fault that it is the first of, as its title tells."""
    faults = (fault for fault in trace.faults if number in fault.findings and len(fault.findings) > 1)
    fault = next(faults, None)
    return wrong[number].saving if fault is None or fault.saving is None else fault.saving


def _then(trace: TraceReport) -> str:
    """What limits the step once all is fixed, where that is the CPU: still, or only then."""
    before, after = trace.step, trace.together
    if before is None or after is None or before.open or after.bound != "cpu":
        return ""
    idle = after.device_ns < (1 - MIN_OPEN_SHARE) * after.unprofiled_ns
    return f", {'still' if before.bound == 'cpu' else 'then'} limited by the CPU" * idle


def percent(share: float) -> str:
    """`26 %`."""
    return f"{100 * share:.0f} %"
