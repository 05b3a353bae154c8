"""From hits to findings: one per rule, cause, `by` and device; what each costs, and its words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, overload

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, narrowed, pick
from traceanalyzer.model.finding import MAX_OCCURRENCES, Finding, Occurrence, Severity
from traceanalyzer.model.short_names import marked_functions
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints_at
from traceanalyzer.model.units import format_ns
from traceanalyzer.rule.advice import adapt_to_recording, named_for_platform, own_callee, user_frame_hint
from traceanalyzer.rule.claims import Claims, PendingFinding, takes_all_launches
from traceanalyzer.rule.consistency import NOT_WORTH_IT
from traceanalyzer.rule.hits import Hits, LostTime
from traceanalyzer.rule.idioms import Idiom, idiom_of
from traceanalyzer.rule.messages import filled, message_fields
from traceanalyzer.rule.severity import lengthens_step, severity_of
from traceanalyzer.rule.titles import dominant, title_of
from traceanalyzer.rule.views import Calls, IdleTime, Work

_COMMON = " Healthy models also have such work, so its severity is info."
_NOT_HERE = f"{NOT_WORTH_IT} here: the predicted step gets {{more}} longer. Elsewhere: "


@dataclass(frozen=True, slots=True)
class Scope:
    """What the hits of one trace are measured against: rank, analysed window and number of steps in it.

    `asked` where the user chose the window: then what lies outside of it is not counted. `dialect` is `Meta.dialect`.
    """

    rank: int | None
    start_ns: int
    end_ns: int
    steps: int = 0
    asked: bool = False
    dialect: str = ""

    @property
    def length_ns(self) -> int:
        return max(0, self.end_ns - self.start_ns)


def group_hits(rule: str, order: Claims, hits: Iterable[Hits], within: Scope | None = None) -> Iterator[PendingFinding]:
    """The hits of one rule, apart by device; with a window, only what overlaps `within` it or loses time there."""
    for hit in hits:
        if len(hit.occurrences):
            yield from _by_device(rule, order, hit, within)


def _by_device(rule: str, order: Claims, hits: Hits, within: Scope | None) -> Iterator[PendingFinding]:
    lost = hits.losses()
    counted = _counted(hits, lost, within)
    every = np.flatnonzero(counted)
    if isinstance(hits.occurrences, Calls) and len(lost.owner) == 0:
        if len(every):
            yield PendingFinding(rule, order, None, hits, every, lost)
        return
    lost = lost[counted[lost.owner]]
    devices = lost.device if isinstance(hits.occurrences, Calls) else hits.occurrences.device[every]
    for device in distinct(devices).tolist():
        on_device = lost[lost.device == device]
        if isinstance(hits.occurrences, Calls):
            which = distinct(on_device.owner)
        else:
            which = every[devices == device]
            on_device = on_device[np.isin(on_device.owner, which)]
        yield PendingFinding(rule, order, device, hits, which, on_device)


def _counted(hits: Hits, lost: LostTime, within: Scope | None) -> Mask:
    """Which occurrences count, bool (occurrences,): a call before the window may lose time in it."""
    if within is None:
        return np.ones(len(hits.occurrences), bool)
    counted = _overlap(hits.occurrences.start_ns, hits.occurrences.end_ns, within)
    counted[lost.owner[_overlap(lost.start_ns, lost.end_ns, within)]] = True
    return counted


def _overlap(start_ns: Rows, end_ns: Rows, scope: Scope) -> Mask:
    """Which of some spans lie in the window at least in part; one without length does where it begins in it."""
    overlap: Mask = (start_ns < scope.end_ns) & ((end_ns > scope.start_ns) | (start_ns >= scope.start_ns))
    return overlap


def build_finding(pending: PendingFinding, scope: Scope, saving: Saving | None, idle_share: float | None) -> Finding:
    """The finding that a settled pending makes, graded by what fixing it saves, or by its cost where that is None.

    `idle_share` is that of `severity_of`. Raises ValueError if its message names a field that its evidence lacks.
    """
    hits, (pending, costs) = pending.hits, _owning(pending)
    share = pending.cost_ns / scope.length_ns if scope.length_ns else 0.0
    steps = hits.occurrences.step[pending.which]
    usual = typical_duration(hits.occurrences.dur_ns[pending.which], costs, _shown(pending, steps, scope))
    typical = _occurrences(pending, costs, np.array([usual]))[0]
    marked = hits.occurrences.events.steps.marked
    in_steps = len(distinct(steps[steps >= 0])) if marked else 0
    counts = len(steps), int((steps >= 0).sum()) if in_steps else len(steps)
    # A marked step without GPU work of its own counts if the pattern occurs in it.
    of_steps = max(scope.steps, in_steps)
    per_step = int(costs[steps >= 0].sum() if marked else pending.cost_ns) // max(of_steps, 1)
    within = float(costs[steps >= 0].sum()) / max(pending.cost_ns, 1) if marked and pending.cost_ns else 1.0
    by = {} if hits.named_by is None else {"by": hits.named_by}
    totals = {"count": len(steps), "total_ns": pending.cost_ns, "per_step_ns": per_step, "share": share}
    evidence = {**by, **totals, "steps": in_steps, **_native(_weighed(pending, costs))}
    by_host = "copied" in evidence or not isinstance(hits.occurrences, Work)
    idiom = _idiom(evidence, hits) if by_host else None
    evidence |= {"idiom": idiom.name} if idiom else {}
    callee = own_callee(hits.occurrences, evidence)
    evidence |= {"callee": callee} if callee else {}
    lost_ns = intervals.length(pending.lost.merged())
    rare = marked and in_steps < hits.recurring_share * of_steps
    part = _part(pending) if scope.asked else 1.0
    fields = message_fields(evidence, counts, in_steps, of_steps, within, lost_ns, part, hits.of_window)
    message = named_for_platform(marked_functions(filled(hits.message, fields)), scope.dialect)
    title = title_of(pending.rule, hits.cause, message, fields, evidence)
    advice = marked_functions(_advice(pending, scope, evidence)).lstrip()
    if idiom and idiom.fix not in advice:
        advice = f"{idiom.fix} {advice}".rstrip()
    return Finding(
        rule=pending.rule,
        title=named_for_platform(title, scope.dialect),
        cause=hits.cause,
        by=hits.named_by,
        severity=Severity.INFO if rare else severity_of(hits, share, saving, idle_share),
        confidence=hits.confidence,
        message=message,
        advice=_not_here(saving) + advice + _usual(hits, saving),
        rank=scope.rank,
        device=typical.device,
        stream=typical.stream,
        thread=typical.thread,
        step=typical.step,
        start_ns=typical.start_ns,
        end_ns=typical.end_ns,
        cost_ns=pending.cost_ns,
        cost_share=share,
        cost_per_step_ns=per_step,
        count=len(pending.which),
        steps=in_steps,
        occurrences=_occurrences(pending, costs, _costliest(costs)),
        event_ids=typical.event_ids,
        evidence=evidence,
        saving=saving,
    )


def _idiom(evidence: Mapping[str, Any], hits: Hits) -> Idiom | None:
    """What the code is known as, by the function that calls it or by itself."""
    lines = evidence.get("lines")
    function = dominant(lines if isinstance(lines, Mapping) else None)
    called_by = hits.occurrences.events.user_code.caller_of(function) if function else ""
    return idiom_of("called", [f"{function}, called by {called_by}"]) or idiom_of("calls", _code_of(evidence))


def _code_of(evidence: Mapping[str, Any]) -> Iterator[str]:
    """What shows which code it is: a built-in function, the region, the line or op with most of its time, a loop."""
    yield from (str(evidence[name]) for name in ("built_in", "by", "region", "within") if name in evidence)
    for name in ("functions", "lines", "ops"):
        times = evidence.get(name)
        if isinstance(times, Mapping) and name != "lines":
            times = dict(sorted(times.items(), key=lambda one: -one[1]))
        yield dominant(times)
    yield from (text for name in ("ops", "loop") if isinstance(text := evidence.get(name), str))


def _advice(pending: PendingFinding, scope: Scope, evidence: Mapping[str, Any]) -> str:
    """The rule's, with what it takes where the trace was recorded, and in whose code."""
    hits = pending.hits
    if hits.info or takes_all_launches(pending):  # a graph and a compiler take what they are given
        return adapt_to_recording(hits.advice, scope.dialect)
    done_there = pending.order not in (Claims.WORK, Claims.PATTERN)
    caller = user_frame_hint(hits.occurrences, pending.which, evidence, done_there=done_there)
    return adapt_to_recording(hits.advice, scope.dialect) + caller


def _not_here(saving: Saving | None) -> str:
    """Before the advice where following it makes the step longer: by how much."""
    return _NOT_HERE.format(more=format_ns(-saving.step_ns)) if saving and lengthens_step(saving) else ""


def without_warning(advice: str) -> str:
    """The advice without the warning that its rank's step gets longer: in a job, the step may get shorter."""
    return advice.partition("Elsewhere: ")[2] if advice.startswith(NOT_WORTH_IT) else advice


def _usual(hits: Hits, saving: Saving | None) -> str:
    """After the advice where a saving worth a fix is info, because so much is usual."""
    worth = saving and Severity.of(saving.share) is not Severity.INFO
    return _COMMON if worth and saving and saving.share < hits.normal_share else ""


def _owning(pending: PendingFinding) -> tuple[PendingFinding, Rows]:
    """(the pending, what each of its occurrences costs); of idle time without what other findings have all of."""
    costs = pending.costs_ns()
    if not isinstance(pending.hits.occurrences, IdleTime) or not costs.any():
        return pending, costs
    return replace(pending, which=pending.which[costs > 0]), costs[costs > 0]


def _part(pending: PendingFinding) -> float:
    """Of the time of all occurrences, that of those that count: what rules add up is of all of the trace."""
    dur_ns = pending.hits.occurrences.dur_ns
    whole = float(dur_ns.sum())
    return float(dur_ns[pending.which].sum()) / whole if whole else len(pending.which) / max(len(dur_ns), 1)


def _weighed(pending: PendingFinding, costs: Rows) -> dict[str, Any]:
    """The rule's evidence, texts of the occurrences by what these cost; by how long they are where that names none."""
    dur_ns = pending.hits.occurrences.dur_ns

    def sums(texts: Texts) -> dict[str, int]:
        return (costs.any() and texts[pending.which].sums(costs)) or texts.sums(dur_ns)

    evidence = pending.hits.evidence.items()
    return {name: sums(value) if isinstance(value, Texts) else value for name, value in evidence}


def _shown(pending: PendingFinding, steps: Rows, scope: Scope) -> Rows:
    """The steps, -1 also for what only loses time in the user's window: the example lies there where one does."""
    if not scope.asked:
        return steps
    occurrences = pending.hits.occurrences
    overlap = _overlap(occurrences.start_ns[pending.which], occurrences.end_ns[pending.which], scope)
    return np.where(overlap, np.maximum(steps, 0), -1)


def typical_duration(durations: Rows, costs: Rows, steps: Rows) -> int:
    """The weighted median, by cost, of those within steps: half of it is lost in as costly ones or costlier.

    By duration where nothing was lost. The plain median may be one of many that cost next to nothing.
    """
    inside = np.flatnonzero(steps >= 0) if (steps >= 0).any() else np.arange(len(steps))
    weights = costs if costs[inside].any() else durations
    ordered = np.sort(weights[inside])  # several times faster than to sort positions
    reached = np.cumsum(ordered, dtype=np.float64)  # int64 has no room for several hostile ones
    half = np.searchsorted(reached, reached[-1] / 2, side="right") if reached[-1] else len(ordered) // 2
    alike = np.flatnonzero(weights[inside] == ordered[half])
    return int(inside[alike[half - np.searchsorted(ordered, ordered[half])]])


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences(Sequence[Occurrence]):
    """Occurrences as columns, until somebody asks for them: few of those of a job's ranks are listed.

    Attributes:
        columns: start and end, cost, stream, thread and step of each, the last three -1 where there is none.
        ids: the events of each, a row each, -1 where there is none.
    """

    device: int | None
    columns: tuple[Rows, ...]
    ids: Rows

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, chosen: int) -> Occurrence: ...
    @overload
    def __getitem__(self, chosen: slice) -> tuple[Occurrence, ...]: ...
    def __getitem__(self, chosen: int | slice) -> Occurrence | tuple[Occurrence, ...]:
        if isinstance(chosen, int):
            return self[:][chosen]
        start, end, cost, *places = (column[chosen].tolist() for column in self.columns)
        known = [[None if number < 0 else number for number in numbers] for numbers in places]
        ids = (tuple(one for one in dict.fromkeys(row) if one != -1) for row in self.ids[chosen].tolist())
        rows = zip(start, end, cost, repeat(self.device), *known, ids)
        return tuple(Occurrence(*row) for row in rows)

    def __iter__(self) -> Iterator[Occurrence]:
        return iter(self[:])


def _occurrences(pending: PendingFinding, costs: Rows, chosen: Rows) -> Occurrences:
    """Those at these positions of `costs`, by start."""
    hits, which = pending.hits, pending.which[chosen]
    order = np.lexsort((hits.occurrences.end_ns[which], hits.occurrences.start_ns[which]))
    view, which = hits.occurrences[which[order]], which[order]
    call = view if isinstance(view, Calls) else view.launch
    threads = np.where(call.there, call.thread, -1)
    streams = view.stream if isinstance(view, Work) else np.full(len(view), -1)
    columns = view.start_ns, view.end_ns, costs[chosen][order], streams, threads, _step_numbers(view)
    ids = [*_ids(view), *(ids for also in hits.related for ids in _ids(also[which]))]
    return Occurrences(pending.device, columns, narrowed(np.stack(ids, axis=1)))


def _costliest(costs: Rows) -> Rows:
    """Positions of the costliest, ascending; of equal ones the first."""
    if len(costs) <= MAX_OCCURRENCES:
        return np.arange(len(costs))
    least = np.partition(costs, -MAX_OCCURRENCES)[-MAX_OCCURRENCES]
    above = np.flatnonzero(costs > least)
    equal = np.flatnonzero(costs == least)[: MAX_OCCURRENCES - len(above)]
    return np.sort(np.concatenate((above, equal)))


def _native(evidence: Any) -> Any:
    """Without numpy's scalars, however deep: what a report holds compares and prints as Python's own."""
    if isinstance(evidence, Mapping):
        return {name: _native(value) for name, value in evidence.items()}
    if isinstance(evidence, list | tuple):
        return (list if isinstance(evidence, list) else tuple)(map(_native, evidence))
    return evidence.tolist() if isinstance(evidence, np.generic) else evidence


At = Calls | Work | IdleTime


def _step_numbers(view: At) -> Rows:
    """Number of each row's step as it is marked, -1 where there is none."""
    steps = view.events.steps
    if not steps.marked:
        return np.full(len(view), -1)
    inside = (view.step >= 0) & (view.step < len(steps))
    return np.where(inside, pick(steps.number, np.where(inside, view.step, -1)), -1)


def _ids(view: At) -> Iterator[Rows]:
    """Event ids of what each row of a selection consists of, -1 where there is none."""
    trace, work = view.events.trace, view.events.work
    if isinstance(view, Calls):
        yield ints_at(trace.lanes.cpu, "event_id", view.rows)
        return
    entries = (view.entries,) if isinstance(view, Work) else (view.before_entries, view.next_entries)
    for entry in entries:
        yield ints_at(trace.lanes.gpu, "event_id", pick(work.row if work else entry, entry))
    for calls in (view.launch, view.op) if isinstance(view, Work) else (view.launch, view.call, view.op):
        yield from _ids(calls)
