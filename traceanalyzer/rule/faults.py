"""Faults: findings that one change of the program removes, grouped by what their fixes take from the program."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving, StepEstimate
from traceanalyzer.regions.regions import DropRegion
from traceanalyzer.replay.edit_footprint import WHOLLY, Autograd, Footprint
from traceanalyzer.replay.edits import Drop, Edit, FetchInTime
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.claims import Claims, PendingFinding, takes_all_launches
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.severity import fault_severity
from traceanalyzer.rule.views import Work

_MIN_SAVING = -Severity.LOW.least_share  # findings whose fix makes the step longer belong to no other finding's change
# Share of what fusing chains saves. A finding that saves less does not explain why the chains are there; chosen.
_EXPLAINS = 1 / 3
# Share of the fused kernels' time that the other fix shortens. It is 0.21 to 1 where it explains the chain; H200.
_SHARED = 0.2
_GRAPH_BEFORE_CHAINS = 2.0  # a CUDA graph comes before fused chains if it saves this many times as much; chosen
_BEFORE_GRAPH = 0.25  # share of what a CUDA graph saves. A fault that saves as much comes before the graph; chosen
# Share of what one call for a loop saves. Work in the loop that nobody needs comes before it if it is worth as much:
# 0.72 in a loop over clips that computes the same filters for each, 0.27 where all of the loop is the fault; H200.
_BEFORE_LOOP = 0.6
_MAX_COMPARED = 30  # only so many findings of a trace are compared pair by pair: those that save most


Pending = Sequence[PendingFinding]
Pair = tuple[int, int]
Before = Mapping[int, frozenset[int]]
"""Position of a finding -> those of the findings that come before it."""
Prints = Mapping[int, Footprint]
"""Position of a finding whose saving is worth comparing -> what its fix takes, most worth first."""


@dataclass(frozen=True, slots=True)
class FaultOf:
    """The fault of each finding of a trace.

    Attributes:
        number: parallel to the findings, equal for those of one fault.
        savings: fault -> joint saving, None where nothing of it can be replayed.
        severities: fault -> severity of the joint saving.
        preceded_by: finding -> the findings that come before it, since they explain why its work is there.
        steps_after: fault -> the step when it and the faults above `info` before it are put right.
    """

    number: tuple[int, ...]
    savings: tuple[Saving | None, ...]
    severities: tuple[Severity, ...]
    preceded_by: Before = field(default_factory=dict)
    steps_after: Mapping[int, StepEstimate] = field(default_factory=dict)


def faults_of(all_pending: Pending, findings: Sequence[Finding], forecast: Forecast | None) -> FaultOf:
    """Group the findings of one trace, parallel to what each was made of; without a forecast each is a fault."""
    linked, partly, earlier = _linked(all_pending, findings, forecast)
    number = _groups(len(findings), linked)
    joint = []
    for fault in range(max(number, default=-1) + 1):
        members = [i for i, of_finding in enumerate(number) if of_finding == fault]
        edits = [edit for i in members if i not in partly for edit in all_pending[i].hits.edits()]
        joint.append(_joint([(all_pending[i], findings[i]) for i in members], edits, forecast))
    savings, severities = tuple(one for one, _ in joint), tuple(one for _, one in joint)
    return FaultOf(tuple(number), savings, severities, earlier)


def _joint(
    members: Sequence[tuple[PendingFinding, Finding]], edits: Sequence[Edit], forecast: Forecast | None
) -> tuple[Saving | None, Severity]:
    """(what the edits save, how severe that is); of a single finding its own, and never less than one of them."""
    # Without a forecast, every fault has one finding.
    if len(members) == 1 or forecast is None:
        return members[0][1].saving, members[0][1].severity
    separate = (finding.saving for _, finding in members if finding.saving is not None)
    # A finding may be worth more on top of other findings' fixes than together with this fault alone.
    saving = max((forecast.saving(edits), *separate), key=lambda each: each.share)
    if all(pending.hits.info for pending, _ in members):
        return saving, Severity.INFO
    cost_share = max(finding.cost_share for _, finding in members)
    return saving, fault_severity((finding.severity for _, finding in members), cost_share, saving)


def _groups(count: int, linked: Sequence[Pair]) -> list[int]:
    """The fault of each finding: the connected components of the links, numbered in order."""
    root = list(range(count))
    for pair in linked:
        low, high = sorted(root[i] for i in pair)
        root = [low if r == high else r for r in root]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(r, len(numbers)) for r in root]


def _linked(
    all_pending: Pending, findings: Sequence[Finding], forecast: Forecast | None
) -> tuple[list[Pair], set[int], Before]:
    """(pairs of findings that one change removes; findings of which it removes a part; `FaultOf.preceded_by`)."""
    if forecast is None:
        return [], set(), {}
    worth = _worth_comparing(all_pending, findings)
    program = forecast.program
    prints = {i: Footprint.of(program, all_pending[i].hits.edits()) for i in worth}
    before_loops = _needless_in_loops(all_pending, prints, worth, program)
    replaced = _replaced(all_pending, prints, before_loops)
    specific, partly = _removed_together(all_pending, worth, prints, before_loops, replaced, program)
    removed = {i for pair in specific for i in pair}
    compiled = [
        (i, other)
        for i, pending in enumerate(all_pending)
        for other, second in enumerate(all_pending)
        if _has_only(pending, Compile) and _has_only(second, Fuse) and other not in removed
        if not (pending.hits.info or second.hits.info)
    ]
    earlier = preceded_by(all_pending, findings, prints, worth)
    for before in (before_loops, replaced):
        earlier |= {i: others | earlier.get(i, frozenset()) for i, others in before.items() if others}
    return compiled + specific, partly, _behind_late_batches(all_pending, earlier)


def _needless_in_loops(all_pending: Pending, prints: Prints, worth: Mapping[int, float], program: Program) -> Before:
    """Of each finding about loops the needless work that comes first: some of the loops, or most that it saves."""
    of_work = (i for i in prints if all_pending[i].order is Claims.WORK)
    needless = [i for i in of_work if _has_only(all_pending[i], Drop, DropRegion)]
    first = dict[int, frozenset[int]]()
    for i, loops in prints.items():
        edits = all_pending[i].hits.edits() if i not in needless else ()
        if any(isinstance(edit, (Batch, GraphLaunch, DropRegion)) for edit in edits):
            whole = (one for one in needless if prints[one].takes_whole_loops(loops, program.launch))
            # One backward pass for all rows does once what the passes for each row have in common.
            rows = any(isinstance(edit, Batch) and edit.times > 1 for edit in edits)
            dear = (one for one in needless if not rows and worth[one] >= _BEFORE_LOOP * worth[i])
            first[i] = frozenset(whole) | {one for one in dear if loops.holds(prints[one])}
    return first


def _replaced(all_pending: Pending, prints: Prints, apart: Before) -> Before:
    """Of each finding about how fast kernels are the findings, worth more, whose fixes put others in their place."""
    by = dict[int, frozenset[int]]()
    for larger, i in combinations(prints, 2):
        hits = all_pending[i].hits
        needless = any(isinstance(edit, Drop) for edit in hits.edits())
        if i in apart.get(larger, ()) or larger in apart.get(i, ()) or hits.of_format or needless:
            continue
        if prints[larger].replaces(prints[i]) and not prints[larger].holds(prints[i]):
            by[i] = by.get(i, frozenset()) | {larger}
    return by


def _behind_late_batches(all_pending: Pending, earlier: dict[int, frozenset[int]]) -> Before:
    """All others come after late batches: while workers set the pace, no other change makes a step shorter."""
    fixes = ((i, pending.hits.edits()) for i, pending in enumerate(all_pending))
    late = frozenset(i for i, edits in fixes if any(isinstance(edit, FetchInTime) for edit in edits))
    others = (i for i in range(len(all_pending)) if late and i not in late)
    return earlier | {i: earlier.get(i, frozenset()) | late for i in others}


def _worth_comparing(all_pending: Pending, findings: Sequence[Finding]) -> dict[int, float]:
    """Share that each specific finding saves, by position, largest first; empty if there is only one."""
    savings = ((i, finding.saving) for i, finding in enumerate(findings))
    worth = {i: saving.share for i, saving in savings if saving is not None and saving.share >= _MIN_SAVING}
    specific = [i for i in worth if not takes_all_launches(all_pending[i]) and not all_pending[i].hits.info]
    specific = sorted(specific, key=lambda i: (-worth[i], i))[:_MAX_COMPARED]
    return {i: worth[i] for i in specific} if len(specific) > 1 else {}


def preceded_by(
    all_pending: Pending, findings: Sequence[Finding], prints: Prints, worth: Mapping[int, float]
) -> dict[int, frozenset[int]]:
    """The findings that come before each, by position, where there are any; those with a saving, without info.

    Before a chain to fuse come findings that explain its kernels, since what such a fault leaves of the chain can
    still be fused, and those that take its launches off the CPU anyway. Before what takes all launches off the CPU
    come the faults worth about as much, as it saves what is left.
    """
    savings = ((i, finding.saving) for i, finding in enumerate(findings) if not all_pending[i].hits.info)
    saved = {i: saving.share for i, saving in savings if saving is not None}
    ranks = [finding.severity.rank for finding in findings]
    launches = {i for i in saved if takes_all_launches(all_pending[i])}
    chains = {i for i in saved if _has_only(all_pending[i], Fuse)} - launches
    explaining = [
        i
        for i in worth
        if all_pending[i].order <= Claims.PATTERN
        and ranks[i] <= Severity.MEDIUM.rank
        and not any(isinstance(edit, (Batch, Fuse)) for edit in all_pending[i].hits.edits())
    ]

    def explains(i: int, chain: int) -> bool:
        work_ns = prints[chain].work_ns
        shared_ns = work_ns[prints[i].work_ns > 0].sum()
        return bool(worth[i] >= _EXPLAINS * worth[chain] and shared_ns >= _SHARED * work_ns.sum())

    earlier: dict[int, frozenset[int]] = {}
    for chain in chains:
        explained = {i for i in explaining if chain in worth and explains(i, chain)}
        graphs = {i for i in launches if saved[i] >= _GRAPH_BEFORE_CHAINS * saved[chain]}
        of_loops = [i for i in prints if chain in prints and _has_only(all_pending[i], GraphLaunch)]
        loops = {i for i in of_loops if prints[i].holds(prints[chain])}
        earlier[chain] = frozenset(explained | graphs | loops - launches)
    for graph in launches:
        dear = (i for i in saved if saved[i] >= _BEFORE_GRAPH * saved[graph] and ranks[i] <= ranks[graph])
        earlier[graph] = frozenset(dear) - chains - launches
    return {i: others for i, others in earlier.items() if others}


def _removed_together(
    all_pending: Pending, worth: Mapping[int, float], prints: Prints, apart: Before, replaced: Before, program: Program
) -> tuple[list[Pair], set[int]]:
    """(pairs of specific findings that one change removes; findings of which the other's fix removes a part)."""
    linked, partly = list[Pair](), set(replaced)
    for pair in combinations(worth, 2):
        first, second = (prints[i] for i in pair)
        if pair[1] in apart.get(pair[0], ()) or pair[0] in apart.get(pair[1], ()):
            continue
        inside = first.holds(second)
        if inside and not first.holds(second, WHOLLY):
            partly.add(pair[1])
        # A fix that includes another's saves about as much. Otherwise calls stay that the other drops with the work.
        around = not inside and worth[pair[1]] >= WHOLLY * worth[pair[0]] and second.holds(first)
        if around and not second.holds(first, WHOLLY):
            partly.add(pair[0])
        pending = all_pending[pair[0]], all_pending[pair[1]]
        fault_key = pending[0].hits.fault_key  # two rules declare that their findings are one fault
        if (
            inside
            or around
            or pair[0] in replaced.get(pair[1], ())
            or _causes(first, second, program.launch)
            or _causes(second, first, program.launch)
            or _same_code(*pending, first, second, program)
            or (pending[0].rule != pending[1].rule and fault_key and fault_key == pending[1].hits.fault_key)
        ):
            linked.append(pair)
    for loops, needless in apart.items():
        linked = _kept_apart(linked, loops, needless, max(worth) + 1)
    return linked, partly


def _kept_apart(linked: Sequence[Pair], one: int, others: Collection[int], count: int) -> list[Pair]:
    """The links but for those of one finding to what belongs to others: a finding within both belongs to these."""
    number = _groups(count, [pair for pair in linked if one not in pair])
    theirs = {number[i] for i in others}
    return [pair for pair in linked if one not in pair or not theirs & {number[i] for i in pair if i != one}]


def _causes(cause: Footprint, effect: Footprint, launch: Rows) -> bool:
    """Whether the waits or copies of one make the work of the other."""
    return cause.leads_to(effect, launch) or cause.prepares(effect, launch)


def _has_only(pending: PendingFinding, *kinds: type[Edit]) -> bool:
    edits = pending.hits.edits()
    return bool(edits) and all(isinstance(edit, kinds) for edit in edits)


def _same_code(
    one: PendingFinding, other: PendingFinding, first: Footprint, second: Footprint, program: Program
) -> bool:
    """Whether a rule found one code twice: a loop or an op and its backward, or one function on other shapes."""
    if (one.rule, one.hits.cause, one.device) != (other.rule, other.hits.cause, other.device):
        return False
    events = one.hits.occurrences.events
    autograd = events.once(Autograd, lambda: Autograd.of(events.trace, events.nesting, program))
    backward = first.is_backward_of(second, autograd) or second.is_backward_of(first, autograd)
    loops, other_loops = (_repeats(pending.hits.edits()) for pending in (one, other))
    return backward or (len(loops) > 0 and loops == other_loops) or same_ops(one.hits, other.hits)


def _repeats(edits: Sequence[Edit]) -> list[int]:
    """How many repeats of each loop the edits batch: as many of the same loop forward and backward."""
    batches = (edit for edit in edits if isinstance(edit, Batch))
    return sorted(int(count) for edit in batches for count in np.unique(edit.group, return_counts=True)[1])


def same_ops(one: Hits, other: Hits) -> bool:
    """Whether the work of both has the same ops at the same lines, so that only the shapes of tensors differ."""
    first, second = one.occurrences, other.occurrences
    if not isinstance(first, Work) or not isinstance(second, Work):
        return False
    # One op starts collectives of every kind.
    if first.kind.one_of("communication").all() and one.named_by != other.named_by:
        return False
    ops = set(first.op.name.values()), set(second.op.name.values())
    return ops[0] == ops[1] and set(first.line.values()) == set(second.line.values())
