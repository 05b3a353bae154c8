"""What each index and each rule costs on a large trace: `python -m benchmarks.rules [--runs 3] [--megabytes 300]`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.files import large
from benchmarks.measure import cases, command_line, measure, table
from traceanalyzer import diagnose
from traceanalyzer.cli.heap import keep_freed_memory
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.rule.registry import all_rules

_NAMES = (
    "orjson",
    "load, 1 process",
    "every index of diagnose",
    "every index, also of table, ops and memory",
)


class TimedTrace(Trace):
    """A trace that notes how long each index takes, apart from the indexes that it asks for itself."""

    def index(self, kind: type[Any]) -> Any:
        """As Trace.index."""
        if kind in self._made:
            return super().index(kind)
        spent: dict[str, float] = self._made.setdefault("seconds", {})
        before, start = sum(spent.values()), time.perf_counter()
        try:
            return super().index(kind)
        finally:
            within = sum(spent.values()) - before
            spent[kind.__name__] = time.perf_counter() - start - within


def report(runs: int, megabytes: int) -> Iterator[str]:
    """Markdown: the indexes in sum, then one table for the indexes and one for the rules."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        path = large(name, megabytes)
        yield f"\n### Indexes and rules, {megabytes} MB {title}\n"
        results = measure(cases(_NAMES, path), runs)
        yield from table(results, "load, 1 process")
        yield ""
        load_s = results[1].median
        keep_freed_memory()
        trace = load_file(path, jobs=1)
        indexes = [_indexes(trace) for _ in range(runs)]
        by_name = {name: [run.get(name, 0.0) for run in indexes] for name in indexes[0]}
        yield from _rows("index", by_name, load_s)
        yield ""
        rules = {
            rule.slug: [_seconds(_rule(trace, rule.slug)) for _ in range(runs + 1)][1:]
            for rule in all_rules()
        }
        yield from _rows("rule, its indexes built", rules, load_s)


def _indexes(trace: Trace) -> dict[str, float]:
    """Seconds of every index that the rules need, each without those below it."""
    fresh = TimedTrace(
        trace.cpu, trace.gpu, trace.meta, _lazy={n: lambda n=n: getattr(trace, n) for n in trace.FRAMES}
    )
    for rule in all_rules():
        try:
            diagnose(fresh, select=[rule.slug])
        except Unavailable:
            continue
    spent: dict[str, float] = fresh._made.get("seconds", {})
    return spent


def _rule(trace: Trace, slug: str) -> Callable[[], object]:
    return lambda: diagnose(trace, select=[slug])


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _rows(what: str, seconds: dict[str, list[float]], load_s: float) -> Iterator[str]:
    yield f"| {what} | median | share of the load |"
    yield "|---|--:|--:|"
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in sorted(medians.items(), key=lambda item: -item[1]):
        yield f"| {name} | {median * 1000:,.0f} ms | {median / load_s:.1%} |"
    yield f"| all | {sum(medians.values()) * 1000:,.0f} ms | {sum(medians.values()) / load_s:.1%} |"


def main() -> None:
    """The command line."""
    command_line(__doc__, report)


if __name__ == "__main__":
    main()
