"""The verdict's line on fixes: what to look at first, and how long a step takes with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Saving, TraceReport
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.report.words import format_span, listed

_LESS = 0.01  # of the step, by which titles may add up to more than all fixes save together, unsaid; chosen
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
    own, others = _ordered(trace, wrong, replayed)
    several = len(own) > 1
    also = f", which also fixes {listed(others)}" if others else ""
    if others and several:
        also = f"; {listed(others)} {'are' if len(others) > 1 else 'is'} then fixed, too"
    span = format_span(then_ns, now_ns, "instead of")
    less = "; the savings overlap" * (_one_by_one(trace, wrong, own) - saved > _LESS)
    takes = f"a step takes about {span} (-{percent(min(saved, _MOST))}{less}{_then(trace)})"
    gives = f"{'with all of them, ' * several}{takes}{_doubt(trace, wrong, own)}"
    if Severity.of(saved) is Severity.INFO:
        gives = f"{'together they save' if several else 'it saves'} almost nothing"
    later = [number for number in wrong if number not in (first, *replayed, *others)]
    unknown = f"; what {listed(later)} would save cannot be predicted" if later else ""
    if first in replayed:
        return f"{_in_order(own, wrong)}{also}: {gives}{unknown}"
    begin = f"begin with finding {first} ({top.rule}), whose saving cannot be predicted"
    return f"{begin}; then {_in_order(own, wrong)}{also}; without finding {first}, {gives}{unknown}"


def _ordered(
    trace: TraceReport, wrong: Mapping[int, Finding], replayed: Sequence[int]
) -> tuple[list[int], list[int]]:
    """(the findings to fix, in order; those that go with one of them).

    What is said to save so much on top of the others comes last.
    """
    gone = {n for fault in trace.faults if fault.findings[0] in replayed for n in fault.findings[1:]}
    own = [number for number in replayed if number not in gone]
    own.sort(key=lambda number: (saving := wrong[number].saving) is not None and saving.beyond)
    return own, sorted(gone)


def _in_order(own: Sequence[int], wrong: Mapping[int, Finding]) -> str:
    """`finding 1 (launch-bound), then 2 and 3`; `findings 1 and 2 (strided-copy)` where no rule comes first."""
    if len(own) > 1 and len({wrong[number].rule for number in own}) == 1:
        return f"findings {listed(own)} ({wrong[own[0]].rule})"
    first = f"finding {own[0]} ({wrong[own[0]].rule})"
    if len(own) == 1:
        return first
    return f"{first}, then {listed(own[1:])}{', in this order' * (list(own) != sorted(own))}"


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


def _one_by_one(trace: TraceReport, wrong: Mapping[int, Finding], own: Sequence[int]) -> float:
    """The share of the step that the titles of these findings add up to; of what saves more after others none."""
    savings = [_saving(trace, wrong, number) for number in own]
    return sum(one.share for one in savings if one is not None and not one.beyond)


def _then(trace: TraceReport) -> str:
    """What limits the step once all is fixed, where that is the CPU: still, or only then."""
    before, after = trace.step, trace.together
    if before is None or after is None or before.open or after.bound != "cpu":
        return ""
    idle = after.device_ns < (1 - MIN_OPEN_SHARE) * after.unprofiled_ns
    return f"; {'then' if before.bound == 'gpu' else 'still'} limited by the CPU" * idle


def percent(share: float) -> str:
    """`26 %`."""
    return f"{100 * share:.0f} %"
