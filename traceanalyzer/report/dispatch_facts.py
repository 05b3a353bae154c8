"""How ops get from the user's call to a kernel: chains, what resolves to what, and how kernels are launched."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import pick, sums_of
from traceanalyzer.model.short_names import short_op
from traceanalyzer.model.trace import matching
from traceanalyzer.model.units import format_ns
from traceanalyzer.report.fact import Fact, Facts, ids_of
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.names import BUFFER_OVERHEAD
from traceanalyzer.timeline.synchronisation import SyncCalls

_CHAINS = 3  # top ops whose way to the device is told
_OCCUPANCY = re.compile(r"Occupancy(MaxActive|MaxPotential)|OccupancyMaxActiveBlocks")
_ADDS = r"^aten::(addmm|baddbmm|addbmm|addmv)$"


def dispatch_chains(analysis: Analysis) -> Facts:
    """Step > annotation > op > ... > runtime call > kernel: of each top op's costliest kernel a usual execution."""
    work = analysis.index(Work)
    linked = work[work.launch.there & work.outer_op.there]
    for op, found in list(linked.by(linked.outer_op.name))[:_CHAINS]:
        _, costliest = next(found.by(found.name))
        order = np.argsort(costliest.dur_ns, kind="stable")
        one = costliest[order[[len(order) // 2]]]
        chain = _ancestors(one.launch)
        parts = [
            f"{name} {format_ns(total)} ({format_ns(own)} self)"
            for name, total, own in zip(
                chain.name.values(), chain.dur_ns.tolist(), chain.self_ns.tolist(), strict=True
            )
        ]
        parts.append(f"{short_op(str(one.name[0]))} {format_ns(one.total_ns)} on the GPU")
        values = {
            "op": op,
            "calls": len(np.unique(found.outer_op.rows)),
            "gpu_ns": found.total_ns,
            "kernel_ns": one.total_ns,
            "depth": len(chain),
        }
        yield Fact("dispatch-chain", " > ".join(parts), values, ids_of(chain, one))


def _ancestors(call: Calls) -> Calls:
    """A call's ancestors and itself, the outermost first."""
    rows = [int(call.rows[0])]
    parent = call.events.nesting.parent
    while parent[rows[-1]] >= 0:
        rows.append(int(parent[rows[-1]]))
    return Calls(call.events, np.array(rows[::-1], np.int64))


def matmul_resolved(analysis: Analysis) -> Facts:
    """Which products aten::matmul and aten::linear became: mm for two matrices, bmm for batches, addmm with a bias."""
    calls = analysis.index(Calls)
    asked = calls[calls.name.one_of("aten::matmul", "aten::linear", "aten::einsum")]
    products = calls[calls.name.one_of("aten::mm", "aten::bmm", "aten::addmm", "aten::mv", "aten::dot")]
    owner = products.index_of_enclosing(asked)
    inside = products[owner >= 0]
    outer = asked.name[owner[owner >= 0]]
    for name, found in inside.by(outer):
        became = found.name.sums(np.ones(len(found), np.int64))
        words = ", ".join(f"{op} ({count:,} times)" for op, count in became.items())
        first = np.array([0])
        yield Fact("matmul-resolved", f"{name} becomes {words}", {"op": name, **became}, ids_of(found[first]))


def addmm_launches(analysis: Analysis) -> Facts:
    """addmm is one op for the dispatcher; whether it is one kernel, too, depends on its bias."""
    calls = analysis.index(Calls)
    adds = calls[calls.name.matches(_ADDS)]
    launched, owner = adds.launched()
    if len(launched) == 0:
        return
    copies = launched.kind.one_of("copy_d2d")
    kernels = launched.kind.one_of("compute")
    copied = sums_of(owner, copies.astype(np.int64), len(adds)) > 0
    for name, of_name in adds.by(adds.name):
        own = np.isin(adds.rows, of_name.rows)
        count, seeded = int(np.isin(np.flatnonzero(own), owner).sum()), int((copied & own).sum())
        if count == 0:
            continue
        each = int((kernels & own[owner]).sum()) / count
        words = (
            f"is fused at the dispatcher only: {seeded:,} of {count:,} copy the bias before the product"
            if seeded
            else f"is fused in the kernel, too: the bias is added in its epilogue, {each:.1f} kernels a call"
        )
        values = {"op": name, "calls": count, "copies": seeded, "kernels_per_call": float(each)}
        yield Fact("addmm-fusion", f"{name} {words}", values, ids_of(of_name[np.array([0])]))


def adaptive_launches(analysis: Analysis) -> Facts:
    """Launches that ask for the occupancy first choose their grid at run time; the others have a fixed one."""
    calls = analysis.index(Calls)
    runtime = calls[calls.is_call]
    runtime = runtime[np.lexsort((runtime.start_ns, runtime.thread))]
    launches = np.flatnonzero(runtime.name.matches(r"Launch(Cooperative)?Kernel"))
    if len(launches) == 0:
        return
    asks = runtime.name.matches(_OCCUPANCY)
    before = np.maximum(launches - 1, 0)
    same = pick(runtime.parent.rows, launches) == pick(runtime.parent.rows, before)
    adaptive = asks[before] & same & (launches > 0)
    asking = runtime[launches[adaptive]]
    ops = asking.outer_op.name.sums(np.ones(len(asking), np.int64))
    words = f"; most by {', '.join(list(ops)[:3])}" if ops else ""
    text = (
        f"{len(asking):,} of {len(launches):,} kernel launches query the occupancy first and adapt their grid"
    )
    values = {"launches": len(launches), "adaptive": len(asking)}
    yield Fact("adaptive-launches", text + words, values, ids_of(asking[np.arange(min(len(asking), 1))]))


def profilers_own(analysis: Analysis) -> Facts:
    """Buffers that the profiler asked for, and its synchronisation at the end: none of it is in the program."""
    calls, syncs = analysis.index(Calls), analysis.index(SyncCalls)
    trace = calls.events.trace
    every = Calls(calls.events, np.flatnonzero(matching(trace.lanes.cpu, "category", "overhead".__eq__)))
    buffers = every[every.name.matches(BUFFER_OVERHEAD)]
    if len(buffers):
        text = (
            f"the profiler requested buffers {len(buffers):,} times, {format_ns(buffers.total_ns)} in total"
        )
        values = {"count": len(buffers), "total_ns": buffers.total_ns}
        yield Fact("profiler-buffers", text, values, ids_of(buffers))
    final = Calls(calls.events, syncs.row[syncs.profiler])
    if len(final):
        last = final[np.array([len(final) - 1])]
        text = f"{last.name[0]} of {format_ns(last.total_ns)} at the end is the profiler's own"
        yield Fact("profiler-synchronisation", text, {"total_ns": last.total_ns}, ids_of(last))
