"""Faults that the reports name, before and after: and what a fix really saved beside what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceanalyzer.comparison.result import FaultChange
from traceanalyzer.comparison.snapshot import KnownFault

_ORDER = ("gone", "new", "worse", "better", "unchanged")
_CHANGED = 0.2  # of the larger saving, for a fault to be worse or better; savings are said no nearer
_LEAST_SHARE = 0.01  # of the step, by which it must have changed; chosen


def fault_changes(
    base: Sequence[KnownFault], new: Sequence[KnownFault], got_share: float | None
) -> tuple[FaultChange, ...]:
    """Every fault of either side; gone and new ones first, the largest saving before.

    Args:
        got_share: what the step really lost (0 to 1, negative where it got longer), where that is known.
    """
    pairs = _pairs(base, new)
    found = [_change(first, second) for first, second in pairs]
    gone = [one for one in found if one.status == "gone"]
    alone = len(gone) == 1 and not any(one.status in ("new", "worse") for one in found)
    if alone and gone[0].said_share is not None:
        found[found.index(gone[0])] = replace(gone[0], got_share=got_share)
    found.sort(key=lambda one: (_ORDER.index(one.status), -(one.said_share or 0.0), one.title))
    return tuple(found)


def _pairs(
    base: Sequence[KnownFault], new: Sequence[KnownFault]
) -> list[tuple[KnownFault | None, KnownFault | None]]:
    """By what tells a fault from others, else by the rule: an op or line may have got another name."""
    pairs: list[tuple[KnownFault | None, KnownFault | None]] = []
    first, second = list(base), list(new)
    for same in (_same_key, _same_rule):
        for one in list(first):
            other = next((each for each in second if same(one, each)), None)
            if other is not None:
                pairs.append((one, other))
                first.remove(one)
                second.remove(other)
    return pairs + [(one, None) for one in first] + [(None, one) for one in second]


def _same_key(one: KnownFault, other: KnownFault) -> bool:
    return one.key == other.key


def _same_rule(one: KnownFault, other: KnownFault) -> bool:
    return one.rules[0] == other.rules[0]


def _change(base: KnownFault | None, new: KnownFault | None) -> FaultChange:
    told = base or new
    assert told is not None
    return FaultChange(
        _status(base, new),
        told.rules,
        told.title,
        told.severity,
        told.share,
        told.low_share,
        told.high_share,
        None,
        base.step_ns if base else None,
        new.step_ns if new else None,
    )


def _status(base: KnownFault | None, new: KnownFault | None) -> str:
    if base is None or new is None:
        return "new" if base is None else "gone"
    if base.share is None or new.share is None or base.step_ns is None or new.step_ns is None:
        return "unchanged"
    change = new.step_ns - base.step_ns
    whole = base.step_ns / base.share if base.share else 0.0
    if abs(change) <= max(_CHANGED * max(abs(base.step_ns), abs(new.step_ns)), _LEAST_SHARE * abs(whole)):
        return "unchanged"
    return "worse" if change > 0 else "better"
