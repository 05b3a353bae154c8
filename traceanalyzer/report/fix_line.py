"""The verdict's line on fixes: what to look at first, and how long a step takes with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.report.words import format_span, listed


def fix_line(trace: TraceReport, wrong: Mapping[int, Finding]) -> str:
    """What to look at first, and what fixing the findings gives, where a replay says so of any.

    Args:
        wrong: the findings above `info`, by number; at least one.
    """
    replayed = [number for number, finding in wrong.items() if finding.saving is not None]
    first, top = next(iter(wrong.items()))
    if trace.step is None or trace.together is None or not replayed:
        return f"begin with {first} ({top.rule})"
    begin = (
        "" if first in replayed else f"begin with {first} ({top.rule}), whose saving cannot be predicted; "
    )
    without = f" but not {first}" * bool(begin)
    now_ns, then_ns = trace.step.unprofiled_ns, trace.together.unprofiled_ns
    saved = 1 - then_ns / max(now_ns, 1)
    which, several = _which(trace, wrong, replayed)
    takes = f"takes about {format_span(then_ns, now_ns, 'instead of')} (-{percent(saved)}{_then(trace)})"
    gives = f"{'with all of them, ' * several}a step {takes}"
    gives = f"save{'s' * (not several)} almost nothing" if Severity.of(saved) is Severity.INFO else gives
    later = [number for number in wrong if number not in (first, *replayed)]
    unknown = f"; what {listed(later)} would save cannot be predicted" if later else ""
    return f"{begin}{'fixing ' * bool(begin)}{which}{without}: {gives}{unknown}"


def _which(trace: TraceReport, wrong: Mapping[int, Finding], replayed: Sequence[int]) -> tuple[str, bool]:
    """(the findings to fix, in order, and those that go with one of them; whether several are to be fixed)."""
    gone = {n for fault in trace.faults if fault.findings[0] in replayed for n in fault.findings[1:]}
    own, others = ([n for n in replayed if (n in gone) is with_one] for with_one in (False, True))
    several = len(own) > 1
    rule = f"({wrong[own[0]].rule}{' first' * several})"
    also = f", which also fix{'es' * (not several)} {listed(others)}" if others else ""
    return f"{listed(own)}{', in this order' * several} {rule}{also}", several


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
