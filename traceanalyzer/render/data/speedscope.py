"""Traces -> a file of speedscope: GPU work, CPU time and idle time, each as a flame graph of its own."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.report.time_tree import Node, flame_of, flame_of_cpu, flame_of_idle
from traceanalyzer.version import __version__

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MOST_NODES = 20_000  # of a graph: speedscope draws that many at once without delay; chosen


def render_speedscope(traces: Mapping[int | None, Trace]) -> bytes:
    """One document; of several ranks each graph's name tells the rank."""
    numbers: dict[str, int] = {}
    profiles = []
    for rank, trace in traces.items():
        analysis = Analysis(trace)
        for graph in (flame_of, flame_of_cpu, flame_of_idle):
            with suppress(Unavailable):
                root = graph(analysis, _MOST_NODES)
                name = f"rank {rank}: {root.name}" if len(traces) > 1 else root.name
                profiles.append(profile_of(name, root, numbers))
    if not profiles:
        raise Unavailable("no GPU work, ops or calls to draw")
    document = {
        "$schema": _SCHEMA,
        "exporter": f"traceanalyzer {__version__}",
        "name": next(iter(traces.values())).meta.source,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in numbers]},
        "profiles": profiles,
    }
    return to_json(document)


def profile_of(name: str, root: Node, numbers: dict[str, int]) -> dict[str, Any]:
    """Every leaf is one sample with its time; `numbers`: name of a frame -> its place in the list of frames."""
    samples: list[list[int]] = []
    weights: list[int] = []
    pending: list[tuple[Node, list[int]]] = [(one, []) for one in reversed(root.inside)]
    while pending:
        node, above = pending.pop()
        stack = [*above, numbers.setdefault(node.name, len(numbers))]
        if not node.inside:
            samples.append(stack)
            weights.append(node.ns)
        pending += [(one, stack) for one in reversed(node.inside)]
    times = {"unit": "nanoseconds", "startValue": 0, "endValue": sum(weights)}
    return {"type": "sampled", "name": name, **times, "samples": samples, "weights": weights}
