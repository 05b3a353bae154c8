"""The first three lines of a report: how long a step takes, what limits it, and what the fixes give."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from traceanalyzer.idle.causes import TEXTS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import TraceReport, Verdict, fixed_along
from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.model.units import format_ns, percent
from traceanalyzer.replay.saving import MIN_OPEN_SHARE
from traceanalyzer.report.costs import LARGEST, LOADING, Cost, in_exchanges
from traceanalyzer.report.finding_order import is_minor
from traceanalyzer.report.step_line import step_line, unexplained_text
from traceanalyzer.report.words import format_span, in_words, listed
from traceanalyzer.rule.evidence_texts import MORE_WORK
from traceanalyzer.rule.registry import Kind, kind_of

_MOST = 0.99  # of a step: all of it nobody can save, so that it is not told
# Of a reason why the step cannot be predicted: then idle time is not known, either.
_NO_KERNEL = "have no kernel"


def added_up(trace: TraceReport, wrong: Mapping[int, Finding]) -> list[int]:
    """The findings that **Fix** adds up, of these above `info`; empty where no replay says what fixing them gives."""
    replayed = [number for number, finding in wrong.items() if finding.saving is not None]
    if trace.step is None or trace.together is None or not replayed:
        return []
    saved = 1 - trace.together.unprofiled_ns / max(trace.step.unprofiled_ns, 1)
    gone = _gone(trace, replayed)
    own = [number for number in replayed if number not in gone]
    leading = _saving(trace, wrong, own[0])
    same = leading is not None and leading.share >= saved - Severity.LOW.least_share
    return own[:1] if same else own  # the rest save the same time again


def _gone(trace: TraceReport, replayed: Sequence[int]) -> list[int]:
    return sorted(fixed_along(fault for fault in trace.faults if fault.findings[0] in replayed))


def fix_line(trace: TraceReport, wrong: Mapping[int, Finding]) -> str:
    """What to look at first, and what fixing these findings above `info` gives, where a replay says so of any."""
    replayed = [number for number, finding in wrong.items() if finding.saving is not None]
    first, top = next(iter(wrong.items()))
    own, others = added_up(trace, wrong), _gone(trace, replayed)
    if trace.step is None or trace.together is None or not own:
        return f"begin with finding {first} ({top.rule})"
    now_ns, then_ns = trace.step.unprofiled_ns, trace.together.unprofiled_ns
    saved = 1 - then_ns / max(now_ns, 1)
    several = len(replayed) - len(set(others) & set(replayed)) > 1
    which = f"finding{'s' * (len(own) > 1)} {listed(own)}"
    fixes = "they also fix" if len(own) > 1 else "it also fixes"
    also = f" ({fixes} {listed(others)})" if others else ""
    span = format_span(now_ns, then_ns, "-> about")
    takes = f"{span} (-{percent(min(saved, _MOST))}){_then(trace)}"
    covered = [number for number in replayed if number not in (*own, *others)]
    adds = f"; then {listed(covered)} {'add' if len(covered) > 1 else 'adds'} nothing" if covered else ""
    gives = f"{takes}{_doubt(trace, wrong, own)}{adds}"
    later = [number for number in wrong if number not in (first, *replayed, *others)]
    unknown = [number for number in (first, *later) if number not in replayed]
    of_unknown = f"finding{'s' * (len(unknown) > 1)} {listed(unknown)}"
    cannot = f"; what {of_unknown} would save cannot be predicted"
    if first in replayed:
        return f"{which}{also}: {gives}{cannot * bool(later)}"
    whose = cannot if later else ", whose saving cannot be predicted"
    without = f"without {of_unknown}"
    rest = f"; {which}, {without}{also}: {gives}" if several else ""
    return f"begin with finding {first} ({top.rule}){whose}{rest}"


def _doubt(trace: TraceReport, wrong: Mapping[int, Finding], own: Sequence[int]) -> str:
    """Of which of them it is not sure that they save anything."""
    unsure = [number for number in own if (saving := _saving(trace, wrong, number)) and not saving.sure]
    if len(unsure) == len(own):
        return "; uncertain"
    return f"; {listed(unsure)} {'are' if len(unsure) > 1 else 'is'} uncertain" if unsure else ""


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


NOTHING = "no problem found"
NOTHING_SURE = "no certain problem"
"""Where the limit is undecided, or something is to be checked or tried."""
_NO_GPU_WORK = "the trace holds no GPU work"
_NOT_JUDGED = f"not judged: {_NO_GPU_WORK}"
_WITHOUT_GRAPHS = "not judged: record a step without the CUDA graph, or with a newer driver, which records its kernels"
_RECORD_DEVICE = "record with ProfilerActivity.CUDA while the program runs on a GPU"
_NO_DEVICE_USED = "the program did not use a GPU while it was recorded: run it where torch sees one"
_ON_ALL = (
    "probably the CPU, here and on other ranks: during {} {}, this GPU waits, mostly in collectives that another rank "
    "has not launched yet"
)
_SETTLES = "rerun with --step-ms UNPROFILED_MS"
_FEW = 2  # findings that are named though they are no faults; chosen
_DEAR = 0.05  # of the step: the least share of a choice, or of a possible gain, that is worth a word
_ASKED = 0.15  # of GPU time: the least that a question is about which is worth a word; chosen
_MOSTLY = 0.5  # of the step: so much of one thing is its limit; chosen
_LEAST_SHARE = 0.005  # of the window: less rounds to 0 %
_KINDS = {
    "gpu": ("gpu", "communication", "copy"),
    "communication": ("communication",),
    "cpu": ("idle",),
    "wait": ("idle", "communication", "copy"),
}
# Idle time that is no waiting for the CPU. The short gaps between queued kernels are part of neither.
_ON_THE_DEVICE = frozenset(
    TEXTS[cause].idle for cause in ("launch-latency", "in-graph", "waiting", "unlinked", "unknown", "tail")
)
_UNSEEN, _MUCH = ("idle:waiting", "idle:unknown"), 0.25  # of the window
_BOUNDS = {
    "gpu": "the GPU",
    "cpu": "the CPU",
    "wait": "CPU and GPU alternate, each waiting for the other",
    "communication": "communication",
}


def verdict_of(trace: TraceReport, findings: Sequence[Finding], costs: Sequence[Cost] = ()) -> Verdict:
    """Step, limit and fix, a line without a full stop each; where the trace has no work of a device, it says so.

    `findings` are all of the report; without `costs` the accounting's classes are named.
    """
    printed = ((n, finding) for n, finding in enumerate(findings, start=1) if not finding.pedantic)
    numbered = {n: finding for n, finding in printed if finding.is_of(trace.rank)}
    wrong = {n: finding for n, finding in numbered.items() if finding.severity is not Severity.INFO}
    if not trace.accounting:
        return _not_judged(trace, costs)
    cold = next((finding for finding in wrong.values() if kind_of(finding.rule) is Kind.ONCE), None)
    if cold is not None and cold.severity is Severity.HIGH:
        return _cold(trace, cold)
    undecided = trace.step is not None and trace.step.open
    goes_to = ""
    if not undecided and not _idle_queue(trace):
        goes_to = _telling(trace, costs) if wrong else _goes_to(trace, costs) or _largest(trace)
    joint = "; " if _both_wait(trace) else ": "
    limit = joint.join(part for part in (_limit(trace, costs), goes_to) if part)
    reason = "" if trace.step else (trace.unavailable or {}).get("step", "")
    if _NO_KERNEL in reason:
        fix = fix_line(trace, wrong) if wrong else _WITHOUT_GRAPHS
        return Verdict(step_line(trace), f"not known: {reason}", fix)
    possible, (choice, costs_share) = _possible(trace, numbered), _choice(trace, numbered)
    rest = [possible, choice, _question(numbered), "" if wrong else _hidden(trace, findings)]
    fix = fix_line(trace, wrong) if wrong else NOTHING_SURE if undecided or any(rest) else NOTHING
    parts = [fix, *rest]
    if costs_share > max((found.saving.share for found in wrong.values() if found.saving), default=1.0):
        decide = choice.replace(" may", ", which may", 1)
        parts = [f"first decide on {decide}", f"then {fix}", possible, parts[3]]
    return Verdict(
        step_line(trace),
        "; ".join(part for part in (limit, _unseen(trace), _SETTLES * (undecided and trace.measured is None)) if part),
        "; ".join(part for part in parts if part),
    )


def _hidden(trace: TraceReport, findings: Sequence[Finding]) -> str:
    """What shows the problems of low confidence, where there are some: none found is no clean bill then."""
    unsure = (one for one in findings if one.pedantic and one.is_of(trace.rank))
    count = sum(one.severity is not Severity.INFO for one in unsure)
    return f"--pedantic shows {count} of low confidence" if count else ""


def _both_wait(trace: TraceReport) -> bool:
    """Whether the limit is a sentence that says for whom the GPU waits."""
    return trace.step is not None and trace.step.bound == "wait"


def _limit(trace: TraceReport, costs: Sequence[Cost]) -> str:
    """What sets the pace; where the trace leaves that open, how much it leaves open."""
    step = trace.step
    if step is None:
        return ""
    if _alike(step):
        return "CPU and GPU equally"
    if not step.open:
        moved = [cost for cost in costs[:1] if cost.kind in ("communication", "copy")]
        if step.bound == "wait" and moved and moved[0].share >= _MOSTLY:
            return ""  # what follows says more than who waits for whom
        bound = _BOUNDS.get(step.bound, step.bound)
        return "" if in_exchanges(step, costs) else bound + _idle_queue(trace)
    low, high = (round(100 * share) for share in step.idle_shares)
    either = " or ".join(_BOUNDS[bound] for bound in step.bounds if bound != "wait")
    either += ", or CPU and GPU in turn" * ("wait" in step.bounds)
    return f"undecided, {either}: {_may_idle(trace, step, f'{low} to {high} %')}"


def _idle_queue(trace: TraceReport) -> str:
    """Of a device that sets the pace but runs nothing in most of the step: no op of it is the limit."""
    step = trace.step
    if step is None or step.bound != "gpu" or step.open or not step.unprofiled_ns:
        return ""
    idle = step.gap_ns / step.unprofiled_ns
    return f", idle during {percent(idle)} {_of_step(trace)} though work is queued" if idle >= _MOSTLY else ""


def _may_idle(trace: TraceReport, step: StepEstimate, part: str) -> str:
    """Of the GPU, or of its busiest stream, where others work beside it: recording leaves no less idle time than is."""
    recorded = [sum(device.idle_ns.values()) / max(device.length_ns, 1) for device in trace.accounting]
    if max(recorded) + MIN_OPEN_SHARE >= step.idle_shares[1]:
        return f"{format_ns(step.gpu_ns)} of GPU work a step, the GPU idle for {part} of it"
    return f"{format_ns(step.gpu_ns)} of work a step on the busiest stream, idle for {part} of the step"


def _alike(step: StepEstimate) -> bool:
    """Whether the CPU sets the pace of a device that is as busy as can be told."""
    busy = step.device_ns > (1 - MIN_OPEN_SHARE) * step.unprofiled_ns
    return step.bound == "cpu" and busy and not step.open


def _unseen(trace: TraceReport) -> str:
    """What no replay can tell, where it is much: time in which the device waits for what was not recorded."""
    if trace.step is not None and trace.step.unexplained_ns:
        return unexplained_text(trace.step)
    parts = _summed(device.parts_ns for device in trace.accounting)
    share = sum(parts[name] for name in _UNSEEN) / max(parts.total(), 1)
    if trace.step is None or share < _MUCH:
        return ""
    return f"for {percent(share)} of the window the GPU waits for something that the trace does not show"


def _telling(trace: TraceReport, costs: Sequence[Cost]) -> str:
    """The largest cost of the side that sets the pace: an op of the GPU, or why it is idle; of both none."""
    if trace.step is not None and not _alike(trace.step) and (waits := in_exchanges(trace.step, costs)):
        return _ON_ALL.format(percent(waits), _of_step(trace))
    kinds = _KINDS.get(trace.step.bound) if trace.step is not None and not _alike(trace.step) else None
    one = next((cost for cost in costs[:LARGEST] if kinds is None or cost.kind in kinds), None)
    if one is not None and one.kind != "idle" and _both_wait(trace):
        one = costs[0]  # what waits for what is not idle time alone: the largest of all
    if one is None or one.share < _LEAST_SHARE:
        return ""
    share = f"{percent(one.share)} {_of_work(trace, one)}"
    if one.kind != "idle":
        by_gpu = trace.step is not None and trace.step.bound == "gpu"
        return f"{'it' if by_gpu else 'the GPU'} spends {share} in {one.words}"
    idle = sum(cost.share for cost in costs if cost.kind == "idle")
    # Where the recording's devices were idle longest for another reason, none is sure.
    sums = _summed(device.idle_ns for device in trace.accounting)
    cause = max(sums, key=lambda name: (sums[name], name), default="")
    longest = TEXTS[cause].idle if cause in TEXTS else ""
    mostly = f", mostly {one.name}" * (2 * one.share > idle and one.name == longest)
    whom = "" if one.name in _ON_THE_DEVICE or _both_wait(trace) else " for the CPU"
    timed = trace.step is not None and trace.step.timed
    if timed and trace.measured is not None and trace.measured.waiting_ms:
        late = sum(cost.share for cost in costs if cost.name == LOADING)
        mostly = f", {percent(late)} {LOADING}"
    return f"the GPU waits{whom} during {percent(idle)} {_of_step(trace)}{mostly}"


def _summed(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    sums = Counter[str]()
    for part in parts:
        sums.update(part)
    return sums


def _of_work(trace: TraceReport, cost: Cost) -> str:
    """What a cost is a share of: the step, or all work of a GPU that does more at once than the step takes."""
    whole_ns = cost.step_ns / cost.share
    more = trace.step is not None and whole_ns > (1 + MORE_WORK) * trace.step.unprofiled_ns
    return "of all GPU work" if more else _of_step(trace)


def _of_step(trace: TraceReport) -> str:
    if trace.step is None:
        return "of the recorded step"
    return "of the step" if trace.step.measured else "of the predicted step"


def _goes_to(trace: TraceReport, costs: Sequence[Cost]) -> str:
    """Where nothing is wrong: what the step goes to; where the CPU is the limit, why the GPU waits."""
    if trace.step is not None and trace.step.bound == "cpu" and not _alike(trace.step):
        return _telling(trace, costs)
    largest = [cost for cost in costs[:LARGEST] if cost.share >= _LEAST_SHARE]
    named = [f"{cost.words} ({percent(cost.share)})" for cost in largest]
    if not named:
        return ""
    parts = "part {} is" if len(named) == 1 else "parts {} are"
    return f"the largest {parts.format(_of_work(trace, costs[0]))} {', '.join(named)}"


def _possible(trace: TraceReport, findings: Mapping[int, Finding]) -> str:
    """What is no fault and may save much: where the limit is open at most, else surely something."""
    if trace.step is None:
        return ""
    along = fixed_along(trace.faults)
    gains = {
        number: saving.high_share
        for number, finding in findings.items()
        if (saving := finding.saving) is not None
        and not (finding.settled or is_minor(finding) or number in along)
        and saving.share >= Severity.LOW.least_share
        and finding.severity is Severity.INFO
        and kind_of(finding.rule, finding.cause) is not Kind.CHOICE
        and (saving.high_share if trace.step.open else saving.share * saving.sure) >= _DEAR
    }
    if not gains:
        return ""
    largest = sorted(gains, key=lambda number: -gains[number])[:_FEW]
    too = " also" * any(finding.severity is not Severity.INFO for finding in findings.values())
    return f"finding{'s' * (len(largest) > 1)} {listed(sorted(largest))} may{too} help"


def _choice(trace: TraceReport, findings: Mapping[int, Finding]) -> tuple[str, float]:
    """(what is no fault but takes a large part of the step, how much): checkpoints, float64 throughout."""
    for number, finding in findings.items():
        choice = kind_of(finding.rule, finding.cause) is Kind.CHOICE and finding.severity is Severity.INFO
        if choice and finding.saving is not None and finding.saving.low_share >= _DEAR:
            share = finding.saving.share
            costs = f"costs {percent(share)} {_of_step(trace)}"
            return f"finding {number} ({finding.rule}) may be deliberate and {costs}", share
    return "", 0.0


def _question(findings: Mapping[int, Finding]) -> str:
    """What a large part of the GPU's time hangs on and no trace tells: how much of a batch is padding."""
    if (number := asked_first(findings)) is None:
        return ""
    share = percent(float(findings[number].evidence["gpu_share"]))
    return f"check finding {number} ({findings[number].rule}): it concerns about {share} of all GPU work"


def asked_first(findings: Mapping[int, Finding]) -> int | None:
    """The number of the question that concerns most of the GPU's work; None where each concerns little."""
    questions = {n: one.evidence.get("gpu_share") for n, one in findings.items() if kind_of(one.rule) is Kind.QUESTION}
    asked = [(float(share), -n) for n, share in questions.items() if isinstance(share, int | float)]
    share, number = max(asked, default=(0.0, 0))
    return None if share < _ASKED else -number


def _not_judged(trace: TraceReport, costs: Sequence[Cost]) -> Verdict:
    """Of a trace without work of a GPU: where the CPU's time goes, or why that is not known, and what would tell."""
    problem, _, remedy = (trace.unavailable or {}).get("busy", "").rpartition(": ")
    if not problem or "ProfilerActivity" in remedy:
        advice = _RECORD_DEVICE if trace.measured is None else _NO_DEVICE_USED
        region = next(iter(trace.parts.items()), None)
        if region is None or not costs:
            return Verdict(step_line(trace), _NOT_JUDGED, advice)
        limit = f"the CPU: {_NO_GPU_WORK}; the largest part of the recorded step is {region[0]} ({percent(region[1])})"
        op = f"of single ops, {costs[0].name} takes most CPU time ({percent(costs[0].share)})"
        return Verdict(step_line(trace), limit, f"begin with {region[0]}; {op}; to judge a GPU, {advice}")
    return Verdict(step_line(trace), f"not judged: {problem}", remedy)


def _cold(trace: TraceReport, finding: Finding) -> Verdict:
    """Where the recording is a cold start for the most part: nothing else can be told from it."""
    return Verdict(
        f"not known because of the cold start; the whole recording takes {format_ns(trace.window.length_ns)}",
        f"a cold start takes {percent(finding.cost_share)} of the window; normal steps do not contain it",
        "record again after a warm-up",
    )


def _largest(trace: TraceReport) -> str:
    """Where nothing is wrong: what the window went to."""
    sums = _summed(device.parts_ns for device in trace.accounting)
    whole = max(sums.total(), 1)
    named = [
        f"{'idle time, ' * name.startswith('idle')}{in_words(name)} ({percent(ns / whole)})"
        for name, ns in sums.most_common(LARGEST)
        if ns >= _LEAST_SHARE * whole
    ]
    return f"the recorded time goes to {', '.join(named)}" if named else ""
