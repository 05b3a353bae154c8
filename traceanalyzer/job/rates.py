"""How fast collectives move data: bandwidths as nccl-tests define them, by collective, group and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.job.runs import CollectiveRuns, is_pair, recorded_numbers, recorded_texts
from traceanalyzer.model.arrays import Rows, median, pick
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.intervals import covered, union
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.collective_waits import CollectiveWaits
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting

_DESCRIBED = (
    ("tensor", r"(?i)(?:^|[^a-z])(?:tp|tensor)(?:[^a-z]|$)|tensor_(?:model_)?parallel"),
    ("pipeline", r"(?i)(?:^|[^a-z])(?:pp|pipeline)(?:[^a-z]|$)|pipeline_(?:model_)?parallel"),
    ("data", r"(?i)(?:^|[^a-z])(?:dp|fsdp|ddp|data|hsdp)(?:[^a-z]|$)|data_parallel|dp_(?:shard|replicate)"),
    ("expert", r"(?i)(?:^|[^a-z])(?:ep|expert)(?:[^a-z]|$)|expert_(?:model_)?parallel"),
    ("context", r"(?i)(?:^|[^a-z])(?:cp|context)(?:[^a-z]|$)|context_parallel"),
)
"""What torch's meshes (mesh_tp), Megatron (TENSOR_MODEL_PARALLEL_GROUP) and DeepSpeed call groups; the first counts:
gradients of experts and of ranks that share a context are reduced over DATA_PARALLEL_GROUP_WITH_CP and dp_shard_cp."""
_EXPERTS = frozenset({"dispatch", "combine"})  # DeepEP's
_GRADIENTS = r"AccumulateGrad|FSDP::"  # DistributedDataParallel's hooks, and what FSDP calls its collectives


def roles(trace: Trace, work: DeviceWork, runs: CollectiveRuns, nesting: Nesting) -> NDArray[np.object_]:
    """What each group serves: tensor, pipeline, expert, context or data parallelism, or None; object (runs,)."""
    result = np.full(len(runs), None, object)
    row, op = work.row[runs.entry], work.op[runs.entry]
    described = Texts.column(trace.lanes.gpu, "group_desc", row).or_else(
        Texts.column(trace.lanes.cpu, "group_desc", op)
    )
    # The outermost op, or the annotation around that.
    top = nesting.top_op(op)
    outer = pick(nesting.parent, top)
    caller = np.where((outer >= 0) & pick(nesting.annotation, outer), outer, top)
    around = Texts.column(trace.lanes.cpu, "name", caller)
    shown = (
        ("data", around.matches(_GRADIENTS)),
        ("expert", np.isin(runs.what, list(_EXPERTS))),
        ("pipeline", np.array([is_pair(group) for group in runs.group], np.bool_)),
        *((role, described.matches(pattern)) for role, pattern in reversed(_DESCRIBED)),
    )
    for role, chosen in shown:
        result[chosen] = role
    return result


_TYPES = {
    8: "double float64 long int64",
    4: "float float32 int int32",
    2: "half float16 bfloat16 short",
    1: "char byte int8 uint8 bool float8_e4m3fn float8_e5m2",
}
_BYTES = {name: size for size, names in _TYPES.items() for name in names.split()}
_SHARED = {"allgather", "reducescatter", "alltoall"}  # (n - 1) / n of the data crosses the bus, nccl-tests
_SLOW = 0.6  # of the median bandwidth of groups that do the same: then its link is slow; chosen
PEERS = 3  # groups that do the same: of fewer none is told from the others


@dataclass(frozen=True, slots=True)
class Rate:
    """Collectives of one kind, group and size.

    Attributes:
        collective, group: as torch.distributed calls them; the group by name and ranks.
        ranks: those whose traces have it.
        role: what the group is for: data, tensor, pipeline, expert or context parallelism; None where nothing shows it.
        size: how many ranks it has.
        bytes: median data size S as nccl-tests define it.
        count: how many, each counted once for all ranks.
        transfer_ns: median time from the last rank's start to the end.
        exposed_ns: of the transfer in all of them, while a rank's GPU computes nothing; mean of the ranks.
        overlap: share of the transfer beside which the GPU computes (0 to 1).
        waiting_ns: what ranks wait for the last one in all of them, summed over ranks.
        algbw, busbw: in GB/s, 1e9 bytes: S over the time, and what of it crosses a rank's link.
        beside: median `busbw` of groups of as many ranks that do the same with as much; None of fewer than three.
        slow: whether it is far below that.
    """

    collective: str
    group: str
    ranks: tuple[int, ...]
    role: str | None
    size: int
    bytes: int
    count: int
    transfer_ns: int
    exposed_ns: int
    overlap: float | None
    waiting_ns: int
    algbw: float
    busbw: float
    beside: float | None = None
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """What one rank's `CollectiveRuns` move: S (0 where not recorded), and the transfer while nothing is computed."""

    bytes: Rows
    exposed_ns: Rows
    role: NDArray[np.object_]

    @classmethod
    def of(cls, trace: Trace, work: DeviceWork, runs: CollectiveRuns, waits: CollectiveWaits, nesting: Nesting) -> Self:
        waited, _ = waits.of(runs.entry)
        begin = runs.start_ns + np.maximum(waited, 0)
        computes = work.kind == KINDS.index("compute")
        busy = union(work.start_ns[computes], work.end_ns[computes])
        exposed = runs.end_ns - begin - covered(busy, begin, runs.end_ns)
        return cls(data_bytes(trace, work, runs), exposed, roles(trace, work, runs, nesting))


def bus_factor(collective: str, ranks: int) -> float:
    """What part of S crosses each rank's link, as nccl-tests define it."""
    if ranks < 2:
        return 0.0
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _SHARED else 1.0


def data_bytes(trace: Trace, work: DeviceWork, runs: CollectiveRuns) -> Rows:
    """S of each collective: the larger of what a rank sends and receives; 0 where it is not recorded."""
    sizes = [recorded_numbers(trace, work, runs.entry, name) for name in ("in_elements", "out_elements")]
    kinds = recorded_texts(trace, work, runs.entry, "comm_dtype").values()
    width = np.array([_BYTES.get(str(kind).lower().removeprefix("c10::"), 0) for kind in kinds], np.int64)
    return np.asarray(np.maximum(np.maximum(*sizes), 0) * width, np.int64)


def rates(
    runs: Mapping[int, CollectiveRuns], waits: Mapping[int, CollectiveWaits], moved: Mapping[int, Moved]
) -> list[tuple[Rate, Rows]]:
    """Of all collectives that several ranks have, the longest in all first; with the numbers of these collectives."""
    frames = [_rows(rank, runs[rank], one, moved[rank]) for rank, one in waits.items()]
    rows = pd.concat(frames, ignore_index=True)
    columns = {"what": "first", "group": "first", "bytes": "max", "transfer_ns": "last", "waiting_ns": "sum"}
    columns |= {"exposed_ns": "mean", "moving_ns": "mean", "rank": "count", "role": "first"}
    each = rows.groupby("number", sort=False).agg(columns)
    role_of = each.dropna(subset="role").groupby("group")["role"].last()
    kinds = [each["what"], each["group"], each["bytes"].map(int.bit_length)]
    kind_of = each.groupby(kinds, sort=False).ngroup()
    ranks = rows.groupby(rows["number"].map(kind_of))["rank"].unique()
    found = [
        (_rate(own, tuple(sorted(ranks[kind])), role_of), own.index.to_numpy()) for kind, own in each.groupby(kind_of)
    ]
    told = zip(compared_rates([rate for rate, _ in found]), (numbers for _, numbers in found), strict=True)
    name = attrgetter("collective", "group", "ranks", "bytes")
    return sorted(told, key=lambda one: (-one[0].transfer_ns * one[0].count, *name(one[0])))


def _rows(rank: int, run: CollectiveRuns, waits: CollectiveWaits, moved: Moved) -> pd.DataFrame:
    """A row per collective of one rank."""
    at = np.searchsorted(run.entry, waits.entry)
    transfer_ns = run.dur_ns[at] - waits.waiting_ns
    group = [one or "" for one in run.group[at]]
    known = {"number": waits.number, "rank": rank, "what": run.what[at], "group": group, "bytes": moved.bytes[at]}
    times = {"waiting_ns": waits.waiting_ns, "transfer_ns": transfer_ns, "moving_ns": transfer_ns}
    return pd.DataFrame({**known, **times, "exposed_ns": moved.exposed_ns[at], "role": moved.role[at]})


def _rate(every: pd.DataFrame, ranks: tuple[int, ...], role_of: pd.Series[str]) -> Rate:
    what, group = every["what"].iloc[0], every["group"].iloc[0]
    listed = group.partition("[")[2].rstrip("]").split(",")  # `0 [0, 1, 2]`
    size = max(sum(bool(rank.strip()) for rank in listed), int(every["rank"].max()))
    data, took = median(every["bytes"]), max(median(every["transfer_ns"]), 1.0)
    exposed, moving = (sum(every[name].tolist()) for name in ("exposed_ns", "moving_ns"))
    times = (round(took), round(exposed), 1 - exposed / moving if moving > 0 else None, int(every["waiting_ns"].sum()))
    rate = data / took, data / took * bus_factor(what, size)
    return Rate(what, group, ranks, role_of.get(group), size, round(data), len(every), *times, *rate)


def compared_rates(found: Sequence[Rate]) -> list[Rate]:
    """The same beside groups that do the same, with those marked that are far slower."""
    alike: dict[tuple[str, int, int], list[float]] = {}
    for one in found:
        alike.setdefault(_same(one), []).append(one.busbw)
    told = []
    for one in found:
        peers = alike[_same(one)]
        beside = median(peers) if len(peers) >= PEERS and min(peers) > 0 else None
        told.append(replace(one, beside=beside, slow=beside is not None and one.busbw < _SLOW * beside))
    return told


def _same(one: Rate) -> tuple[str, int, int]:
    return one.collective, one.size, one.bytes.bit_length()
