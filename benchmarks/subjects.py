"""What is measured, each in a process of its own: `python -m benchmarks.subjects NAME PATH` prints "ready", and
one JSON line when it has been told to run by a line on standard input; it ends at the next line.

Heavy imports happen before the clock starts, so that the reading is measured and not the interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceanalyzer.model.analysis import Analysis


def orjson_whole(path: str, *, collector: bool) -> Callable[[], int]:
    """orjson.loads of the whole file."""
    import orjson

    def run() -> int:
        if not collector:
            gc.disable()
        return _events(orjson.loads(Path(path).read_bytes()))

    return run


def json_whole(path: str) -> Callable[[], int]:
    """json.load of the whole file, as most tools do."""

    def run() -> int:
        with open(path, encoding="utf-8") as file:
            return _events(json.load(file))

    return run


def load(path: str, **options: Any) -> Callable[[], int]:
    """Our reader, to the two frames."""
    import pandas  # noqa: F401 - imported before the clock starts

    from traceanalyzer.read.load import load_file

    def run() -> int:
        trace = load_file(path, **options)
        assert trace.cpu is not None  # the frames are made when asked for
        assert trace.gpu is not None
        return trace.meta.events

    return run


def diagnose(path: str, jobs: int) -> Callable[[], int]:
    """Everything: frames, indexes, all rules, in as many processes and threads as the command's --jobs says."""
    import pandas  # noqa: F401 - imported before the clock starts

    from traceanalyzer.cli.loading import reuse_freed_memory
    from traceanalyzer.read.load import load_file
    from traceanalyzer.report.diagnosis import analyses_of, report_of
    from traceanalyzer.rule.registry import all_rules

    reuse_freed_memory()  # as the command does
    all_rules()  # as the command does before it reads: their import is no part of the analysis

    def run() -> int:
        analysed = analyses_of(load_file(path, jobs=jobs))
        for _, analysis in analysed:
            analysis.threads = min(analysis.threads, jobs)
        return report_of(analysed).traces[0].meta.events

    return run


def indexes(path: str, *, all_of_them: bool) -> Callable[[], int]:
    """The indexes that diagnose asks for, or every one, of a trace that is loaded before the clock starts, with the
    frames that are made when first asked for."""
    from traceanalyzer.model.errors import Unavailable
    from traceanalyzer.model.trace import Trace
    from traceanalyzer.rule.registry import all_rules

    trace = _loaded(path)
    assert trace.python is not None
    assert trace.memory is not None
    needed = [need.kind for rule in all_rules() for need in rule.needs.values() if need.kind is not Trace]
    kinds = _every_index() if all_of_them else needed
    analysis = Analysis(trace)

    def run() -> int:
        for kind in kinds:
            try:
                analysis.index(kind)
            except Unavailable:
                continue
        return trace.meta.events

    return run


def _every_index() -> list[Any]:
    from tools.index_page import all_indexes

    return list(all_indexes())


def table(path: str, **options: Any) -> Callable[[], int]:
    """The profiler's table and its text, of a trace that is loaded before the clock starts."""
    from traceanalyzer.render.text.table import TableSize, render_table
    from traceanalyzer.torch_table.key_averages import key_averages
    from traceanalyzer.torch_table.printed import printed_table

    trace = _loaded(path)

    def run() -> int:
        render_table(printed_table(key_averages(trace, **options), "device_time_total"), TableSize())
        return trace.meta.events

    return run


def ops(path: str) -> Callable[[], int]:
    """The ops with their kernels and rates, of a trace that is loaded before the clock starts."""
    from traceanalyzer.roofline.op_rates import OpWork

    trace = _loaded(path)

    def run() -> int:
        Analysis(trace).index(OpWork)
        return trace.meta.events

    return run


def _loaded(path: str) -> Any:
    from traceanalyzer.cli.loading import reuse_freed_memory
    from traceanalyzer.read.load import load_file

    reuse_freed_memory()  # as the commands do
    return load_file(path)


SUBJECTS: dict[str, Callable[[str], Callable[[], int]]] = {
    "orjson": lambda path: orjson_whole(path, collector=False),
    "orjson, collector on": lambda path: orjson_whole(path, collector=True),
    "json": json_whole,
    "load, 1 process": lambda path: load(path, jobs=1),
    "load, 2 processes": lambda path: load(path, jobs=2),
    "load, cached": lambda path: load(path, cache=True),
    "every index of diagnose": lambda path: indexes(path, all_of_them=False),
    "every index, also of table, ops and memory": lambda path: indexes(path, all_of_them=True),
    "table": table,
    "table by shape": lambda path: table(path, by_input_shape=True),
    "table by stack": lambda path: table(path, by_stack=3),
    "ops": ops,
    "diagnose, 1 process": lambda path: diagnose(path, 1),
    "diagnose, 2 processes": lambda path: diagnose(path, 2),
}


def _events(content: Any) -> int:
    return len(content["traceEvents"] if isinstance(content, dict) else content)


def main() -> None:
    """Run one subject and print what the harness wants to know."""
    name, path = sys.argv[1:]
    run = SUBJECTS[name](path)
    print("ready", flush=True)
    sys.stdin.readline()
    start, before = time.perf_counter(), os.times()
    events = run()
    seconds, after = time.perf_counter() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])  # of this process and of those that it started
    print(json.dumps({"seconds": seconds, "cpu": cpu, "events": events}), flush=True)
    sys.stdin.readline()  # the memory is looked at before the process ends


if __name__ == "__main__":
    main()
