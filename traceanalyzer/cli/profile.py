"""How long a command took, and each part of it: what --profile says on standard error."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceanalyzer.job.ranks import Ranks
    from traceanalyzer.model.analysis import Analysis

_STARTED_NS = perf_counter_ns() - process_time_ns()  # when the interpreter began, as near as can be told
_MOST_LINES = 25  # of indexes and rules


def print_times(ranks: Ranks, read_from_ns: int, read_to_ns: int) -> None:
    """The whole command until now, its parts outside of rules, and the slowest indexes and rules of all ranks.

    Each is without what it asked for; several run at a time where there are several cores.
    """
    from traceanalyzer.model.units import format_ns

    sums: Counter[str] = Counter()
    for times in ranks.each(_times, dict.fromkeys(ranks.all)).values():
        sums.update(times)
    around = {"start-up": read_from_ns - _STARTED_NS, "reading": read_to_ns - read_from_ns}
    total = ("in total", perf_counter_ns() - _STARTED_NS)
    for name, ns in [total, *around.items(), *sums.most_common(_MOST_LINES)]:
        print(f"{format_ns(ns):>10}  {name}", file=sys.stderr)


def _times(analysis: Analysis, _: None, __: None) -> Mapping[str, int]:
    return analysis.times
