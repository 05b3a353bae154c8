"""The profiler's table and the ops, of a loaded trace: `python -m benchmarks.table [--runs 3] [--megabytes 300]`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.files import large
from benchmarks.measure import cases, command_line, measure, table

_NAMES = ("orjson", "load, 1 process", "table", "table by shape", "table by stack", "ops")


def report(runs: int, megabytes: int) -> Iterator[str]:
    """Markdown, section by section."""
    for name, title in (("plain", "without stacks"), ("stacks", "with stacks")):
        yield f"\n### Table and ops, {megabytes} MB {title}\n"
        yield from table(measure(cases(_NAMES, large(name, megabytes)), runs), "load, 1 process")


def main() -> None:
    """The command line."""
    command_line(__doc__, report)


if __name__ == "__main__":
    main()
