"""Findings as tracks: one per severity, a slice for every occurrence that the finding lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.model.finding import Finding, Occurrence, Severity
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.overlay import Arg, Args, Slices
from traceanalyzer.model.report import Report
from traceanalyzer.model.trace import Trace, codes, ints, texts_of
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.words.phrases import titled
from traceanalyzer.timeline.device_work import DeviceWork, find
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

_SLACK_NS = 3_000  # work may be seen to end so long after the call that waited for it: clock rounding
_LAUNCHES = "Calls that launched the work of findings."
_WORK = "Work of findings."
_WAITS = "Calls that waited for such work, from its start."
_ABOUT = "Occurrences of traceanalyzer's findings; select one to read its cost and the remedy."
_SAID = {"by", "count", "total_ns", "share"}  # under names of their own
_PLACES = ("step", "device", "stream", "thread")
_BY_TIME = itemgetter(0, 1, 2)


def evidence_tracks(analysis: Analysis, findings: Sequence[Numbered]) -> Iterator[Slices]:
    """One track per thread with such launches, per stream with such work, and per thread that waited for it."""
    trace, nesting = analysis.trace, analysis.index(Nesting)
    work, syncs = analysis.index(DeviceWork), analysis.index(SyncCalls)
    occurrence, rows, entries = _named(trace, work, findings)
    chain_work, waiter = _chains(nesting, work, syncs, occurrence, rows, entries)
    linked, waited = np.flatnonzero(work.call[chain_work] >= 0), np.flatnonzero(waiter >= 0)
    yield from _call_tracks(trace, work.call[chain_work[linked]], 2 * linked, None, "launches", _LAUNCHES)
    # With the arrow from the launch, which is even, and those to what waited.
    entry, arrow = chain_work[np.append(linked, waited)], np.append(2 * linked, 2 * waited + 1)
    where = {"device": work.device[entry], "stream": work.stream[entry]}
    for (device, stream), own in _frame(trace.lanes.gpu, work.row[entry], arrow, **where).groupby(list(where)):
        yield _evidence(trace.lanes.gpu, own, f"Evidence: work, device {device} stream {stream}", _WORK)
    row = waiter[waited]
    # From the begin of the work, where the call began before: so the arrow ends in it.
    begun = np.maximum(work.start_ns[chain_work[waited]], nesting.start_ns[row])
    yield from _call_tracks(trace, row, 2 * waited + 1, begun, "waits", _WAITS)


def _named(trace: Trace, work: DeviceWork, findings: Sequence[Numbered]) -> tuple[Rows, Rows, Rows]:
    """(number of the occurrence, row of `trace.cpu` or -1, entry of `DeviceWork` or -1) per event named."""
    named = [found.event_ids for one in findings for found in one.finding.occurrences]
    ids = np.array([one for each in named for one in each], np.int64)
    occurrence = np.repeat(np.arange(len(named)), [len(each) for each in named])
    rows = find(ints(trace.lanes.cpu, "event_id"), ids)
    entries = find(ints(trace.lanes.gpu, "event_id")[work.row], ids)
    return occurrence.astype(np.int64), rows, entries


def _chains(
    nesting: Nesting, work: DeviceWork, syncs: SyncCalls, occurrence: Rows, rows: Rows, entries: Rows
) -> tuple[Rows, Rows]:
    """(entry of `DeviceWork`, row of `trace.cpu` that waited for it or -1): each work once per waiting call."""
    on_cpu = np.flatnonzero(rows >= 0)
    bare = on_cpu[~np.isin(occurrence[on_cpu], occurrence[entries >= 0])]
    linked = np.flatnonzero(work.call >= 0)
    launched = pick(linked, _last_inside(nesting, work.call[linked], rows[bare]))
    named = np.concatenate((entries, launched))
    calls = distinct(_last_inside(nesting, syncs.row, rows[on_cpu]))
    calls = calls[calls >= 0]
    waited_for = _waited_for(work, syncs, calls)
    calls, waited_for = calls[waited_for >= 0], waited_for[waited_for >= 0]
    plain = np.setdiff1d(named[(named >= 0) & (pick(work.call, named) >= 0)], waited_for)
    return np.append(plain, waited_for), np.append(np.full(len(plain), -1), syncs.row[calls])


def _last_inside(nesting: Nesting, calls: Rows, rows: Rows) -> Rows:
    """Position in `calls` of the last one that is or lies in each row, on its thread; -1 where none does."""
    thread, start = nesting.thread[calls], nesting.start_ns[calls]
    order = np.lexsort((start, thread))
    found = np.full(len(rows), -1, np.int64)
    for number in distinct(nesting.thread[rows]).tolist():
        members = order[thread[order] == number]
        asked = np.flatnonzero(nesting.thread[rows] == number)
        last = np.searchsorted(start[members], nesting.end_ns[rows[asked]], side="left") - 1
        call = pick(members, last)
        inside = (call >= 0) & (pick(start, call) >= nesting.start_ns[rows[asked]])
        found[asked] = np.where(inside, call, -1)
    return found


def _waited_for(work: DeviceWork, syncs: SyncCalls, calls: Rows) -> Rows:
    """Entry of the last work launched before each call's end and finished before it returned; -1 for none."""
    order = np.argsort(work.end_ns, kind="stable")
    last = np.searchsorted(work.end_ns[order], syncs.end_ns[calls] + _SLACK_NS, side="right") - 1
    entry = pick(order, last)
    waited = (entry >= 0) & (work.end_ns[entry] > syncs.start_ns[calls])
    before = (work.call[entry] < 0) | (work.call_start_ns[entry] < syncs.end_ns[calls])
    return np.where(waited & before, entry, -1)


def _call_tracks(trace: Trace, row: Rows, arrow: Rows, begun: Rows | None, what: str, about: str) -> Iterator[Slices]:
    """One track per thread of these rows of `trace.cpu`, which may begin later than they do."""
    later = {} if begun is None else {"start_ns": begun}
    ends = _frame(trace.lanes.cpu, row, arrow, tid=ints(trace.lanes.cpu, "tid")[row], **later)
    for tid, own in ends.groupby("tid"):
        yield _evidence(trace.lanes.cpu, own, f"Evidence: {what}, thread {tid}", about)


def _frame(lane: Columns, row: Rows, arrow: Rows, **keys: Rows) -> pd.DataFrame:
    """A row per end of an arrow: what its slice is made of."""
    start = ints(lane, "start_ns")[row]
    known = {"event_id": ints(lane, "event_id")[row], "start_ns": start, "end_ns": start + ints(lane, "dur_ns")[row]}
    return pd.DataFrame({**known, "name": codes(lane, "name")[row], "arrow": arrow, **keys})


def _evidence(lane: Columns, ends: pd.DataFrame, name: str, about: str) -> Slices:
    once = ends.drop_duplicates("event_id").sort_values(["start_ns", "end_ns", "event_id"])
    arrows = ends.groupby("event_id")["arrow"].agg(list)[once["event_id"]].tolist()
    start, end = (once[side].to_numpy() for side in ("start_ns", "end_ns"))
    kinds, kind = np.unique(once["name"], return_inverse=True)
    texts = texts_of(lane, "name")
    names = [str(texts[code]) if code >= 0 else "" for code in kinds.tolist()]
    own = [{"event_id": one} for one in once["event_id"].tolist()]
    every: tuple[Args, ...] = ({},) * len(kinds)
    return Slices(name, start, np.maximum(end, start), kind, names, every, own, arrows, about)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A finding with its number in the report, from 1."""

    number: int
    finding: Finding

    @property
    def title(self) -> str:
        """`1 aten::item reads a value back and makes the CPU wait twice a step`."""
        return f"{self.number} {titled(self.finding)}"

    @property
    def label(self) -> str:
        saving = self.finding.saving
        saves = f", saves {format_ns(saving.step_ns)} a step" if saving and saving.step_ns > 0 else ""
        return self.title + saves


def numbered(report: Report) -> list[Numbered]:
    return [Numbered(number, finding) for number, finding in enumerate(report.findings, 1)]


def track_name(severity: Severity) -> str:
    return f"Findings: {severity}"


def finding_tracks(findings: Sequence[Numbered]) -> Iterator[Slices]:
    for severity in Severity:
        chosen = [one for one in findings if one.finding.severity is severity]
        every = [(kind, one) for kind, each in enumerate(chosen) for one in each.finding.occurrences]
        found = sorted(((one.start_ns, max(one.start_ns, one.end_ns), kind, one) for kind, one in every), key=_BY_TIME)
        start, end, kinds = (np.array([entry[column] for entry in found], np.int64) for column in range(3))
        names, args, own = [one.label for one in chosen], map(_args, chosen), [_own(entry[3]) for entry in found]
        if chosen:
            yield Slices(track_name(severity), start, end, kinds, names, list(args), own, about=_ABOUT)


def _args(one: Numbered) -> Args:
    finding, saving = one.finding, one.finding.saving
    said: dict[str, Arg] = {
        "finding": one.number,
        "rule": finding.rule,
        "severity": str(finding.severity),
        "confidence": str(finding.confidence),
        "message": finding.message,
        "remedy": finding.advice,
        "cost": f"{format_ns(finding.cost_ns)} in total ({format_share(finding.cost_share)} of the window)",
        "count": finding.count,
    }
    said |= {name: value for name, value in (("cause", finding.cause), ("by", finding.by)) if value}
    if saving is not None:
        shares = f"{format_share(saving.low_share)} to {format_share(saving.high_share)}"
        said["saving"] = f"{format_ns(saving.step_ns)} a step, {shares} of it"
        said["saving_step_ns"] = saving.step_ns
    evidence = {name: value for name, value in finding.evidence.items() if name not in _SAID}
    return said | {f"evidence_{name}": _plain(value) for name, value in evidence.items()}


def _plain(value: Any) -> Arg:
    """Numbers and texts as they are; of amounts by name one line that viewers show as it is."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {amount}" for name, amount in value.items())
    return value if isinstance(value, str | int | float) else str(value)


def _own(occurrence: Occurrence) -> Args:
    known = {name: place for name in _PLACES if (place := getattr(occurrence, name)) is not None}
    return {"cost_ns": occurrence.cost_ns, **known, "event_ids": occurrence.event_ids}
