"""What the CPU was doing, as interval sets over the threads that launch work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceanalyzer import intervals
from traceanalyzer.indexes.calls import ALLOCATOR, DATA_LOADING, MODULE_LOADING, STEP_MARK, is_compilation
from traceanalyzer.indexes.launches import Launches
from traceanalyzer.indexes.nesting import Nesting
from traceanalyzer.indexes.overheads import Overheads
from traceanalyzer.indexes.syncs import Syncs
from traceanalyzer.schema import CALL_CATEGORIES
from traceanalyzer.trace import Trace, matching

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Activity:
    """Kind -> rows of `trace.cpu` and the interval set that they cover, ns.

    Kinds: data_loading, compilation, module_loading, allocator, synchronisation, dispatching (any op or call),
    profiler. Kinds overlap: an allocator call is inside an op. Threads that never launch anything (a loader's
    workers, pinning) are left out, since their work is not what the device waits for.
    """

    rows: Mapping[str, Rows]
    sets: Mapping[str, intervals.Set]
    launching: NDArray[np.bool_]

    @classmethod
    def build(cls, trace: Trace) -> Self:
        cpu, nesting = trace.cpu, trace.index(Nesting)
        launching = _launching_lanes(trace, nesting)
        on_lane = launching[nesting.lane] & (nesting.lane >= 0)
        call = cpu["category"].isin(CALL_CATEGORIES).to_numpy()
        overhead = (cpu["category"] == "overhead").to_numpy()
        syncs = trace.index(Syncs)
        chosen = {
            "data_loading": on_lane & matching(cpu, "name", lambda name: bool(DATA_LOADING.search(name))),
            "compilation": on_lane & ~call & matching(cpu, "name", is_compilation),
            "module_loading": ((on_lane & call) | overhead)
            & matching(cpu, "name", lambda name: bool(MODULE_LOADING.search(name))),
            "allocator": on_lane & call & matching(cpu, "name", lambda name: bool(ALLOCATOR.search(name))),
            "dispatching": on_lane & ((cpu["category"] == "cpu_op").to_numpy() | call),
        }
        rows = {kind: np.flatnonzero(mask) for kind, mask in chosen.items()}
        rows["synchronisation"] = syncs.row[~syncs.profiler & on_lane[syncs.row]]
        sets = {kind: intervals.union(nesting.start_ns[of], nesting.end_ns[of]) for kind, of in rows.items()}
        overheads = trace.index(Overheads)
        rows["profiler"], sets["profiler"] = overheads.row[overheads.hit >= 0], overheads.stalls
        return cls(rows, sets, launching)


def _launching_lanes(trace: Trace, nesting: Nesting) -> NDArray[np.bool_]:
    """Threads that launch work or carry the step marks; bool of shape (lanes + 1,), the last for no thread."""
    lanes = np.zeros(int(nesting.lane.max(initial=-1)) + 2, bool)
    work = trace.index(Launches)
    lanes[nesting.lane[work.call[work.call >= 0]]] = True
    marks = matching(trace.cpu, "name", lambda name: bool(STEP_MARK.match(name))) & (nesting.lane >= 0)
    lanes[nesting.lane[marks]] = True
    lanes[-1] = False
    return lanes
