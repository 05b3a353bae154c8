"""Findings that one change of the program removes are one fault: found by what their fixes take from the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.replay.edit_footprint import WHOLLY, Autograd, Footprint
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse
from traceanalyzer.rule.claims import Claims, PendingFinding
from traceanalyzer.rule.severity import fault_severity
from traceanalyzer.rule.views import Work

if TYPE_CHECKING:
    from traceanalyzer.model.step_times import Saving
    from traceanalyzer.replay.edits import Edit
    from traceanalyzer.replay.program import Program
    from traceanalyzer.replay.saving import Forecast

_LEAST = (
    -Severity.LOW.least_share
)  # saved by a fix alone: what makes the step longer belongs to no other's change
_EXPLAINS = 1 / 3  # of what fusing chains saves: another finding says why the chains are there; chosen
_SHARED = 0.2  # of what fusing takes, on kernels that the other shortens: 0.21 to 1 where it says why; H200
_TWICE = 2.0  # times what fusing a chain saves: taking all launches off the CPU comes first from here; chosen
# Times what any other fault saves: taking all launches off the CPU comes first from here. Faults that were put into
# programs beside it are worth 12 % beside 67 % or more (pairs4/amp_scaler, H200).
_FAR = 6.0
_NEAR = 0.25  # of what taking all launches off the CPU saves: a fault is said before it from here on; chosen
_MOST = 30  # findings of a trace that are compared pair by pair; those that save most come first


@dataclass(frozen=True, slots=True)
class FaultOf:
    """The fault of each finding of a trace.

    Attributes:
        number: parallel to the findings, equal for those of one fault.
        savings: fault -> joint saving, None where nothing of it can be replayed.
        severities: fault -> severity of the joint saving.
        behind: findings -> those that stand before it, since they say why its work is there.
    """

    number: tuple[int, ...]
    savings: tuple[Saving | None, ...]
    severities: tuple[Severity, ...]
    behind: Mapping[int, frozenset[int]] = field(default_factory=dict)


def faults_of(
    all_pending: Sequence[PendingFinding], findings: Sequence[Finding], forecast: Forecast | None
) -> FaultOf:
    """Group the findings of one trace.

    Args:
        all_pending: parallel to the findings, what each was made of.
        forecast: None where the program cannot be replayed: every finding is a fault of its own.
    """
    linked, partly, behind = _linked(all_pending, findings, forecast)
    number = _groups(len(findings), linked)
    savings: list[Saving | None] = []
    severities = []
    for fault in range(max(number, default=-1) + 1):
        members = [i for i, own in enumerate(number) if own == fault]
        saving, severity = _joint(
            [(all_pending[i], findings[i]) for i in members],
            [edit for i in members if i not in partly for edit in all_pending[i].hits.edits()],
            forecast,
        )
        savings.append(saving)
        severities.append(severity)
    return FaultOf(tuple(number), tuple(savings), tuple(severities), behind)


def _joint(
    members: Sequence[tuple[PendingFinding, Finding]], edits: Sequence[Edit], forecast: Forecast | None
) -> tuple[Saving | None, Severity]:
    """(what fixing all saves, how severe that is); of a single finding its own, and never less than one of them.

    Args:
        edits: of the members but for those of which another drops a part only: the rest of them is another change.
    """
    if len(members) == 1 or forecast is None:  # without a forecast every fault is of one finding
        return members[0][1].saving, members[0][1].severity
    own = (found.saving for _, found in members if found.saving is not None)
    # What comes on top of other findings' fixes may be worth more there than with these alone.
    saving = max((forecast.saving(edits), *own), key=lambda one: one.share)
    if all(pending.hits.info for pending, _ in members):
        return saving, Severity.INFO
    findings = [found for _, found in members]
    cost_share = max(found.cost_share for found in findings)
    return saving, fault_severity((found.severity for found in findings), cost_share, saving)


def _groups(count: int, linked: Sequence[tuple[int, int]]) -> list[int]:
    """The fault of each finding."""
    root = list(range(count))
    for one, other in linked:
        low, high = sorted((root[one], root[other]))
        root = [low if own == high else own for own in root]
    known: dict[int, int] = {}
    return [known.setdefault(own, len(known)) for own in root]


def _linked(
    all_pending: Sequence[PendingFinding], findings: Sequence[Finding], forecast: Forecast | None
) -> tuple[list[tuple[int, int]], set[int], dict[int, frozenset[int]]]:
    """(pairs of findings, by position, that one change removes; those of which it removes a part; `FaultOf.behind`).

    What compiles the step fuses its chains as well, but for those that a change of the program removes.
    """
    if forecast is None:
        return [], set(), {}
    chosen = _worth_comparing(all_pending, findings)
    prints = {i: Footprint.of(forecast.program, all_pending[i].hits.edits()) for i in chosen}
    specific, partly = _removed_together(all_pending, chosen, prints, forecast)
    removed = {i for pair in specific for i in pair}
    compiled = [
        (i, other)
        for i, pending in enumerate(all_pending)
        for other, second in enumerate(all_pending)
        if _made_of(pending, Compile) and _made_of(second, Fuse) and other not in removed
        if not (pending.hits.info or second.hits.info)
    ]
    return compiled + specific, partly, _behind(all_pending, findings, prints, chosen)


def _worth_comparing(all_pending: Sequence[PendingFinding], findings: Sequence[Finding]) -> dict[int, float]:
    """Specific findings with a saving, by position, most first; what each saves. None if there is but one."""
    known = ((i, found.saving) for i, found in enumerate(findings))
    worth = {i: saving.share for i, saving in known if saving is not None and saving.share >= _LEAST}
    chosen = [
        i for i in worth if all_pending[i].order is not Claims.LAUNCHES and not all_pending[i].hits.info
    ]
    chosen = sorted(chosen, key=lambda i: (-worth[i], i))[:_MOST]
    return {i: worth[i] for i in chosen} if len(chosen) > 1 else {}


def _behind(
    all_pending: Sequence[PendingFinding],
    findings: Sequence[Finding],
    prints: Mapping[int, Footprint],
    worth: Mapping[int, float],
) -> dict[int, frozenset[int]]:
    """The findings that stand before each: of chains that could be fused, those that say why their kernels are there.

    Those are wrong in one place; what is left of the chain after that can still be fused. Where taking all launches
    off the CPU is worth much more, most of what fusing saves are launches, which go with that. Beside what is worth
    far more, no other fault is where to begin.
    """
    why = [
        i
        for i in worth
        if all_pending[i].order <= Claims.PATTERN
        and findings[i].severity.rank <= Severity.MEDIUM.rank
        and not any(isinstance(edit, (Batch, Fuse)) for edit in all_pending[i].hits.edits())
    ]
    saved = {
        i: found.saving.share
        for i, found in enumerate(findings)
        if found.saving is not None and not all_pending[i].hits.info
    }
    launches = [i for i in saved if all_pending[i].order is Claims.LAUNCHES]
    found = {
        chain: frozenset(
            i
            for i in why
            if chain in worth
            and worth[i] >= _EXPLAINS * worth[chain]
            and prints[chain].work_ns[prints[i].work_ns > 0].sum() >= _SHARED * prints[chain].work_ns.sum()
        ).union(i for i in launches if saved[i] >= _TWICE * saved[chain])
        for chain in saved
        if _made_of(all_pending[chain], Fuse)
    }
    others = set(saved).difference(found, launches)
    for i in others:
        found[i] = frozenset(launch for launch in launches if saved[launch] >= _FAR * saved[i])
    for launch in launches:  # it saves what the others leave: a fault that is worth about as much comes first
        found[launch] = frozenset(
            i
            for i in others
            if saved[i] >= _NEAR * saved[launch]
            and findings[i].severity.rank <= findings[launch].severity.rank
        )
    return {chain: reasons for chain, reasons in found.items() if reasons}


def _removed_together(
    all_pending: Sequence[PendingFinding],
    worth: Mapping[int, float],
    prints: Mapping[int, Footprint],
    forecast: Forecast,
) -> tuple[list[tuple[int, int]], set[int]]:
    """(pairs of specific findings, one of which drops most of what the other does, or leads to it; those partly so)."""
    chosen, found, partly = list(worth), [], set[int]()
    for place, one in enumerate(chosen):
        for other in chosen[place + 1 :]:
            first, second = prints[one], prints[other]
            inside = first.holds(second)
            if inside and not first.holds(second, WHOLLY):
                partly.add(other)
            # What does for another's fix saves about as much: else calls stay that the other drops with the work.
            around = not inside and worth[other] >= WHOLLY * worth[one] and second.holds(first)
            if around and not second.holds(first, WHOLLY):
                partly.add(one)
            linked = inside or around
            launch = forecast.program.launch
            for this, that in ((first, second), (second, first)):
                linked |= this.leads_to(that, launch) or this.prepares(that, launch)
            pair = all_pending[one], all_pending[other]
            if linked or _same_code(*pair, first, second, forecast.program) or _stand_still(*pair):
                found.append((one, other))
    return found, partly


def _made_of(pending: PendingFinding, kind: type[Edit]) -> bool:
    """Whether its fix is of this kind alone: what compiles the step fuses its chains as well."""
    edits = pending.hits.edits()
    return bool(edits) and all(isinstance(edit, kind) for edit in edits)


def _same_code(
    one: PendingFinding, other: PendingFinding, first: Footprint, second: Footprint, program: Program
) -> bool:
    """Whether a rule found one code twice: a loop or an op and its backward, or one function on other shapes."""
    if (one.rule, one.hits.cause, one.device) != (other.rule, other.hits.cause, other.device):
        return False
    events = one.hits.occurrences.events
    autograd = events.once(Autograd, lambda: Autograd.of(events.trace, events.nesting, program))
    backward = first.is_backward_of(second, autograd) or second.is_backward_of(first, autograd)
    return backward or _same_loop(one, other) or _same_ops(one, other)


def _same_loop(one: PendingFinding, other: PendingFinding) -> bool:
    """Whether both batch as many repeats of as many loops: the same loop forward and backward."""
    counts = [_repeats(pending.hits.edits()) for pending in (one, other)]
    return len(counts[0]) > 0 and all(np.array_equal(*pair) for pair in pairwise(counts))


def _same_ops(one: PendingFinding, other: PendingFinding) -> bool:
    """Whether the work of both is of the same ops at the same lines: they differ in their tensors' shapes."""
    first, second = one.hits.occurrences, other.hits.occurrences
    if not isinstance(first, Work) or not isinstance(second, Work):
        return False
    if first.kind.one_of("communication").all() and one.hits.named_by != other.hits.named_by:
        return False  # one op starts collectives of every kind
    ops = set(first.op.name.values()), set(second.op.name.values())
    return ops[0] == ops[1] and set(first.line.values()) == set(second.line.values())


def _stand_still(*pair: PendingFinding) -> bool:
    """Whether the launching thread stands still between ops and within ops that do next to nothing: for one reason."""
    return {one.rule for one in pair} == {"host-gap", "host-hotspot"} and "stalled" in {
        one.hits.cause for one in pair
    }


def _repeats(edits: Sequence[Edit]) -> list[int]:
    return sorted(
        int(count)
        for edit in edits
        if isinstance(edit, Batch)
        for count in np.unique(edit.group, return_counts=True)[1]
    )
