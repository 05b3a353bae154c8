"""Why the step changed: faults that came or went, then functions and ops, by their effect on the step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from traceanalyzer.comparison.formatting import SILENT, number, said_and_got, signed_ns, times
from traceanalyzer.comparison.result import CallRow, FaultChange, RegionChange, Row, StepAxis, Waterfall, Word
from traceanalyzer.comparison.snapshot import KnownFault
from traceanalyzer.comparison.step_axis import MINOR
from traceanalyzer.model.units import format_ns
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.registry import all_rules

Faults = Sequence[KnownFault]
_ORDER = ("gone", "new", "worse", "better", "unchanged")
_CHANGED = 0.2  # of the larger saving, for a fault to be worse or better; savings are said no nearer
_MIN_CHANGE_SHARE = 0.01  # of the step, by which it must have changed; chosen


def fault_changes(base: Faults, new: Faults, got_share: float | None) -> tuple[FaultChange, ...]:
    """Every fault of either side; gone and new ones first, the largest saving before.

    The step really lost `got_share` (0 to 1, negative where it got longer), where that is known.
    """
    result = [_change(first, second) for first, second in _pairs(base, new)]
    gone = [one for one in result if one.status == "gone"]
    alone = len(gone) == 1 and not any(one.status in ("new", "worse") for one in result)
    if alone and gone[0].said_share is not None:
        result[result.index(gone[0])] = replace(gone[0], got_share=got_share)
    result.sort(key=lambda one: (_ORDER.index(one.status), -(one.said_share or 0.0), one.title))
    return tuple(result)


def _pairs(base: Faults, new: Faults) -> list[tuple[KnownFault | None, KnownFault | None]]:
    """By what tells a fault from others, else by the rule: an op or line may have got another name."""
    pairs: list[tuple[KnownFault | None, KnownFault | None]] = []
    first, second = list(base), list(new)
    for key in ("key", "rule"):
        for one in list(first):
            other = next((each for each in second if getattr(one, key) == getattr(each, key)), None)
            if other is not None:
                pairs.append((one, other))
                first.remove(one)
                second.remove(other)
    return pairs + [(one, None) for one in first] + [(None, one) for one in second]


def _change(base: KnownFault | None, new: KnownFault | None) -> FaultChange:
    fault = base or new
    assert fault is not None
    said = fault.share, fault.low_share, fault.high_share
    ns = base.step_ns if base else None, new.step_ns if new else None
    return FaultChange(_status(base, new), fault.rules, fault.title, fault.severity, *said, None, *ns)


def _status(base: KnownFault | None, new: KnownFault | None) -> str:
    if base is None or new is None:
        return "new" if base is None else "gone"
    if base.share is None or new.share is None or base.step_ns is None or new.step_ns is None:
        return "unchanged"
    change = new.step_ns - base.step_ns
    whole = base.step_ns / base.share if base.share else 0.0
    least = max(_CHANGED * max(abs(base.step_ns), abs(new.step_ns)), _MIN_CHANGE_SHARE * abs(whole))
    if abs(change) <= least:
        return "unchanged"
    return "worse" if change > 0 else "better"


# Of the step's difference, that functions must take to be named; half.
_EXPLAINED_SHARE = 0.5


def changed_functions_note(regions: Sequence[RegionChange], step: StepAxis | None) -> str:
    """The functions that one side alone calls, where they take half of the step's difference.

    Where the other side alone calls functions that take as long, one may have got another name, and nothing is said.
    """
    change = 0 if step is None else step.new_ns - step.base_ns
    functions = [one for one in regions if one.kind == "function"]
    gone, new = ([one for one in functions if getattr(one, side) is None] for side in ("new_ns", "base_ns"))
    others, only = (gone, new) if change > 0 else (new, gone)
    ns = abs(sum(one.delta_ns for one in only))
    renamed = abs(sum(one.delta_ns for one in others)) > _EXPLAINED_SHARE * ns
    if not only or ns < _EXPLAINED_SHARE * abs(change) or renamed:
        return ""
    lead, more = only[0], len(only) - 1
    what = f"{lead.name} and {more} more are" if more else f"{lead.name} is"
    return f"{what} {'new' if change > 0 else 'gone'} ({format_ns(ns)} of {lead.of} time a step)"


_NAMED = 6
_LEAST_SHARE = 0.1  # of the step's difference, for what is not proven to be named; chosen
_FITTING = 0.25  # of what a new fault is said to cost, by which the step must have got longer; chosen
_OFTEN = 1.5  # times as often as on the other side, for work to be called more often; chosen
_AS_OFTEN = 1.3  # by which single ops may be off that; chosen
_ALIKE = 0.8  # of all work, that must be called so much more often; chosen


@dataclass(slots=True)
class _Change:
    label: str
    delta_ns: int = 0
    idle_ns: int = 0
    real: bool = False
    phrases: list[str] = field(default_factory=list)


def reasons(
    faults: Sequence[FaultChange],
    rows: Sequence[Row],
    calls: Sequence[CallRow],
    waterfall: Waterfall | None,
    step: StepAxis | None,
    function: str,
) -> tuple[str, ...]:
    """Reasons why the step changed, the most decisive first; `function` notes those that only one side calls.

    The order: fitting faults of specific rules, what all ops have in common, fitting faults of rules about launches,
    changes of single ops, other faults. Idle time without a proven change counts only if the step is slower or faster;
    a change that makes up half of the difference counts as proven.
    """
    specific, general, unfitting = _fault_phrases(faults, step)
    common = [phrase for phrase in (_often(rows), function) if phrase]
    changes = list(map(_phrase, _decisive(_changes(rows, calls, waterfall), waterfall, step)))
    return tuple((specific + common + general + changes + unfitting)[:_NAMED])


def _fault_phrases(faults: Sequence[FaultChange], step: StepAxis | None) -> tuple[list[str], ...]:
    """Phrases of faults that fit the step's difference, by specific and by general rules, and of those that do not."""
    # Much is launched, or time is left: what is launched no more tells why.
    general_rules = {rule.slug for rule in all_rules() if rule.claims >= Claims.LAUNCHES}
    specific, general, unfitting = list[str](), list[str](), list[str]()
    for fault in faults:
        if fault.status in ("gone", "new", "worse", "better"):
            fitting = specific if general_rules.isdisjoint(fault.rules) else general
            said = said_and_got(fault)
            phrase = f"{fault.title} is {fault.status}" + f" ({said})" * bool(said)
            (fitting if _fits(fault, step) else unfitting).append(phrase)
    return specific, general, unfitting


def _decisive(changes: list[_Change], waterfall: Waterfall | None, step: StepAxis | None) -> list[_Change]:
    """Proven changes, and idle time that makes up much of a real difference; those that explain most of it first."""
    total_ns = 0 if waterfall is None else waterfall.new_ns - waterfall.base_ns
    differs = step is not None and step.word not in SILENT

    def rank(change: _Change) -> tuple[bool, int, str]:
        minor = not change.real and abs(change.idle_ns) <= abs(total_ns) / 2
        return minor, -abs(change.delta_ns + change.idle_ns), change.label

    idle_ns = _LEAST_SHARE * abs(total_ns)
    return sorted((one for one in changes if one.real or (differs and abs(one.idle_ns) > idle_ns)), key=rank)


def _often(rows: Sequence[Row]) -> str:
    """`the same work runs 3.9 times as often in BASE`, where nearly all of it does."""
    counts = [(row.base.count, row.new.count) for row in rows if row.base and row.new]
    if not counts:
        return ""
    base, new = np.array(counts).T
    ratio, weight = np.log(new / base), base + new
    order = np.argsort(ratio)
    middle = ratio[order[np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]]
    every = sum(side.count for row in rows for side in (row.base, row.new) if side)
    alike = weight[np.abs(ratio - middle) <= math.log(_AS_OFTEN)].sum()
    if abs(middle) < math.log(_OFTEN) or alike < _ALIKE * every:
        return ""
    side = "NEW" if middle > 0 else "BASE"
    return (
        f"the same work runs {math.exp(abs(middle)):.2g} times as often in {side}"
        f" ({number(base.sum())} -> {number(new.sum())} kernels and copies a step)"
    )


def _fits(fault: FaultChange, step: StepAxis | None) -> bool:
    """Whether a fault that came or went can be what changed the step: of its sign, and not much less than was said."""
    if fault.status not in ("gone", "new") or step is None:
        return fault.status in ("gone", "new")
    saves = (fault.said_share or 0.0) >= 0
    if fault.status == "gone":
        return step.word in (Word.UNKNOWN, Word.FASTER if saves else Word.SLOWER)
    if not saves:
        return step.word in (Word.UNKNOWN, Word.FASTER)
    return step.difference > _FITTING * (fault.said_share or 0.0) and step.word is not Word.FASTER


def _changes(rows: Sequence[Row], calls: Sequence[CallRow], waterfall: Waterfall | None) -> list[_Change]:
    result: dict[str, _Change] = {}
    for row in rows:
        one = result.setdefault(row.label, _Change(row.label))
        one.delta_ns += row.delta_ns
        if row.word not in SILENT:
            one.real = True
            one.phrases.append(_row_phrase(row))
    for call in calls:
        if call.counter in MINOR or call.counter == "launches":
            continue
        one = result.setdefault(call.outer or call.call, _Change(call.outer or call.call))
        one.real = True
        one.phrases.insert(0, f"{call.call} {call.base:g} -> {call.new:g} a step")
    for part in waterfall.parts if waterfall else ():
        if part.group == "idle":
            label = part.name.partition(": ")[2] or part.name
            result.setdefault(label, _Change(label)).idle_ns += part.delta_ns
    return list(result.values())


def _row_phrase(row: Row) -> str:
    what = f"{row.kind} {row.op}" if row.kind != "compute" else row.op
    base, new = row.base, row.new
    if base is None or new is None:
        some = new or base
        assert some is not None
        return f"{what} is {row.word} ({some.count:g} a step, {format_ns(some.ns)})"
    if row.word in (Word.MORE, Word.FEWER):
        return f"{what} {base.count:g} -> {new.count:g} a step"
    note = f", {row.note.partition('; ')[0]}" * bool(row.note)
    return f"{what} {times(base.ns, new.ns)}{note}"


def _phrase(change: _Change) -> str:
    total = change.delta_ns + change.idle_ns
    shown = f"{change.label}: {signed_ns(total)} of the step"
    if change.idle_ns and abs(change.idle_ns) >= abs(change.delta_ns):
        shown += ", most of it idle time"
    return shown + "".join(f"; {phrase}" for phrase in change.phrases[:2])
