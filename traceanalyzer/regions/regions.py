"""What each region of a typical step costs: CPU time, GPU work and its FLOPs, idle time of the GPU, launches, waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, grouped, numbered, pick
from traceanalyzer.model.containment import depths, inherited
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import matching
from traceanalyzer.regions.tree import KERNEL, MIN_REPEATS, Nodes, Pieces, Tree, subtree_totals
from traceanalyzer.replay.cpu_timeline import CpuTimeline, program_threads
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import Ints, Kind, as_ints
from traceanalyzer.replay.sample import Sample
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.replay.schedule import Schedules
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_rates import call_flops, call_times
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.timeline.device_work import KINDS, Busy, DeviceWork
from traceanalyzer.timeline.loops import nested_loops
from traceanalyzer.timeline.nesting import CalledOps
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.synchronisation import SyncCalls


def with_graph_kernels(
    tree: Tree, events: Events, work: DeviceWork, entries: Rows, launched: Rows
) -> tuple[Tree, Rows]:
    """(the tree with nodes for the kernels of graphs, the node of each entry).

    The kernels of a stream in a replay are searched for repeated blocks, such as the layers of a model. Blocks and
    kernels have no CPU time: the call that replays the graph has it.

    Args:
        entries: int64 (work,), entries of `work` in the tree's steps.
        launched: int64 (work,), the node that launched each.
    """
    order = np.lexsort((work.start_ns[entries], work.device[entries], work.call[entries]))
    order = order[work.shared[entries[order]]]
    if len(order) == 0:
        return tree, launched
    chosen = entries[order]
    group, _ = grouped([work.call[chosen], work.device[chosen]])
    texts = Texts.column(events.trace.lanes.gpu, "name", work.row[chosen])
    short = np.array([short_kernel(str(name)) for name in texts.names], object)
    words, word = np.unique(short.astype(str), return_inverse=True)
    name, used = numbered(word[texts.code])
    names = words[used].tolist()
    loops = nested_loops(name, group, MIN_REPEATS)
    nodes = Nodes(tree.parent.tolist(), tree.kind, tree.name)
    loop_node = np.full(len(loops.parent), -1, np.int64)
    calls = []
    for loop, (outer, starts, body) in enumerate(zip(loops.parent.tolist(), loops.starts, loops.body, strict=True)):
        base = launched[order[starts[0]]] if outer < 0 else loop_node[outer]
        block = ", ".join(dict.fromkeys(names[kernel] for kernel in body.tolist()))
        loop_node[loop] = nodes.child(int(base), "block", block)
        calls.append(np.full(len(starts), loop_node[loop]))
    parent = np.where(loops.owner >= 0, pick(loop_node, loops.owner), launched[order])
    node = launched.copy()
    node[order] = nodes.children(parent, np.full(len(order), KERNEL), name, names)
    parents = np.array(nodes.parent, np.int64)
    added = np.bincount(np.concatenate((*calls, node[order])), minlength=len(parents))
    added[: len(tree.calls)] += tree.calls
    kinds, texts_of_nodes = tuple(nodes.kind), tuple(nodes.name)
    return Tree(parents, depths(parents), kinds, texts_of_nodes, added, tree.pieces, tree.blocks), node


KERNEL_FLOOR_NS = 2_000.0  # of a nearly empty kernel, which one launch for many saves of each: 1.1 to 2 us, H200


@dataclass(frozen=True, slots=True, eq=False)
class DropRegion:
    """Stretches of CPU time [starts, ends) go, with what they launch; of a gap that they cut, their share of it.

    Attributes:
        floor_ns: the work that they launch stays, each piece shorter by this, and is launched after them; where it
            is 0, each piece has a launch of its own.
        stall: what comes after them may have run cold, since the CPU worked on something else in them.
        least_part, most_part: of the saving, that a fix has which keeps some of it, or takes more around it.
    """

    kind: ClassVar[Kind] = "drop"
    starts_ns: Ints
    ends_ns: Ints
    floor_ns: float = np.inf
    stall: bool = False
    least_part: float = 1.0
    most_part: float = 1.0

    def apply(self, edited: EditedProgram) -> None:
        spans = intervals.union(as_ints(self.starts_ns), as_ints(self.ends_ns))
        timeline, segments = edited.program.timeline, edited.program.segments
        inside = intervals.covered(spans, timeline.start_ns, timeline.end_ns)
        whole = timeline.end_ns - timeline.start_ns
        cut = segments.gap & (inside > 0) & (inside < whole)
        edited.cpu_ns[cut] *= (1 - inside / np.maximum(whole, 1))[cut]
        dropped = (inside == whole) & (whole > 0)
        if self.floor_ns == 0:
            dropped[edited.launch[edited.alive]] = False
        stays = np.flatnonzero(edited.alive & dropped[edited.launch] & (edited.dur_ns > self.floor_ns))
        edited.drop(dropped, stall=self.stall)
        edited.alive[stays] = True
        edited.dur_ns[stays] -= self.floor_ns
        edited.gap_ns[stays] = 0.0
        after = np.where(dropped, len(dropped) - 1, np.arange(len(dropped)))
        after = np.minimum.accumulate(after[::-1])[::-1]
        edited.launch[stays] = after[edited.launch[stays]]


_TO_HOST, _TO_DEVICE = (1 << KINDS.index(kind) for kind in ("copy_d2h", "copy_h2d"))


@dataclass(frozen=True)
class Regions:
    """The tree with costs; arrays of shape (nodes,), of all replayed steps, without what is below each node.

    Attributes:
        tree: nodes, and the CPU's timeline.
        steps: how many steps the costs are of.
        step_ns: predicted time of one without the profiler, 1 at least; recorded where nothing could be replayed.
        cpu_ns: int64, recorded CPU time, waiting included.
        predicted_ns: float64, CPU time without the profiler and without waiting; recorded where it is not replayed.
        gpu_ns: float64, time of the GPU work that it launched; what runs together is divided equally.
        idle_ns: float64, time in which a GPU was idle while the CPU was there; mean of the devices.
        bound_ns: float64, least time of this GPU work by the op's shapes; its own time where no model knows.
        launches, syncs: float64, calls that launched work, and that waited for it.
        launched_kinds: int64 (pieces,), bits of the kinds of work (`KINDS`) that each piece of the timeline launched.
        replayed: whether the step could be replayed; a trace without GPU work has recorded times alone.
    """

    tree: Tree
    steps: int
    step_ns: float
    cpu_ns: Rows
    predicted_ns: Floats
    gpu_ns: Floats
    idle_ns: Floats
    bound_ns: Floats
    launches: Floats
    syncs: Floats
    launched_kinds: Rows
    replayed: bool = True

    @cached_property
    def totals(self) -> dict[str, Floats]:
        """Cost -> per step, with all below each node; float64 (nodes,)."""
        return {
            name: subtree_totals(self.tree.parent, getattr(self, name)) / self.steps
            for name in ("cpu_ns", "predicted_ns", "gpu_ns", "idle_ns", "bound_ns", "launches", "syncs")
        }

    @property
    def share(self) -> Floats:
        """Predicted CPU time of each node and all below, as a share of the predicted step."""
        return self.totals["predicted_ns"] / self.step_ns

    def frame(self) -> pd.DataFrame:
        """One row per node, the parent before its children; costs per step.

        Columns: node, parent (Int64, null of the step), depth, kind, name, calls, share (of the predicted step), each
        cost with all below (cpu_ns, predicted_ns, gpu_ns, idle_ns, bound_ns, residual_ns, launches, syncs), and
        self_cpu_ns, self_predicted_ns without.
        """
        tree, count = self.tree, len(self.tree.parent)
        totals = self.totals | {"residual_ns": self.totals["gpu_ns"] - self.totals["bound_ns"]}
        costs = {
            name: np.rint(values).astype(np.int64) if name.endswith("_ns") else values
            for name, values in totals.items()
        }
        alone = {"self_cpu_ns": self.cpu_ns, "self_predicted_ns": self.predicted_ns}
        return pd.DataFrame(
            {
                "node": np.arange(count),
                "parent": pd.array([None, *tree.parent[1:].tolist()], "Int64"),
                "depth": tree.depth,
                "kind": list(tree.kind),
                "name": list(tree.name),
                "calls": tree.calls / self.steps,
                "share": self.share,
                **costs,
                **{name: np.rint(values / self.steps).astype(np.int64) for name, values in alone.items()},
            }
        )

    def by_name(self, kind: str) -> pd.DataFrame:
        """The regions of one kind ("module", "function", "phase") summed by name, the largest first.

        Each op counts for the innermost region around it, so that rows add up. Columns: name, calls, share (of the
        predicted step), predicted_ns, gpu_ns, idle_ns, launches, syncs, with_inner_ns (CPU time with regions inside);
        all per step. What is in no such region has an empty name.
        """
        rows = self.frame()
        chosen = (rows["kind"] == kind).to_numpy()
        owner = inherited(self.tree.parent, chosen | (self.tree.parent < 0))
        costs = ("predicted_ns", "gpu_ns", "idle_ns", "launches", "syncs")
        own = pd.DataFrame({name: getattr(self, name) / self.steps for name in costs}).groupby(owner).sum()
        names_of_owners = rows["name"].where(chosen, "").iloc[own.index].to_numpy()
        # Names of the chosen regions around each node: a region in one of the same name counts within that.
        around = [frozenset[str]()]
        for parent in self.tree.parent[1:].tolist():
            around.append(around[parent] | {self.tree.name[parent]} if chosen[parent] else around[parent])
        inside = np.array([name in names for name, names in zip(self.tree.name, around, strict=True)])
        whole = rows.loc[chosen & ~inside].groupby("name")["predicted_ns"].sum()
        table = own.groupby(names_of_owners).sum().rename_axis("name").reset_index()
        # A call that reaches from one phase into another has a node in each.
        working = rows.loc[chosen].groupby(["name", rows["launches"] > 0])["calls"].sum()
        calls = working.groupby("name").last()
        table.insert(1, "calls", table["name"].map(calls).fillna(0.0))
        table.insert(2, "share", table["predicted_ns"] / self.step_ns)
        table["with_inner_ns"] = table["name"].map(whole).fillna(table["predicted_ns"])
        table = table[(table["predicted_ns"] > 0) | (table["gpu_ns"] > 0)].copy()
        times = [name for name in table.columns if name.endswith("_ns")]
        table[times] = table[times].round().astype(np.int64)
        return table.sort_values(["gpu_ns", "predicted_ns"], ascending=False, ignore_index=True)

    def below(self, nodes: Sequence[int]) -> Mask:
        """Which nodes are, or are below, one of these; bool (nodes,)."""
        inside = np.zeros(len(self.tree.parent), bool)
        inside[list(nodes)] = True
        return inherited(self.tree.parent, inside) >= 0

    def without(self, nodes: Mask, *, on_host: bool = False) -> DropRegion:
        """The edit that removes CPU time and launches of these nodes; if `on_host`, copies around them, too."""
        inside = nodes[self.tree.pieces.node]
        return self._drop(inside | self._copies_around(inside), stall=True) if on_host else self._drop(inside)

    def _copies_around(self, inside: Mask) -> Mask:
        """Pieces between the region and the nearest launch of something else than its copies; bool (pieces,)."""
        place = np.arange(len(inside))
        chosen = np.zeros(len(inside), bool)
        for kind, turned in ((_TO_HOST, slice(None)), (_TO_DEVICE, slice(None, None, -1))):
            # Going on from each piece, what comes first: the region, or a launch of something else.
            launches = (self.launched_kinds & ~kind)[turned] > 0
            region = inside[turned]
            ahead = np.where(region | launches, place, len(place))[::-1]
            nearest = np.minimum.accumulate(ahead)[::-1]
            reached = np.append(region, False)[nearest]
            chosen |= (reached & ((self.launched_kinds & kind)[turned] > 0))[turned]
        return chosen

    def as_one(self, nodes: Sequence[int], floor_ns: float = KERNEL_FLOOR_NS) -> DropRegion:
        """The edit that leaves one repeat in each place of repeated blocks: it does the work of all."""
        pieces = self.tree.pieces
        places = [(block.starts_ns[1], block.end_ns) for block in self.tree.blocks if block.node in nodes]
        spans = intervals.union(*np.array(places, np.int64).reshape(-1, 2).T)
        later = intervals.covered(spans, pieces.origin_ns, pieces.origin_ns + 1) > 0
        return self._drop(self.below(nodes)[pieces.node] & later, floor_ns)

    def _drop(self, chosen: Mask, floor_ns: float = np.inf, *, stall: bool = False) -> DropRegion:
        spans = intervals.union(self.tree.pieces.start_ns[chosen], self.tree.pieces.end_ns[chosen])
        return DropRegion(*spans, floor_ns, stall)

    @classmethod
    def build(
        cls,
        events: Events,
        called: CalledOps,
        work: DeviceWork | None,
        syncs: SyncCalls,
        forecast: Forecast | None,
        inputs: WorkInputs | None,
        gpus: Gpus,
    ) -> Self:
        if work is None:
            return cls._recorded(events, called)
        if forecast is None or inputs is None:
            raise Unavailable("the step could not be replayed")
        program, sample = forecast.program, forecast.program.sample
        tree = Tree.of(events, called, program.timeline, sample.begin_ns, sample.end_ns)
        pieces = tree.pieces

        def by_node(node: Rows, values: Rows | Floats) -> Floats:
            return np.bincount(node, values, count).astype(np.float64)

        schedules = Schedules(EditedProgram(program))
        predicted = schedules.unprofiled_cpu(forecast.replays.slowdown.typical)
        whole = program.timeline.end_ns - program.timeline.start_ns
        rate = predicted / np.maximum(whole, 1)
        devices = Busy.build(work).devices
        busy = sum(intervals.covered(ran, pieces.start_ns, pieces.end_ns) for ran in devices.values())
        idle = np.asarray(pieces.dur_ns - busy / max(len(devices), 1))  # mean of the devices
        entries = program.work.entry
        launched = pieces.node[pieces.at(work.call_start_ns[entries])]
        tree, kernels = with_graph_kernels(tree, events, work, entries, launched)
        count = len(tree.parent)
        gpu = _divided_ns(work, entries)
        bound = gpu * _bound_shares(events, work, entries, inputs, gpus)
        _, first = np.unique(work.call[entries], return_index=True)
        waits = syncs.start_ns[~syncs.profiler]
        waits = waits[program.timeline.step[program.timeline.at(waits)] >= 0] if len(waits) else waits
        waits = waits[(waits >= pieces.start_ns[0]) & (waits < pieces.end_ns[-1])]
        waits = waits[pieces.end_ns[pieces.at(waits)] > waits]
        return cls(
            tree,
            len(sample) * sample.part,  # type: ignore[arg-type]
            max(float(forecast.step.unprofiled_ns), 1.0),
            by_node(pieces.node, pieces.dur_ns).astype(np.int64),
            by_node(pieces.node, pieces.dur_ns * rate[pieces.segment]),
            by_node(kernels, gpu),
            by_node(pieces.node, idle),
            by_node(kernels, bound),
            by_node(launched[first], np.ones(len(first))),
            by_node(pieces.node[pieces.at(waits)], np.ones(len(waits))),
            _launched_kinds(work, entries, pieces),
        )

    @classmethod
    def _recorded(cls, events: Events, called: CalledOps) -> Self:
        nesting, cpu = events.nesting, events.trace.lanes.cpu
        is_op = matching(cpu, "category", "cpu_op".__eq__)
        ops = np.flatnonzero(is_op & (nesting.thread >= 0))
        if len(ops) == 0:
            raise Unavailable("no ops in the trace")
        sample = Sample.of(events.steps, nesting)
        begins, ends = sample.begin_ns, sample.end_ns
        threads = program_threads(nesting, events.steps, is_op, ops, int(begins[0]), int(ends[-1]))
        tree = Tree.of(events, called, CpuTimeline.of(nesting, threads, begins, ends), begins, ends)
        node, count = tree.pieces.node, len(tree.parent)
        recorded, none = np.bincount(node, tree.pieces.dur_ns, count), np.zeros(count)
        steps, kinds = len(sample) * sample.part, np.zeros(len(node), np.int64)
        costs = (recorded.astype(np.int64), recorded, none, none, none, none, none)
        return cls(tree, steps, max(float(recorded.sum()) / steps, 1.0), *costs, kinds, replayed=False)  # type: ignore[arg-type]


def _launched_kinds(work: DeviceWork, entries: Rows, pieces: Pieces) -> Rows:
    """Bits of the kinds of work that each piece launched; all pieces of an op have those of the op."""
    item, _ = numbered(pieces.item)
    bits = np.zeros(int(item.max(initial=0)) + 1, np.int64)
    np.bitwise_or.at(bits, item[pieces.at(work.call_start_ns[entries])], 1 << work.kind[entries].astype(np.int64))
    return np.where(pieces.item >= 0, bits[item], 0)


def _divided_ns(work: DeviceWork, entries: Rows) -> Floats:
    """Time of each piece of work, divided equally where several run on one device; float64."""
    shared = np.zeros(len(entries))
    for device in distinct(work.device[entries]).tolist():
        chosen = np.flatnonzero(work.device[entries] == device)
        every = np.flatnonzero(work.device == device)
        start, end = work.start_ns[every], work.end_ns[every]
        edges = distinct(np.concatenate((start, end)))
        running = np.zeros(len(edges), np.int64)
        np.add.at(running, np.searchsorted(edges, start), 1)
        np.add.at(running, np.searchsorted(edges, end), -1)
        parts = np.diff(edges) / np.maximum(np.cumsum(running)[:-1], 1)
        before = np.concatenate(([0.0], np.cumsum(parts)))
        at = entries[chosen]
        first, last = (np.searchsorted(edges, column[at]) for column in (work.start_ns, work.end_ns))
        shared[chosen] = before[last] - before[first]
    return shared


def _bound_shares(events: Events, work: DeviceWork, entries: Rows, inputs: WorkInputs, gpus: Gpus) -> Floats:
    """Least time of each op's work as a share of the time that it takes; 1 where no model knows."""
    share = np.ones(len(entries))
    peaks = gpus[int(work.device[entries[0]])].peaks if len(entries) else None
    if peaks is None or not any(op.dims for op in inputs.signatures):
        return share
    names = Texts.column(events.trace.lanes.gpu, "name", work.row[entries])
    number = inputs.number[entries]
    _, least = call_times(number, names, inputs.signatures, peaks, inputs.recorded)
    _, first = np.unique(work.op[entries], return_index=True)
    calls = np.bincount(number[first], minlength=len(least))
    took = np.bincount(number, work.end_ns[entries] - work.start_ns[entries], len(least))
    of_op = np.where(least > 0, np.minimum(least * calls / np.maximum(took, 1), 1.0), 1.0)
    return np.asarray(of_op[number])


@dataclass(frozen=True, slots=True)
class RegionRates:
    """Operations of ops whose shapes and cost are known, each time that they run; per step, with all below each node.

    Attributes:
        flops: float64 (nodes,).
        tflops: float64 (nodes,), rate in TFLOP/s while the region's work is on the GPU.
        peak_share: float64 (nodes,), of its GPU time, what these operations take at the peak of their arithmetic.
        mfu: the same as a share of the predicted step, on all devices.
        device: whose peaks; None where they are not known, and shares are 0.
        peaks: peak in TFLOP/s by kind of arithmetic that occurs, that of most operations first.
    """

    flops: Floats
    tflops: Floats
    peak_share: Floats
    mfu: float
    device: str | None
    peaks: Mapping[str, float]

    @property
    def text(self) -> str:
        """`MFU 31.2 % of 989 TFLOP/s bf16 (NVIDIA H200)`."""
        peaks = ", ".join(f"{rate:g} TFLOP/s {kind}" for kind, rate in self.peaks.items())
        return f"MFU {100 * self.mfu:.1f} % of {peaks} ({self.device})" if peaks else "MFU not known: no peaks"

    @classmethod
    def build(
        cls, regions: Regions, events: Events, work: DeviceWork, forecast: Forecast, inputs: WorkInputs, gpus: Gpus
    ) -> Self:
        entries, pieces = forecast.program.work.entry, regions.tree.pieces
        names = Texts.column(events.trace.lanes.gpu, "name", work.row[entries])
        peaks = gpus[int(work.device[entries[0]])].peaks if len(entries) else None
        number = inputs.number[entries]
        flops, peak_ns, kinds = call_flops(number, names, inputs.signatures, peaks, inputs.recorded)
        # Each call counts once, however many kernels it launches.
        _, first = np.unique(work.op[entries], return_index=True)
        calls, number = entries[first], number[first]
        if not flops[number].any():
            raise Unavailable("no shapes of ops whose operations are known", "record with record_shapes=True")
        node, parent = pieces.node[pieces.at(work.call_start_ns[calls])], regions.tree.parent
        of_node = (np.bincount(node, each[number], len(parent)).astype(np.float64) for each in (flops, peak_ns))
        done, at_peak = (subtree_totals(parent, each) / regions.steps for each in of_node)
        gpu_ns, devices = np.maximum(regions.totals["gpu_ns"], 1.0), len(distinct(work.device[entries]))
        by_kind: dict[str, float] = {}
        for which in number.tolist():
            by_kind[kinds[which]] = by_kind.get(kinds[which], 0.0) + float(flops[which])
        used = sorted((kind for kind in by_kind if peaks and kind in peaks.tflops), key=lambda k: -by_kind[k])
        rates = {kind: peaks.tflops[kind] for kind in used} if peaks else {}
        mfu = float(at_peak[0]) / max(regions.step_ns * devices, 1.0)
        return cls(done, done / gpu_ns / 1e3, at_peak / gpu_ns, mfu, peaks.name if peaks else None, rates)
