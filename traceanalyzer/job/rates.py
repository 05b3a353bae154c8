"""How fast collectives move data: bandwidths as nccl-tests define them, by collective, group and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.job.waits import CollectiveWaits
from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import NULL_INT, Trace, ints
from traceanalyzer.timeline.device_work import DeviceWork

_BYTES = {"double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4}
_BYTES |= {
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "short": 2,
    "char": 1,
    "byte": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_BYTES |= {"float8_e4m3fn": 1, "float8_e5m2": 1}
_SHARED = {"allgather", "reducescatter", "alltoall"}  # (n - 1) / n of the data crosses the bus, nccl-tests
_SLOW = 0.6  # of the median bandwidth of groups that do the same: then its link is slow; chosen
_PEERS = 3  # groups that do the same: of fewer none is told from the others


@dataclass(frozen=True, slots=True)
class Rate:
    """Collectives of one kind, group and size.

    Attributes:
        collective, group: as torch.distributed calls them; the group by name and ranks.
        size: how many ranks it has.
        bytes: median data size S as nccl-tests define it.
        count: how many, each counted once for all ranks.
        transfer_ns: median time from the last rank's start to the end.
        waiting_ns: what ranks wait for the last one in all of them, summed over ranks.
        algbw, busbw: in GB/s, 1e9 bytes: S over the time, and what of it crosses a rank's link.
        slow: whether it is far below groups of as many ranks that do the same with as much.
    """

    collective: str
    group: str
    size: int
    bytes: int
    count: int
    transfer_ns: int
    waiting_ns: int
    algbw: float
    busbw: float
    slow: bool = False


def bus_factor(collective: str, ranks: int) -> float:
    """What part of S crosses each rank's link, as nccl-tests define it."""
    if ranks < 2:
        return 0.0
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _SHARED else 1.0


def data_bytes(trace: Trace, work: DeviceWork, runs: CollectiveRuns) -> Rows:
    """S of each collective: the larger of what a rank sends and receives; 0 where it is not recorded."""
    row, op = work.row[runs.entry], work.op[runs.entry]
    sizes = [_numbers(trace, row, op, name) for name in ("in_elements", "out_elements")]
    kinds = (
        Texts.column(trace.lanes.gpu, "comm_dtype", row)
        .or_else(Texts.column(trace.lanes.cpu, "comm_dtype", op))
        .values()
    )
    width = np.array([_BYTES.get(str(kind).lower().removeprefix("c10::"), 0) for kind in kinds], np.int64)
    return np.asarray(np.maximum(*sizes) * width, np.int64)


def _numbers(trace: Trace, row: Rows, op: Rows, name: str) -> Rows:
    own = ints(trace.lanes.gpu, name)[row]
    found = np.where(own != NULL_INT, own, pick(ints(trace.lanes.cpu, name), op))
    return np.where(found > 0, found, 0)


def rates(
    runs: Mapping[int, CollectiveRuns], waits: Mapping[int, CollectiveWaits], sizes: Mapping[int, Rows]
) -> list[Rate]:
    """Of all collectives that several ranks have, the longest in all first.

    Args:
        sizes: rank -> S of each of its collectives.
    """
    known: dict[int, tuple[str, str, int, int]] = {}
    waited: dict[int, int] = {}
    members: dict[int, int] = {}
    for rank, one in waits.items():
        at = np.searchsorted(runs[rank].entry, one.entry)
        transfer = runs[rank].dur_ns[at] - one.waiting_ns
        columns = (
            one.number,
            one.waiting_ns,
            transfer,
            sizes[rank][at],
            runs[rank].what[at],
            runs[rank].group[at],
        )
        for number, late, took, size, what, group in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            known[number] = (what, group or "", max(size, known.get(number, ("", "", 0, 0))[2]), took)
            waited[number] = waited.get(number, 0) + late
            members[number] = members.get(number, 0) + 1
    groups: dict[tuple[str, str, int], list[int]] = {}
    for number, (what, group, size, _) in known.items():
        groups.setdefault((what, group, int(size).bit_length()), []).append(number)
    made = [_rate(key, numbers, known, waited, members) for key, numbers in groups.items()]
    return sorted(
        _compared(made), key=lambda one: (-one.transfer_ns * one.count, one.collective, one.group, one.bytes)
    )


def _rate(
    key: tuple[str, str, int],
    numbers: list[int],
    known: Mapping[int, tuple[str, str, int, int]],
    waited: Mapping[int, int],
    members: Mapping[int, int],
) -> Rate:
    what, group, _ = key
    size = max(_size_of(group), *(members[number] for number in numbers))
    data = float(np.median([known[number][2] for number in numbers]))
    took = max(float(np.median([known[number][3] for number in numbers])), 1.0)
    late = sum(waited[number] for number in numbers)
    algbw = data / took
    return Rate(
        what, group, size, round(data), len(numbers), round(took), late, algbw, algbw * bus_factor(what, size)
    )


def _size_of(group: str) -> int:
    """Ranks of a group as its name lists them: `0 [0, 1, 2]`."""
    inside = group.partition("[")[2].rstrip("]")
    return len([part for part in inside.split(",") if part.strip()])


def _compared(found: list[Rate]) -> list[Rate]:
    """The same, with those marked that are far slower than groups that do the same."""
    alike: dict[tuple[str, int, int], list[Rate]] = {}
    for one in found:
        alike.setdefault((one.collective, one.size, one.bytes.bit_length()), []).append(one)
    slow = {
        id(one)
        for group in alike.values()
        if len(group) >= _PEERS
        for one in group
        if 0 < one.busbw < _SLOW * float(np.median([other.busbw for other in group]))
    }
    return [
        Rate(**{name: getattr(one, name) for name in one.__slots__[:-1]}, slow=id(one) in slow)
        for one in found
    ]
