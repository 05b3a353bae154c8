"""What torch.compile runs, as its marks name it: `Torch-Compiled Region: 0/18` is the nineteenth version of frame 0."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, starts_of_runs
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline import kernel_families as families

_REGION = re.compile(r"^Torch-Compiled Region: (?P<frame>\d+)/(?P<version>\d+)")
_LOOKUP = r"^TorchDynamo Cache Lookup"
_CALLED = r"^## Call CompiledFxGraph"
_SHORT = 3  # kernels: less than that is a break around one op, or what the wrapper copies


def regions_of(calls: Calls) -> Calls:
    """The compiled regions that the steps enter."""
    return calls[calls.name.matches(_REGION) & (calls.step >= 0)]


def newest_version(regions: Calls) -> tuple[int, int]:
    """(version, frame) of the region with most versions, counted from 1; zeros without regions."""
    return max(((version + 1, frame) for frame, version in _numbers(regions)), default=(0, 0))


def frames_of(regions: Calls) -> int:
    """How many frames the regions are of; each after the first of a model is a graph break."""
    return len({frame for frame, _ in _numbers(regions)})


def _numbers(regions: Calls) -> list[tuple[int, int]]:
    found = [_REGION.match(name) for name in regions.name.distinct()]
    return [(int(one["frame"]), int(one["version"])) for one in found if one]


def times_of(calls: Calls, regions: Calls) -> dict[str, int]:
    """Means per step that has a region, ns under the profiler, but for the last.

    cpu_ns: within regions; lookup_ns: looking up guards; wrapper_ns: in regions around the compiled code, 0 where that
    has no marks; gpu_ns and launches: the work that they launch.
    """
    outer = regions.outermost()
    inside = calls[calls.name.matches(_CALLED)]
    inside = inside[inside.inside(regions)].outermost()
    launched, _ = regions.launched()
    count = max(len(distinct(regions.step)), 1)
    return {
        "cpu_ns": outer.total_ns // count,
        "lookup_ns": calls[calls.name.matches(_LOOKUP)].total_ns // count,
        "wrapper_ns": max(outer.total_ns - inside.total_ns, 0) // count if len(inside) else 0,
        "gpu_ns": launched.total_ns // count,
        "launches": round(len(launched) / count),
    }


def eager_runs(calls: Calls, regions: Calls) -> tuple[Work, Rows]:
    """(pointwise kernels of regions in order, number of the run that each is in); runs that hold eager ones, too.

    A run is what one region launches in a row, on one stream. Regions whose compiled code has no marks of its own are
    left out: what they run may all be eager.
    """
    compiled = calls[calls.name.matches(_CALLED)]
    outer = regions.outermost()
    outer = outer[distinct(compiled.index_of_enclosing(outer)[compiled.inside(outer)])]
    found, owner = outer.launched()
    order = np.lexsort((found.start_ns, found.stream, found.device))
    found, owner = found[order], owner[order]
    eager = ~found.launch.inside(compiled)
    pointwise = found.name.matches(families.POINTWISE) & ~found.name.matches(families.INDEXED)
    breaks = ~pointwise | ~np.append(False, pointwise[:-1])
    for column in (owner, found.stream, found.device):
        breaks |= starts_of_runs(column)
    run = np.cumsum(breaks) - 1
    copied = found.op.name.one_of("aten::copy_")  # to an input that the compiled code changes
    left = np.bincount(run, weights=eager & pointwise & ~copied)
    chosen = pointwise & (np.bincount(run) >= _SHORT)[run] & (left > 0)[run]
    return found[chosen], run[chosen]


def resumed(regions: Calls, found: Work) -> Calls:
    """Regions within others that launch nothing but this work: after a break, and gone without it."""
    inner = regions[regions.parent.inside(regions)]
    launched, owner = inner.launched()
    others = owner[~np.isin(launched.entries, found.entries)]
    chosen: Calls = inner[~np.isin(np.arange(len(inner)), others)]
    return chosen
