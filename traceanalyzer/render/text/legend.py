"""What the numbers of the first screen are: only what is shown is explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import IDLE, TraceReport
from traceanalyzer.render.words.savings import (
    OF_SAVINGS,
    costs_share,
    may_save,
    probably_nothing,
    saves_nothing,
)
from traceanalyzer.report.words import listed
from traceanalyzer.rule.messages import IN_OTHERS
from traceanalyzer.rule.registry import Kind, kind_of

_OF_FINDINGS = "Recorded times contain what the profiler costs, and their shares are of the whole window"
_OF_LIMIT = "; the line Limit is about the predicted step."
_OF_IDLE = " Here most of the idle time is due to launches that the profiler slows down."
_PROFILERS = 0.5  # of the idle time: the least that the profiler costs where it causes most of it
_IDLE = 0.2  # of the window: less idle time is no question where the GPU is the limit; chosen
_OF_COSTS = "Time that counts in another finding is left out of the cost of {}."
_NOT_SURE = "A range that begins at 0 means that a fix may save nothing."
_MAY_SAVE = "'Possibly' means: only if {why}."
_ALLOWED, _RECURS = "your program allows the fix", "what happened in few steps happens again"
_FEW = 0.5  # of the steps; chosen
_REST = "{rule} is idle time that no other finding explains."


def legend(numbered: Mapping[int, Finding], traces: Sequence[TraceReport]) -> str:
    """What the numbers of the findings are, of those that ask for something."""
    findings = numbered.values()
    savings = [
        saving for one in findings if (saving := one.saving) and not (one.settled or saves_nothing(saving))
    ]
    unsure = any(not saving.sure and not probably_nothing(saving) for saving in savings)
    perhaps = {_why_possibly(one, traces) for one in findings if may_save(one) and not one.settled}
    shared = [
        number
        for number, one in numbered.items()
        if costs_share(one) and not one.settled and IN_OTHERS in one.message
    ]
    rest = sorted({one.rule for one in findings if kind_of(one.rule) is Kind.REMAINDER})
    of_limit = _OF_LIMIT if len(traces) == 1 and traces[0].step else "."
    told = [_OF_FINDINGS + of_limit + _OF_IDLE * _profilers_idle(traces)] if findings else []
    told += [_OF_COSTS.format(f"finding{'s' * (len(shared) > 1)} {listed(shared)}")] if shared else []
    told += [OF_SAVINGS] * bool(savings) + [_NOT_SURE] * unsure
    told += [_MAY_SAVE.format(why=", or if ".join(sorted(perhaps, reverse=True)))] if perhaps else []
    told += [_REST.format(rule=one) for one in rest]
    return " ".join(told)


def _why_possibly(finding: Finding, traces: Sequence[TraceReport]) -> str:
    """What it depends on whether fixing it saves anything."""
    (count,) = (one.steps.every.count if one.steps else 1 for one in traces if one.rank == finding.rank)
    return _RECURS if 0 < finding.steps < _FEW * count else _ALLOWED


def _profilers_idle(traces: Sequence[TraceReport]) -> bool:
    """Whether the GPU sets the pace, and most of the idle time beside that is what the profiler costs."""
    one, step = traces[0], traces[0].step
    if len(traces) > 1 or step is None or step.open or step.bound != "gpu":
        return False
    count = one.steps.every.count if one.steps else 1
    idle_ns = max(time.classes_ns[IDLE] for time in one.accounting)
    added_ns = count * (step.traced_ns - step.unprofiled_ns)
    return added_ns >= _PROFILERS * idle_ns and idle_ns >= _IDLE * one.window.length_ns
