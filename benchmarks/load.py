"""Reading: `python -m benchmarks.load [--runs 5] [--megabytes 300] [--huge]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks.files import gzipped, large
from benchmarks.measure import Measured, cases, machine, measure, table

_WHOLE = ("orjson", "orjson, collector on", "json")
_LOADS = ("load, 1 process", "load, 2 processes")
_HUGE_MB = 1500


def report(runs: int, megabytes: int, *, huge: bool) -> Iterator[str]:
    """Markdown, section by section."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        path, minified = large(name, megabytes), large(name, megabytes, "minified")
        packed = cases(_LOADS, gzipped(path), ", .json.gz", path.stat().st_size)
        results = measure([*cases((*_WHOLE, *_LOADS), path), *packed], runs)
        yield from _shown(f"{megabytes} MB {title}", results, "load, 1 process")
        results = measure(cases(("orjson", *_LOADS), minified), runs)
        yield from _shown(f"{megabytes} MB {title}, minified", results)
        if huge:
            larger = cases(("orjson", *_LOADS), large(name, _HUGE_MB))
            smaller = cases(_LOADS, path, f" of {megabytes} MB")
            results = measure([*larger, *smaller], max(runs - 2, 1))
            yield from _shown(f"{_HUGE_MB} MB {title}", results)
            yield ""
            for long, short in zip(results[-4:-2], results[-2:], strict=True):
                growth = (long.median / long.events) / (short.median / short.events)
                yield f"{long.case.name}: {growth:.2f} times the smaller file's time per event."


def _shown(title: str, results: list[Measured], *more: str) -> Iterator[str]:
    size, events = results[0].case.size, results[0].events
    yield f"\n### {title}\n\n{size / 1e6:,.0f} MB of JSON, {events:,} events.\n"
    yield from table(results, *more)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--huge", action="store_true", help=f"measure {_HUGE_MB} MB, too")
    options = parser.parse_args()
    print(f"{machine()}; medians of {options.runs} runs")
    for line in report(options.runs, options.megabytes, huge=options.huge):
        print(line, flush=True)


if __name__ == "__main__":
    main()
