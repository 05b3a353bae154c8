"""Which replays of CUDA graphs end a step: every one, or one per cycle of graphs that follow in a fixed order."""

from __future__ import annotations

_REMEMBERED = 512  # replays: three cycles of models whose layers are graphs of their own
_AGREEING = 3  # replays in a row that show the same cycle before it counts


class Replays:
    """The order of graph replays of a program, and `graphs`, the ids of all graphs replayed so far.

    Attributes:
        cycle: graphs per step: 1 where each replay is a step; 0 while that is undecided.
    """

    def __init__(self) -> None:
        self.cycle = 0
        self.graphs: set[int] = set()
        self._order: list[int] = []
        self._anchor = 0
        self._candidate = self._agreed = 0

    def add(self, graph: int) -> int:
        """Add one replay; the cycle that the last replays show where it is not the current one, else 0."""
        self.graphs.add(graph)
        self._order.append(graph)
        del self._order[:-_REMEMBERED]
        cycle = self._last_cycle()
        self._agreed = self._agreed + 1 if cycle == self._candidate else 1
        self._candidate = cycle
        agrees = self._agreed >= min(_AGREEING, max(cycle, 1) + 1)
        return cycle if agrees and cycle != self.cycle else 0

    def adopt(self, cycle: int) -> None:
        """Steps have this many replays from now on."""
        self.cycle, self._anchor = cycle, self._order[-cycle]

    def ends_step(self, graph: int) -> bool:
        """Whether a replay of this graph ends a step."""
        return self.cycle == 1 or (self.cycle > 1 and graph == self._anchor)

    def _last_cycle(self) -> int:
        """Graphs between the last three replays of the newest graph; 1 where they differ, 0 if there are none."""
        order, last = self._order, len(self._order) - 1
        ends = [at for at in range(last - 1, -1, -1) if order[at] == order[last]][:2]
        if len(ends) < 2:
            return 0
        middle, first = ends
        same = order[first + 1 : middle + 1] == order[middle + 1 :]
        return last - middle if same else 1
