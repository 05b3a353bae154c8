"""Reading: `python -m benchmarks.load [--runs 5] [--megabytes 300] [--huge]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.files import gzipped, large
from benchmarks.measure import machine, measure, table

_WHOLE = ("orjson", "orjson, collector on", "json")
_LOADS = ("load, 1 process", "load, 2 processes")
_HUGE_MB = 1500


def report(runs: int, megabytes: int, *, huge: bool) -> Iterator[str]:
    """Markdown, section by section."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        path = large(name, megabytes)
        yield from _section(f"{megabytes} MB {title}", path, (*_WHOLE, *_LOADS), runs)
        packed = gzipped(path)
        yield from _section(f"The same as .json.gz ({title})", packed, _LOADS, runs, size=path.stat().st_size)
        minified = large(name, megabytes, "minified")
        yield from _section(f"{megabytes} MB {title}, minified", minified, ("orjson", *_LOADS), runs)
        if huge:
            path = large(name, _HUGE_MB)
            yield from _section(f"{_HUGE_MB} MB {title}", path, ("orjson", *_LOADS), max(runs - 2, 1))


def _section(
    title: str, path: Path, names: tuple[str, ...], runs: int, size: int | None = None
) -> Iterator[str]:
    results = measure(names, path, runs)
    size = size or path.stat().st_size
    events = next(iter(results.values())).events
    yield f"\n### {title}\n\n{size / 1e6:,.0f} MB of JSON, {events:,} events.\n"
    yield from table(results, size)


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
