"""The collectives of one rank, with what identifies them on other ranks."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, pick
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.timeline.communication import collective_of
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import StepMarks

_APART = frozenset({"broadcast", "reduce", "send", "recv", "scatter", "gather"})
"""In these a rank may be done before the last one has come: a broadcast's root, a sender. In all others none is."""
# All ranks have as much; of an all-to-all they need not.
OF_ONE_SIZE = frozenset({"allreduce", "allgather", "reducescatter"})

PAIR = "sendrecv"
_ENDS = regex(r"^nccl:(?:send|recv) (?P<own>\d+)(?P<way>->|<-)(?P<peer>\d+)")

_PAIR = regex(r"^\d+ to \d+$")

_NUMBERED = "ProfilerStep"  # the only marks whose numbers all ranks count alike


def is_pair(group: str | None) -> bool:
    """Whether that is what `CollectiveRuns.group` calls a sender and a receiver."""
    return group is not None and _PAIR.match(group) is not None


@dataclass(frozen=True, slots=True)
class CollectiveRuns:
    """Kernels of collectives that end together on all ranks; arrays of shape (runs,), in order of start.

    Attributes:
        entry: int64, entry of `DeviceWork`.
        start_ns, end_ns: int64.
        what: object, the collective as torch.distributed calls it.
        group: object, name and ranks of its process group; None where its op is not in the trace and may be of several.
        elements: int64, the larger of sent and received; -1 where unknown, or not the same on all ranks.
        seq: int64, number of the call within its group; -1 where not recorded.
        step: int64, number of the profiler's step that launched it; -1 for none, and where other marks stand for steps.
    """

    entry: Rows
    start_ns: Rows
    end_ns: Rows
    what: NDArray[np.object_]
    group: NDArray[np.object_]
    elements: Rows
    seq: Rows
    step: Rows

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork, marks: StepMarks) -> Self:
        """Raises Unavailable: there are none."""
        communication = np.flatnonzero(work.kind == KINDS.index("communication"))
        what = _names(trace, work, communication)
        pairs = _pairs(trace, work, communication, what)
        what = np.where(_known(pairs), PAIR, what)
        chosen = ~np.isin(what, list(_APART))
        entry, what, pairs = communication[chosen], what[chosen], pairs[chosen]
        if len(entry) == 0:
            raise Unavailable("no collectives of all ranks in the trace")
        sent, received = (recorded_numbers(trace, work, entry, name) for name in ("in_elements", "out_elements"))
        return cls(
            entry,
            work.start_ns[entry],
            work.end_ns[entry],
            what,
            np.where(_known(pairs), pairs, _groups(trace, work, entry)),
            np.where(np.isin(what, list(OF_ONE_SIZE)), np.maximum(sent, received), -1),
            np.where(_known(pairs), -1, recorded_numbers(trace, work, entry, "comm_seq")),
            pick(marks.number, marks.of_work[entry]) if marks.kind == _NUMBERED else np.full(len(entry), -1),
        )

    def __len__(self) -> int:
        return len(self.entry)

    @property
    def dur_ns(self) -> Rows:
        """Duration of each, int64 (runs,)."""
        return self.end_ns - self.start_ns


def _known(pairs: NDArray[np.object_]) -> Mask:
    return np.array([pair is not None for pair in pairs], np.bool_)


def _pairs(trace: Trace, work: DeviceWork, entry: Rows, what: NDArray[np.object_]) -> NDArray[np.object_]:
    """`0 to 1` of what one rank sends and the other receives, None of all else and where the ends are not told.

    Both are there until the data has moved, so that they meet as in a collective of two. The annotation that
    torch.distributed puts around the launch names the ends.
    """
    result = np.full(len(entry), None, object)
    between = np.flatnonzero(np.isin(what, ("send", "recv", PAIR)))
    names = Texts.column(trace.lanes.cpu, "name", np.arange(len(trace.lanes.cpu))) if len(between) else None
    rows = np.flatnonzero(names.matches(_ENDS.pattern)) if names is not None else np.empty(0, np.int64)
    if names is None or len(rows) == 0:
        return result
    start = ints(trace.lanes.cpu, "start_ns")[rows]
    order = np.argsort(start, kind="stable")
    rows, start = rows[order], start[order]
    end = start + ints(trace.lanes.cpu, "dur_ns")[rows]
    launched = work.call_start_ns[entry[between]]
    position = np.searchsorted(start, launched, side="right") - 1
    inside = (position >= 0) & (launched <= pick(end, position)) & (work.call[entry[between]] >= 0)
    told = names[rows[position[inside]]].values()
    for place, name in zip(between[inside].tolist(), told, strict=True):
        if ends := _ENDS.match(str(name)):
            own, peer = ends["own"], ends["peer"]
            result[place] = f"{own} to {peer}" if ends["way"] == "->" else f"{peer} to {own}"
    return result


def recorded_texts(trace: Trace, work: DeviceWork, entry: Rows, column: str) -> Texts:
    """What the kernel says, or else its op."""
    own = Texts.column(trace.lanes.gpu, column, work.row[entry])
    return own.or_else(Texts.column(trace.lanes.cpu, column, work.op[entry]))


def recorded_numbers(trace: Trace, work: DeviceWork, entry: Rows, column: str) -> Rows:
    """What the kernel says, or else its op; -1 where neither does."""
    own = ints(trace.lanes.gpu, column)[work.row[entry]]
    found = np.where(own != NULL_INT, own, pick(ints(trace.lanes.cpu, column), work.op[entry]))
    return np.where(found != NULL_INT, found, -1)


def _names(trace: Trace, work: DeviceWork, entry: Rows) -> NDArray[np.object_]:
    """The collective of each; of a kernel whose op is not in the trace what others of its name do."""
    kernels = Texts.column(trace.lanes.gpu, "name", work.row[entry]).values()
    named = Texts.column(trace.lanes.cpu, "name", work.op[entry])
    ops = recorded_texts(trace, work, entry, "collective").or_else(named).values()
    same = {kernel: op for kernel, op in zip(kernels, ops, strict=True) if op is not None}
    names = [
        collective_of(kernel, same.get(kernel) if op is None else op) for kernel, op in zip(kernels, ops, strict=True)
    ]
    return np.array(names, object)


def _groups(trace: Trace, work: DeviceWork, entry: Rows) -> NDArray[np.object_]:
    """Name and ranks of each one's group; without op that of all others on its stream."""
    names = recorded_texts(trace, work, entry, "process_group").values()
    members = recorded_texts(trace, work, entry, "group_ranks").values()
    streams = (work.device[entry] << 32) + work.stream[entry]
    groups = [
        None if name is None and ranks is None else f"{name} {ranks}"
        for name, ranks in zip(names, members, strict=True)
    ]
    of_stream: dict[int, set[str]] = {}
    for stream, group in zip(streams.tolist(), groups, strict=True):
        of_stream.setdefault(stream, set()).update([] if group is None else [group])
    known = set().union(*of_stream.values()) or {""}
    for index, stream in enumerate(streams.tolist()):
        among = of_stream[stream] or known
        if groups[index] is None and len(among) == 1:
            groups[index] = next(iter(among))
    return np.array(groups, object)
