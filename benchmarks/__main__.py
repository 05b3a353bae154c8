"""`python -m benchmarks [--quick] [--runs 5]` runs the benchmarks and writes RESULTS.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import diagnose, load, rules, table
from benchmarks.measure import machine

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEAD = """# Measured

{machine}; medians of {runs} runs, taken in turns. Every run is a process of its own; imports are done before the
clock starts. Memory is the peak of the process tree above the interpreter with its imports, shared pages counted
once. Ratios are to `orjson.loads` of the whole file with the cyclic collector off, in the same turns: of the medians,
and in brackets of the least times, since memory comes at two speeds here. The files repeat a real trace with later
times and fresh ids (`benchmarks/make_large.py`).
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30 MB, one run, nothing written")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    quick = options.quick
    runs, megabytes = (1, 30) if quick else (options.runs, 300)
    lines = [_HEAD.format(machine=machine(), runs=runs), "\n## Reading"]
    for part in (
        load.report(runs, megabytes, huge=not quick),
        ["\n## Diagnosing"],
        diagnose.report(runs, megabytes, huge=not quick),
        rules.report(runs, megabytes),
        ["\n## The profiler's table"],
        table.report(runs, megabytes),
    ):
        for line in part:
            print(line, flush=True)
            lines.append(line)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
