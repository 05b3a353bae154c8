"""Regions of the code in a step of both sides, matched by name and by their place in the tree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from traceanalyzer.comparison.canonical_names import region_name
from traceanalyzer.comparison.result import RegionChange
from traceanalyzer.regions.regions import Regions

Path = tuple[str, ...]

_LEAST = 0.02  # of the longer step: a smaller change is not listed; chosen
# Of a region's change: if the regions inside change by so much, they are listed in its place; chosen.
_INSIDE = 0.8
_OPS = ("op", "backward", "kernel")  # the rows of work tell of these
_OPENED = ("step", "phase", "wrapper")  # of the others, blocks inside are a part of what they do


@dataclass(frozen=True, slots=True)
class RegionTime:
    """ns per step with all below it, without the profiler where the step was replayed."""

    kind: str
    cpu_ns: float
    gpu_ns: float


RegionTimes = Mapping[Path, RegionTime]


def region_times(regions: Regions) -> dict[Path, RegionTime]:
    """The names from the outermost region to each, without line numbers -> its time; of the step an empty path."""
    tree, cpu, gpu = regions.tree, regions.totals["predicted_ns"].tolist(), regions.totals["gpu_ns"].tolist()
    paths: list[Path] = [()]
    result: dict[Path, RegionTime] = {(): RegionTime("step", cpu[0], gpu[0])}
    for node in range(1, len(tree.parent)):
        paths.append((*paths[int(tree.parent[node])], region_name(tree.name[node])))
        if tree.kind[node] not in _OPS:
            before = result.get(paths[node], RegionTime("", 0.0, 0.0))
            times = before.cpu_ns + cpu[node], before.gpu_ns + gpu[node]
            result[paths[node]] = RegionTime(tree.kind[node], *times)
    return result


def mean_times(captures: Sequence[RegionTimes]) -> RegionTimes:
    """Of several captures of one program; what is missing in a capture takes no time there."""
    means = {}
    for path in dict.fromkeys(path for one in captures for path in one):
        seen = [one[path] for one in captures if path in one]
        cpu_ns, gpu_ns = (sum(getattr(one, name) for one in seen) / len(captures) for name in ("cpu_ns", "gpu_ns"))
        means[path] = RegionTime(seen[0].kind, cpu_ns, gpu_ns)
    return means


def region_changes(base: RegionTimes, new: RegionTimes) -> tuple[RegionChange, ...]:
    """Regions whose time changed, the largest change first: by the CPU's or the GPU's time, whichever is longer.

    Of regions inside one another that is listed which has the change, with all others of its name. Empty where a side
    has no regions.
    """
    if not base or not new:
        return ()
    of = "GPU" if base[()].gpu_ns + new[()].gpu_ns >= base[()].cpu_ns + new[()].cpu_ns else "CPU"
    times = [{path: getattr(one, f"{of.lower()}_ns") for path, one in side.items()} for side in (base, new)]
    kinds = {path: one.kind for side in (base, new) for path, one in side.items()}
    deltas = {path: times[1].get(path, 0.0) - times[0].get(path, 0.0) for path in kinds}
    inside: dict[Path, list[Path]] = {}
    for path in deltas:
        if path:
            inside.setdefault(path[:-1], []).append(path)
    alone = {path[-1] for path in base if path} ^ {path[-1] for path in new if path}

    def changed(path: Path) -> Iterator[Path]:
        """The region, or those inside it that make its change; what is gone or new with all in it is whole."""
        opened = kinds[path] in _OPENED
        parts = [one for one in inside.get(path, ()) if opened or kinds[one] != "block"]
        whole = not opened and all(one[-1] in alone for one in (path, *parts))
        if not path or (not whole and sum(abs(deltas[one]) for one in parts) >= _INSIDE * abs(deltas[path])):
            yield from (one for part in parts for one in changed(part))
        else:
            yield path

    least = max(_LEAST * max(side[()] for side in times), 1.0)
    listed = []
    for name, kind in {(path[-1], kinds[path]) for path in changed(()) if deltas[path]}:
        base_ns, new_ns = (_of_name(name, side) for side in times)
        delta = (new_ns or 0) - (base_ns or 0)
        if abs(delta) >= least:
            listed.append(RegionChange(name, kind, of, base_ns, new_ns, delta))
    return tuple(sorted(listed, key=lambda one: (-abs(one.delta_ns), one.name)))


def _of_name(name: str, times: Mapping[Path, float]) -> int | None:
    """ns of all regions of that name, None where there is none; one inside another counts once."""
    found = [ns for path, ns in times.items() if path[-1:] == (name,) and name not in path[:-1]]
    return round(sum(found)) if found else None
