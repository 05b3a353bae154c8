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

    return lambda: load_file(path, **options).meta.events


def diagnose(path: str, jobs: int) -> Callable[[], int]:
    """Everything: frames, indexes, all rules."""
    from traceanalyzer import diagnose as run_rules
    from traceanalyzer.read.load import load_file

    return lambda: run_rules(load_file(path, jobs=jobs)).metas[0].events


def indexes(path: str) -> Callable[[], int]:
    """Every index of a trace that is loaded before the clock starts."""
    import importlib
    import pkgutil

    import traceanalyzer.indexes as home
    from traceanalyzer.errors import Unavailable
    from traceanalyzer.read.load import load_file

    trace = load_file(path)
    modules = [
        importlib.import_module(f"{home.__name__}.{found.name}")
        for found in pkgutil.iter_modules(home.__path__)
    ]
    members = [(module, member) for module in modules for member in vars(module).values()]
    kinds = [m for module, m in members if hasattr(m, "build") and m.__module__ == module.__name__]

    def run() -> int:
        for kind in kinds:
            try:
                trace.index(kind)
            except Unavailable:
                continue
        return trace.meta.events

    return run


SUBJECTS: dict[str, Callable[[str], Callable[[], int]]] = {
    "orjson": lambda path: orjson_whole(path, collector=False),
    "orjson, collector on": lambda path: orjson_whole(path, collector=True),
    "json": json_whole,
    "load, 1 process": lambda path: load(path, jobs=1),
    "load, 2 processes": lambda path: load(path, jobs=2),
    "load, cached": lambda path: load(path, cache=True),
    "indexes": indexes,
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
    before, start = os.times(), time.perf_counter()
    events = run()
    seconds, after = time.perf_counter() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(json.dumps({"seconds": seconds, "cpu": cpu, "events": events}), flush=True)
    sys.stdin.readline()  # the memory is looked at before the process ends


if __name__ == "__main__":
    main()
