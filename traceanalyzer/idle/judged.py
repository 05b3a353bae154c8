"""Causes of what remains of a gap once proven ones are cut out: one for all of it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.idle.evidence import Evidence
from traceanalyzer.idle.pieces import MOST
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.trace import NULL_INT, matching
from traceanalyzer.timeline.device_work import KINDS
from traceanalyzer.timeline.names import EVENT_SYNC, STREAM_WAIT, TUNING_OP

Verdict = tuple[Mask, Rows]  # per gap: does it hold; the row of `trace.cpu` that decides, -1 for none


def tail(evidence: Evidence) -> Verdict:
    """Nothing runs any more."""
    return evidence.gaps.next_work < 0, _none(evidence)


def in_graph(evidence: Evidence) -> Verdict:
    """The graph launch that ends the gap had begun its work before."""
    return evidence.in_graph, evidence.gaps.call


def unlinked(evidence: Evidence) -> Verdict:
    """No launch in the trace."""
    return evidence.gaps.call < 0, _none(evidence)


def refill(evidence: Evidence) -> Verdict:
    """Launched in time, into a queue that a synchronising call had emptied."""
    _, row = evidence.waits
    return row >= 0, row


def usual_latency(evidence: Evidence) -> Verdict:
    """Launched in time, started after the usual delay."""
    return evidence.gaps.in_time & (evidence.remainder_ns <= evidence.usual_delay_ns), evidence.gaps.call


def autotuning(evidence: Evidence) -> Verdict:
    """A wait for an event inside an op that tries kernels out."""
    direct, _ = evidence.waits
    cpu = evidence.trace.lanes.cpu
    event = matching(cpu, "name", EVENT_SYNC.search)
    tunes = matching(cpu, "name", TUNING_OP.search)
    around = pick(evidence.nesting.op, direct)
    return (direct >= 0) & event[direct] & (around >= 0) & tunes[around], direct


def blocking_upload(evidence: Evidence) -> Verdict:
    """The call that held the CPU up is a copy to the device, or belongs to an op that only copies there."""
    direct, _ = evidence.waits
    work = evidence.work
    up, down = (work.kind == KINDS.index(f"copy_{way}") for way in ("h2d", "d2h"))
    own = np.isin(direct, work.call[up])
    uploads = np.setdiff1d(work.op[up], work.op[down])
    event = matching(evidence.trace.lanes.cpu, "name", EVENT_SYNC.search)
    around = pick(evidence.nesting.op, direct)
    return (direct >= 0) & ~event[direct] & (own | ((around >= 0) & np.isin(around, uploads))), direct


def drained(evidence: Evidence) -> Verdict:
    """Launched late, after a synchronising call that drained the device."""
    direct, _ = evidence.waits
    return direct >= 0, direct


def long_launch(evidence: Evidence) -> Verdict:
    """Launched in time, and started when the launch call returned."""
    return evidence.gaps.in_time & (evidence.held_ns <= evidence.usual_delay_ns), evidence.gaps.call


def waiting(evidence: Evidence) -> Verdict:
    """Held up after a wait for an event was issued since the work before was launched, or nothing ran before."""
    before = evidence.gaps.previous_work
    waits = matching(evidence.trace.lanes.cpu, "name", STREAM_WAIT.search)
    issued = np.sort(evidence.nesting.start_ns[waits])
    since = np.where(before >= 0, evidence.work.call_start_ns[before], NULL_INT)
    between = np.searchsorted(issued, evidence.gaps.launched_ns) > np.searchsorted(issued, since)
    stuck = ~evidence.late & ~evidence.gaps.in_time
    stuck |= evidence.gaps.in_time & (evidence.held_ns > MOST * evidence.remainder_ns)
    holds = stuck & ((before < 0) | between & (since != NULL_INT))
    return np.asarray(holds), evidence.gaps.call


def unknown(evidence: Evidence) -> Verdict:
    """Held up, and nothing says why."""
    return ~evidence.late, evidence.gaps.call


def engine(evidence: Evidence) -> Verdict:
    """Between the ops of the autograd engine's thread."""
    return (1 - evidence.in_ops >= MOST) & evidence.on_engine, evidence.gaps.call


def python(evidence: Evidence) -> Verdict:
    """Between ops, with stacks."""
    stacks = bool(evidence.trace.meta.rows.get("python"))
    return (1 - evidence.in_ops >= MOST) & stacks, evidence.gaps.call


def host_code(evidence: Evidence) -> Verdict:
    """Between ops, without stacks."""
    return 1 - evidence.in_ops >= MOST, evidence.gaps.call


def dispatching(evidence: Evidence) -> Verdict:
    """What is left; the deciding row is the innermost op that took most of the gap and ended before the launch, else
    the launch: then the op that launched took the time."""
    nesting, gaps = evidence.nesting, evidence.gaps
    found = np.full(len(gaps), -1)
    middle = (gaps.start_ns + gaps.end_ns) // 2
    for thread in distinct(
        evidence.thread
    ).tolist():  # a row that covers half of a gap lies around its middle
        own = evidence.thread == thread
        found[own] = nesting.around(thread, middle[own], middle[own])
    found[~evidence.late] = -1
    going = np.flatnonzero(found >= 0)
    while len(going):
        row = found[going]
        end, start = np.minimum(nesting.end_ns[row], gaps.end_ns[going]), gaps.start_ns[going]
        overlap = end - np.maximum(nesting.start_ns[row], start)
        short = (nesting.op[row] != row) | (overlap < MOST * gaps.dur_ns[going])
        going = going[short]
        found[going] = nesting.parent[row[short]]
        going = going[found[going] >= 0]
    ended = (found >= 0) & (nesting.end_ns[found] <= gaps.launched_ns)
    return evidence.every_gap(), np.where(ended, found, gaps.call)


def _none(evidence: Evidence) -> Rows:
    return np.full(len(evidence.gaps), -1)
