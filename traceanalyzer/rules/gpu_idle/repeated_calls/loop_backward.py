"""What backward does for each repeat of a loop."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.replay.segments import rank_within
from traceanalyzer.rule.recorders import recorded_nodes
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats
from traceanalyzer.timeline.calls_and_work import Calls

_AUTOGRAD = r"^autograd::engine"
ADDS_UP = re.compile(r"AccumulateGrad$")  # of a parameter: recorded by no op
_MOST = 0.75  # of a loop's nodes are recorded by one other loop; chosen


@dataclass(frozen=True, slots=True, eq=False)
class LoopNodes:
    """Nodes of backward that the repeats of a loop recorded, in time.

    Attributes:
        nodes: their outermost ops.
        repeat: int64 (nodes,), position of the repeat in the loop.
        place: int64 (nodes,), equal for nodes that do the same for other repeats.
    """

    nodes: Calls
    repeat: Rows
    place: Rows

    def none(self) -> LoopNodes:
        """Where another finding tells of them."""
        return LoopNodes(self.nodes[:0], self.repeat[:0], self.place[:0])


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Nodes of backward by when the ops began that recorded them.

    Attributes:
        nodes: outermost ops of the nodes.
        begin_ns: int64 (nodes,), in order.
        engine_ns: int64, when any node begins, in order.
    """

    nodes: Calls
    begin_ns: Rows
    engine_ns: Rows

    @classmethod
    def of(cls, calls: Calls, outer: Calls) -> Recorded:
        """Of the outermost ops of all steps."""
        forward, engine = outer[~outer.name.matches(_AUTOGRAD)], outer[outer.name.matches(_AUTOGRAD)]
        nodes, recorder = recorded_nodes(calls, forward)
        known = recorder >= 0
        nodes, begin = nodes[known].outer_op, forward.start_ns[recorder[known]]
        _, first = np.unique(nodes.rows, return_index=True)
        first = first[nodes.rows[first] >= 0]
        first = first[np.lexsort((nodes.start_ns[first], begin[first]))]
        engine = engine[~engine.name.meets(ADDS_UP.search)]
        return cls(nodes[first], begin[first], np.sort(engine.start_ns))

    def of_loop(self, loop: Repeats) -> LoopNodes:
        """What its repeats recorded."""
        starts = loop.at.start_ns
        low, high = np.searchsorted(self.begin_ns, [starts[0], loop.ends_ns[-1]])
        nodes, begin = self.nodes[low:high], self.begin_ns[low:high]
        order = np.argsort(nodes.start_ns, kind="stable")
        nodes, repeat = nodes[order], np.searchsorted(starts, begin[order], side="right") - 1
        each, _ = grouped([repeat, nodes.name.code])
        place, _ = grouped([rank_within(each), nodes.name.code])
        return LoopNodes(nodes, repeat, place)

    def runs_between(self, loop: Repeats) -> bool:
        """Whether backward runs between the repeats: it needs the one before."""
        low, high = np.searchsorted(self.engine_ns, loop.at.start_ns[[0, -1]])
        return bool(low < high)

    def is_backward_of(self, loop: Repeats, others: list[LoopNodes]) -> bool:
        """Whether nearly all that a loop of nodes does was recorded by one of the other loops."""
        return self.forward_of(loop, others) >= 0

    def forward_of(self, loop: Repeats, others: list[LoopNodes]) -> int:
        """Which of the other loops recorded nearly all that a loop of nodes does; -1 where none did."""
        low, high = np.searchsorted(self.engine_ns, [loop.at.start_ns[0], loop.ends_ns[-1]])
        begin, end = loop.at.start_ns[0], loop.ends_ns[-1]
        own = [int(((one.nodes.start_ns >= begin) & (one.nodes.start_ns < end)).sum()) for one in others]
        return int(np.argmax(own)) if max(own, default=0) >= _MOST * max(high - low, 1) else -1
