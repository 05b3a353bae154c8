"""Files into which somebody merged the traces of several ranks: known by how the merging marked them, and split again.

Every event is put back as the rank's own file had it: ids of processes, threads and launches are of one process again.
"""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import distinct, distinct_pairs
from traceanalyzer.model.errors import UnreadableTrace
from traceanalyzer.model.interpreter import uncollected
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import NULL_INT, Trace, ints, matching, texts_of
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.quirks import lane_number
from traceanalyzer.read.text.batches import Batches
from traceanalyzer.read.text.source import STDIN, Source

Event = dict[str, Any]
# Puts an event back as it was; returns the mark of its rank, None where it has none.
Restore = Callable[[Event], Hashable]

_LABEL = regex(r"\[([A-Z]+[0-9]{1,6}(?:-[A-Z]+[0-9]{1,6})*|Unknown)\] (.*)$", re.DOTALL)
_PART = regex(r"([A-Z]+)([0-9]+)")
_NAMED = regex(r".*_rank[0-9]{1,6}$", re.DOTALL)
_SHIFT = 100_000_000  # between the pids of two ranks, as Triton-distributed and Flux merge
_MAX_RANK = 999_999


class Merged(UnreadableTrace):
    """The file holds traces of several ranks, and `restore` takes them apart."""

    def __init__(self, where: str, restore: Restore) -> None:
        super().__init__("holds merged traces", where=where, remedy="Read it as a job.")
        self.restore = restore


def refuse_merged(source: Source, collector: Collector) -> None:
    """Raises Merged: the file is one, and can be read again; UnreadableTrace: it is one, and was a pipe."""
    restore = restore_of(collector)
    if restore is None:
        return
    if source.name == Source(STDIN).name:
        problem = "holds merged traces, for which it has to be read twice"
        raise UnreadableTrace(problem, where=source.name, remedy="Save it to a file and pass that.")
    raise Merged(source.name, restore)


def refuse_unmarked(trace: Trace) -> None:
    """Raises UnreadableTrace: processes share correlation ids of their launches, so that no work has one launch."""
    calls = matching(trace.lanes.cpu, "category", CALL_CATEGORIES.__contains__)
    pid = ints(trace.lanes.cpu, "pid")
    if "mtia_runtime" in texts_of(trace.lanes.cpu, "category"):
        # Processes that stand for a device of MTIA, on which rows repeat what the host called.
        calls &= ~np.isin(pid, [device.ordinal for device in trace.meta.devices])
    pid = pid[calls]
    pids = distinct(pid[pid != pid[0]]) if len(pid) else pid  # most traces have one: nothing to sort
    if len(pids) == 0:
        return
    pairs, _ = distinct_pairs(ints(trace.lanes.cpu, "correlation")[calls], pid)
    pairs = pairs[(pairs != NULL_INT) & (pairs != 0)]
    shared = len(pairs) - len(distinct(pairs))
    if shared:
        problem = (
            f"holds the launches of {len(pids) + 1} processes, and {shared:,} correlation ids are of several of them: "
            "traces of several ranks that were merged without a mark"
        )
        remedy = (
            "Pass each rank's own file, or their folder. Merged files are read where they are marked as SGLang, "
            "TraceLens (TraceFusion) and Triton-distributed mark them."
        )
        raise UnreadableTrace(problem, where=trace.meta.source, remedy=remedy)


def split(source: Source, restore: Restore, finish: Callable[[Batches, Collector], Trace]) -> list[Trace]:
    """The traces of a merged file by rank."""
    batches, collectors = Batches(source), dict[Hashable, Collector]()
    with uncollected():
        for batch in batches.batches():
            marks = [restore(event) if isinstance(event, dict) else None for event in batch]
            before = batches.events - len(batch)
            for mark in dict.fromkeys(marks):
                if mark is not None and mark not in collectors:
                    collectors[mark] = Collector(before)
            for mark, collector in collectors.items():
                others = np.fromiter((event_mark != mark for event_mark in marks), bool, len(marks))
                collector.add(batch, batches.text_of_batch, others)
    filled = [mark for mark, one in collectors.items() if any(group.rows for group in one.groups.values())]
    if not filled:
        problem = "no event of the merged ranks is readable"
        raise UnreadableTrace(problem, where=source.name, remedy="Merge them again.")
    mark_of = {rank: mark for mark, rank in ranks_of_marks(filled).items()}
    traces = [(rank, finish(batches, collectors[mark_of[rank]])) for rank in sorted(mark_of)]
    return [replace(trace, meta=replace(trace.meta, rank=rank)) for rank, trace in traces]


def restore_of(collector: Collector) -> Restore | None:
    """How the file was merged, None where it was not."""
    pids = {head[1] for head in collector.heads}
    if any(isinstance(pid, str) and _LABEL.match(pid) for pid in pids):
        return unlabelled
    labels = collector.declared.processes.values()
    names = [names["process_name"] for names in labels if "process_name" in names]
    moved = any(isinstance(pid, int) and pid > _SHIFT // 2 for pid in pids)
    if names and all(map(_NAMED.match, names)) and moved:
        return shifted_back
    if any(group.keys >= {"rank", "pid_raw"} for group in collector.groups.values()):
        return unfused
    return None


def ranks_of_marks(marks: list[Hashable]) -> Mapping[Hashable, int]:
    """Mark -> rank: its number, or where several have the same one, its place in their order."""
    numbers: dict[Hashable, dict[str, int]] = {
        mark: {"TP": mark}
        if isinstance(mark, int)
        else {kind: int(number) for kind, number in _PART.findall(str(mark))}
        for mark in marks
    }
    tensor_ranks = [places["TP"] for places in numbers.values() if "TP" in places]
    if len(set(tensor_ranks)) == len(marks):
        return dict(zip(marks, tensor_ranks, strict=True))
    order = sorted(marks, key=lambda mark: [numbers[mark].get(kind, 0) for kind in ("PP", "DP", "TP", "EP")])
    return {mark: rank for rank, mark in enumerate(order)}


def unlabelled(event: Event) -> Hashable:
    """SGLang: the pid becomes "[TP03-EP01] 17"."""
    pid = event.get("pid")
    match = _LABEL.match(pid) if isinstance(pid, str) else None
    if match is None:
        return None
    number = lane_number(match[2])
    event["pid"] = match[2] if number == NULL_INT else number
    return match[1]


def shifted_back(event: Event) -> Hashable:
    """Triton-distributed, Flux: pid and tid are moved by rank; texts get that as an ending, and names the rank."""
    pid = event.get("pid")
    # The rank whose pids were moved to where this one is; -1 is a pid, too.
    moved = lane_number(pid.rpartition("_")[2] if isinstance(pid, str) else pid)
    rank = (moved + _SHIFT // 2) // _SHIFT
    if not 0 <= rank <= _MAX_RANK:
        return None
    for key in ("pid", "tid"):
        value = event.get(key)
        if isinstance(value, int):
            event[key] = value - rank * _SHIFT
        elif isinstance(value, str):
            event[key] = value.removesuffix(f"_{rank * _SHIFT}")
    args = event.get("args")
    if event.get("ph") == "M" and isinstance(args, dict):
        for key, ending in (("name", f"_rank{rank}"), ("labels", f"_{rank}")):
            if isinstance(args.get(key), str):
                args[key] = args[key].removesuffix(ending)
    return rank


def unfused(event: Event) -> Hashable:
    """TraceFusion of TraceLens: ids are moved, and kept beside the rank in args."""
    args = event.get("args")
    rank = args.pop("rank", None) if isinstance(args, dict) else None
    if not isinstance(args, dict) or not isinstance(rank, int) or not 0 <= rank <= _MAX_RANK:
        return None
    if "pid_raw" in args:
        event["pid"] = args.pop("pid_raw")
    args.pop("id_raw", None)
    for key in ("correlation", "External id"):
        if f"{key}_raw" in args:
            args[key] = args.pop(f"{key}_raw")
    return rank
