"""What renderers say of a report in few words: costs and savings, titles, what was recorded, where the step goes."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.words.escape import printable
from traceanalyzer.report.summary import FILES, OPS, OTHER, WAITS
from traceanalyzer.report.verdict import NOTHING, NOTHING_SURE
from traceanalyzer.report.words import format_span, listed
from traceanalyzer.rule.registry import Kind, kind_of
from traceanalyzer.rule.titles import MAX_TITLE, first_clauses, is_closed

_NEXT_TO_NOTHING = Severity.LOW.least_share
OF_SAVINGS = (
    "Savings are shares of a step without the profiler, and may overlap. A saving may be larger than the GPU time in "
    "its finding, because a fix may also save CPU time and waiting. In about 4 of 5 cases the true saving is in the "
    "interval."
)
_MOST = 0.99  # of the step: no fix saves all of it, so that nothing is told as 100 %
_WORTH_A_WORD = 0.01  # of the step: an interval that ends below it is not shown beside "nothing"
_PART = regex(
    r"[,;:] | (?:and (?=(?:makes|could|the|computes|reads?|reduces|stays) )|while "
    r"|in (?=\S+\(\) \([^()]+\)(?:$|[,;:]))|(?=\([^()]+\.py:\d+\)(?:$|[,;:])))"
)
_PLACE = regex(r", in \S+\(\)[^,;:]* \([^()]+\)$")
_NUMBER = regex(r"(?<![\w.:])\d|\b(?:once|twice)\b")
_WORTH_TRYING = 0.05  # of the step, the high end of a saving: what may help
# Classes of the accounting by what their names begin with, the specific first, as the first screen names them.
_CLASSES = {
    "communication_waiting": "waiting for other ranks",
    "communication": "communication without compute",
    "compute": "compute",
    "idle": "idle",
    "": "copies",
}
_LEAST = 0.005  # of the recorded time: less is not named
_MAKER = re.compile("^(?:NVIDIA|AMD) ")  # of a device: the type says it


def saving_words(saving: Saving, step: StepEstimate | None, before: Sequence[int] = ()) -> str:
    """`18.3 -> 9.40 ms a step`, or `saves 8.90 ms a step` where the fixes `before` come first, or no step is known."""
    if step is not None and not saving.beyond:
        return f"{format_span(step.unprofiled_ns, step.unprofiled_ns - saving.step_ns, '->')} a step"
    others = f"finding{'s' * (len(before) > 1)} {listed(before)}" if before else "other fixes on the CPU"
    amount = f"{'saves' if saving.step_ns >= 0 else 'adds'} {format_ns(abs(saving.step_ns))} a step"
    return amount + f", in addition to {others}" * saving.beyond


def cost_words(finding: Finding, *, brief: bool = False) -> str:
    """`cost 1.23 ms a step, 6.15 ms in total`, with its share where no other is told; empty where nothing was lost."""
    if not finding.cost_ns:
        return ""
    several = finding.steps != 1 and 0 < finding.cost_per_step_ns < finding.cost_ns
    recurs = several and kind_of(finding.rule) is not Kind.ONCE
    per_step = f"{format_ns(finding.cost_per_step_ns)} a step" if recurs else ""
    total = "" if brief and recurs else f"{', ' * recurs}{format_ns(finding.cost_ns)} in total"
    graded = finding.saving is not None or finding.severity is not Severity.INFO
    share = "" if graded else f" ({format_share(finding.cost_share)} of the window)"
    return f"cost {per_step}{total}{share}"


def amount_words(finding: Finding, step: StepEstimate | None, before: Sequence[int] = ()) -> str:
    """Saving and cost in one line: the one without the profiler, the other with it; `before` as in `saving_words`."""
    cost = cost_words(finding)
    if finding.saving is None:
        return cost
    own = cost.removeprefix("cost ")
    return saving_words(finding.saving, step, before) + (f"; recorded: {own}" if cost else "")


def short_amounts(finding: Finding) -> str:
    """What a fix saves of the predicted step, `saves 4 to 20 %, best guess 11 %`, else what it costs as recorded."""
    saving = finding.saving
    if saving is None:
        if finding.severity is not Severity.INFO:
            return f"costs {format_share(finding.cost_share)} of recorded time"
        cost = cost_words(finding, brief=True)
        return cost and f"takes {cost.removeprefix('cost ')} as recorded"
    if saves_nothing(saving):
        return "saves nothing"
    saves = "could save" if finding.severity is Severity.INFO else "saves"
    best_guess = max(_rounded(saving.share), 0.0)
    # Never below nothing, never all of the step, and around what stands after it.
    low = min(round(100 * min(max(saving.low_share, 0.0), _MOST)), math.floor(best_guess))
    high = max(round(100 * min(max(saving.high_share, 0.0), _MOST)), math.ceil(best_guess))
    span = f"{low} %" if low == high else f"{low} to {high} %"
    best = f", best guess {_rounded(saving.share)} %" * (not probably_nothing(saving) and " to " in span)
    return f"{saves} {span}{best}"


def titled(finding: Finding) -> str:
    """The title; of findings made elsewhere, the first clause of the message."""
    return finding.title or first_clauses(short_ops(finding.message), MAX_TITLE)[0]


def in_one_line(title: str, room: int) -> str:
    """As many of the title's first parts as fit, with its number and place; all where these do not fit."""
    ends = (title[: end.start()] for end in reversed(list(_PART.finditer(title))))
    parts = [title, *filter(is_closed, ends)]
    numbered, place = _NUMBER.search(title), _PLACE.search(title)
    parts = [part for part in parts if not numbered or _NUMBER.search(part)]
    placed = [f"{part}{place[0]}" for part in parts[1:]] if place else []
    return next((part for part in (title, *placed, *parts) if len(part) <= room), title)


def may_help(finding: Finding) -> bool:
    """Whether it is no certain problem, but a fix may save much."""
    saving = finding.saving
    open_end = saving is not None and saving.high_share >= _WORTH_TRYING and not finding.settled
    return open_end and finding.severity is Severity.INFO and kind_of(finding.rule) is not Kind.CHOICE


def probably_nothing(saving: Saving) -> bool:
    """Whether the predicted saving is too small to count, though its interval may reach further."""
    return saving.share < _NEXT_TO_NOTHING


def saves_nothing(saving: Saving) -> bool:
    """Whether the fix is predicted to make no step shorter, or a longer one."""
    share = saving.share
    return share < _NEXT_TO_NOTHING and (saving.high_share < _WORTH_A_WORD or share < -_NEXT_TO_NOTHING)


def _rounded(share: float) -> float:
    """Percent with what an interval beside it leaves sure: 59 and 5.0."""
    percent = 100 * min(share, _MOST)
    return round(percent, 1) if share < 0.0995 else round(percent)


def problem_words(report: Report, findings: Collection[Finding]) -> str:
    """`2 problems, 1 to check`: faults with findings above `info`, and questions that no trace answers; else as Fix."""
    infos = [finding for finding in findings if finding.severity is Severity.INFO]
    problems = len({one.fault or id(one) for one in findings if one.severity is not Severity.INFO})
    questions = sum(kind_of(finding.rule) is Kind.QUESTION for finding in infos)
    named = [f"{problems} problem{'s' * (problems != 1)}"] if problems else []
    named += [f"{questions} to check"] if questions else []
    if named:
        return ", ".join(named)
    if not any(trace.accounting for trace in report.traces):
        return "GPU work not judged"
    verdicts = [one.summary for one in ([report.job] if report.job is not None else report.traces)]
    return NOTHING_SURE if any(one.fix.startswith(NOTHING_SURE) for one in verdicts) else NOTHING


def recorded_words(trace: TraceReport) -> str:
    known = Counter(_MAKER.sub("", device.name or "unknown GPU") for device in trace.meta.devices)
    devices = [name if count == 1 else f"{count} x {name}" for name, count in known.items()]
    count = 0 if trace.steps is None or not trace.steps.marked else trace.steps.every.count
    asked = [f"window of {format_ns(trace.window.length_ns)}"] * trace.window.asked
    return printable(", ".join([*devices, *[f"{count:,} step{'s' * (count != 1)}"] * bool(count), *asked]))


def parts_of_step(traces: Sequence[TraceReport]) -> tuple[str, Mapping[str, float]]:
    """(what the shares are of, part of the step -> its share, the largest first)."""
    if len(traces) == 1:
        return f"{traces[0].parts_of} time by region", traces[0].parts
    sums: Counter[str] = Counter()
    for device in (device for trace in traces for device in trace.accounting):
        for name, ns in device.classes_ns.items():
            sums[next(words for begins, words in _CLASSES.items() if name.startswith(begins))] += ns
    whole = max(sums.total(), 1)
    shares = {name: ns / whole for name, ns in sums.most_common() if ns >= _LEAST * whole}
    return f"recorded, mean of {len(traces)} ranks", shares


def cpu_parts(trace: TraceReport) -> Mapping[str, float]:
    """What the CPU does in the steps of a trace without GPU work -> its share of their time."""
    words = {
        OPS: f"ops on {trace.op_threads} thread{'s' * (trace.op_threads > 1)}",
        FILES: "files",
        WAITS: "waiting for other threads or processes",
        OTHER: "code outside of ops",
    }
    return {words[use]: share for use, share in trace.cpu_use.items() if share >= _LEAST}
