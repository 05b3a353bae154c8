"""What a finding costs and what fixing it saves, as people say it."""

from __future__ import annotations

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Saving, StepEstimate
from traceanalyzer.model.units import format_ns, format_share

_NEXT_TO_NOTHING = 0.005  # of the step: below it a finding is `info`


def saving_words(saving: Saving, step: StepEstimate | None) -> str:
    """`saves 8.90 ms of 18.3 ms a step (44 to 52 %)`, or that it saves next to nothing, or costs more."""
    if abs(saving.share) < _NEXT_TO_NOTHING:
        return "fixing it saves next to nothing"
    whole = f" of {format_ns(step.unprofiled_ns)}" if step is not None else ""
    if saving.share > 0:
        return f"saves {format_ns(saving.step_ns)}{whole} a step ({_range(saving)})"
    return f"fixing it alone adds {format_ns(-saving.step_ns)} to {whole.removeprefix(' of ') or 'the time'} a step"


def _range(saving: Saving) -> str:
    low, high = (f"{100 * share:.0f}" for share in (saving.low_share, saving.high_share))
    return f"{low} %" if low == high else f"{low} to {high} %"


def cost_words(finding: Finding) -> str:
    """`cost 1.23 ms a step, 6.15 ms in all (12.0 % of the window)`; empty where nothing was lost."""
    if not finding.cost_ns:
        return ""
    per_step = f"{format_ns(finding.cost_per_step_ns)} a step, " if finding.cost_per_step_ns else ""
    return f"cost {per_step}{format_ns(finding.cost_ns)} in all ({format_share(finding.cost_share)} of the window)"


def count_words(finding: Finding) -> str:
    """`36 times in 6 steps`."""
    times = {1: "once", 2: "twice"}.get(finding.count, f"{finding.count:,} times")
    if not finding.steps:
        return times
    return f"{times} in {finding.steps:,} step{'s' if finding.steps > 1 else ''}"


def finding_name(finding: Finding) -> str:
    """`implicit-sync: read-back, aten::item`, `cold-start`: the rule, with what tells its findings apart."""
    parts = ", ".join(part for part in (finding.cause, finding.by) if part)
    return f"{finding.rule}: {parts}" if parts else finding.rule


def grade(finding: Finding) -> str:
    """What stands at the right margin: severity, and the share that it was graded by."""
    if finding.severity is Severity.INFO:
        return str(finding.severity)
    if finding.saving is None:
        return f"{finding.severity}  costs {format_share(finding.cost_share)}"
    share = finding.saving.share
    return f"{finding.severity}  saves {format_share(share) if share > 0 else 'nothing'}"
