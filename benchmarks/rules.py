"""What each index and each rule costs on a large trace: `python -m benchmarks.rules [--runs 3] [--megabytes 300]`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.files import large
from benchmarks.measure import cases, command_line, measure, table
from traceanalyzer.cli.loading import reuse_freed_memory
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.rule.registry import all_rules

_NAMES = ("orjson", "load, 1 process", "every index of diagnose", "every index, also of table, ops and memory")


def report(runs: int, megabytes: int) -> Iterator[str]:
    """Markdown: the indexes in sum, then one table for the indexes and one for the rules."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        path = large(name, megabytes)
        yield f"\n### Indexes and rules, {megabytes} MB {title}\n"
        results = measure(cases(_NAMES, path), runs)
        yield from table(results, "load, 1 process")
        yield ""
        load_s = results[1].median
        reuse_freed_memory()
        trace = load_file(path, jobs=1)
        slugs = {rule.slug for rule in all_rules()}
        times = [_times(trace) for _ in range(runs + 1)][1:]
        by_name = {name: [run.get(name, 0) / 1e9 for run in times] for name in times[0]}
        indexes = {kind: spent for kind, spent in by_name.items() if kind not in slugs}
        yield from _rows("index", indexes, load_s)
        yield ""
        yield from _rows("rule", {slug: by_name[slug] for slug in by_name if slug in slugs}, load_s)


def _times(trace: Trace) -> dict[str, int]:
    """Index or rule -> ns, each without what it asks for, and the replay of all fixes within the findings."""
    analysis = Analysis(trace)
    report_of([(None, analysis)])
    return analysis.times


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
