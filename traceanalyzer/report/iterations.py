"""Several iterations of a job: one is diagnosed, of the others it is said where they differ from each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.job.ranks import Ranks
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, median
from traceanalyzer.model.report import Iteration, Iterations, PartChange
from traceanalyzer.read.folders import rank_of_name
from traceanalyzer.read.job_ranks import shared_part, sketch
from traceanalyzer.report.summary import attempt, summarise
from traceanalyzer.timeline.steps import Steps

# Times the noise: 21 of 243 steady stretches of 2 or 3 steps would be told apart by 3, 9 by 4; H200.
_TIMES = 4.0
_LEAST_SHARE = 0.1  # of the step: captures of one program in processes of their own differ by 7 %; H200
_OTHERS = 3  # iterations whose spread is a noise; fewer do not tell
_NORMAL = 1.4826  # standard deviations in a median absolute deviation
_OF_MEDIAN = 1.25  # times the error of a mean: that of a median
_PARTS = 3  # that are named


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one file says, a few kB: its usual steps, ns a step by class of all its devices, and its `sketch`."""

    rank: int | None
    step_ns: NDArray[np.int64]
    parts_ns: Mapping[str, float]
    program: tuple[int, ...]


def file_summary(analysis: Analysis, _: None, __: None) -> FileSummary:
    head = summarise(analysis, None)
    steps = attempt({}, "steps", lambda: analysis.index(Steps), None)
    took, working = np.empty(0, np.int64), 1
    if steps is not None:
        durations = steps.durations_ns(min(steps.bounds_ns, default=None))
        begin, end = steps.in_use
        took = np.asarray(durations, np.int64)[begin:end][steps.steady[begin:end]]
        working = max(steps.working, 1)
    parts = Counter[str]()
    for device in head.accounting:
        parts.update({part: ns / working for part, ns in device.parts_ns.items()})
    return FileSummary(analysis.trace.meta.rank, took, parts, sketch(analysis.trace))


def iterations_of(ranks: Ranks, read: Sequence[str]) -> Iterations | None:
    """What is said of the iterations whose files the ranks know; None where there is but one. `read` is diagnosed."""
    files = [file for one in ranks.iterations.values() for file in one]
    told = ranks.once(file_summary, files)
    return compared_iterations(ranks.iterations, told, frozenset(read)) if files else None


def compared_iterations(
    iterations: Mapping[str, Sequence[str]], told: Mapping[str, FileSummary | Exception], read: frozenset[str]
) -> Iterations:
    """Which of them differ from the others beyond the noise, and in what; `told` is by file, or why it has nothing."""
    own = {name: _by_rank(files, told) for name, files in iterations.items()}
    at = next(name for name, files in iterations.items() if read & set(files))
    slowest = {name: _slowest(one) for name, one in own.items()}
    known = [name for name, steps in slowest.items() if len(steps)]
    medians = np.array([median(slowest[name]) for name in known])
    more, noise_ns = _beyond([slowest[name] for name in known])
    differs = dict(zip(known, more, strict=True))
    each = tuple(
        Iteration(
            name,
            name == at,
            len(own[name]),
            len(slowest[name]),
            round(median(slowest[name])) if len(slowest[name]) else None,
            more_ns := differs.get(name),
            () if more_ns is None else _parts(own, name, more_ns),
            _program_share(own[name], own[at]),
            tuple(f"{file}: {error}" for file in files if isinstance(error := told[file], Exception)),
        )
        for name, files in iterations.items()
    )
    return Iterations(each, round(median(medians)) if len(medians) else None, noise_ns)


def _by_rank(files: Sequence[str], told: Mapping[str, FileSummary | Exception]) -> dict[int, FileSummary]:
    found: dict[int, FileSummary] = {}
    for place, file in enumerate(files):
        one = told[file]
        if isinstance(one, FileSummary):
            named = rank_of_name(file) if one.rank is None else one.rank
            found[place if named is None else named] = one
    return found


def _slowest(ranks: Mapping[int, FileSummary]) -> Floats:
    """Steps of the rank whose median is the largest; empty where no rank has any."""
    known = [one.step_ns.astype(np.float64) for one in ranks.values() if len(one.step_ns)]
    return max(known, key=median, default=np.empty(0))


def _beyond(steps: Sequence[Floats]) -> tuple[list[int | None], int | None]:
    """(what each takes more than the others, None where that is noise; the largest of the limits)."""
    medians = np.array([median(one) for one in steps])
    spread_ns = _within(steps)
    more: list[int | None] = []
    limits: list[float] = []
    for at, own in enumerate(steps):
        others = np.delete(medians, at)
        if len(others) == 0 or (spread_ns is None and len(others) < _OTHERS):
            more.append(None)
            continue
        centre, rest = _usual(medians, at), sum(map(len, steps)) - len(own)
        between = _NORMAL * median(np.abs(others - centre)) if len(others) >= _OTHERS else 0.0
        within = _OF_MEDIAN * hypot(1 / sqrt(len(own)), 1 / sqrt(rest)) * (spread_ns or 0.0)
        limits.append(max(_TIMES * max(between, within), _LEAST_SHARE * centre))
        more.append(round(medians[at] - centre) if abs(medians[at] - centre) > limits[-1] else None)
    return more, round(max(limits)) if limits else None


def _usual(values: Floats, at: int) -> float:
    """What the others have: the median of all, which no single one moves; of two the other one."""
    return median(values if len(values) > 2 else np.delete(values, at))


def _within(steps: Sequence[Floats]) -> float | None:
    """How steps spread within iterations, as a standard deviation; None where each has but one."""
    # Without the least of each iteration, as its median is one of an odd number of steps.
    off = (np.sort(np.abs(one - median(one)))[1:] for one in steps if len(one) > 1)
    several = [one * sqrt((len(one) + 1) / len(one)) for one in off]
    return _NORMAL * median(np.concatenate(several)) if several else None


def _parts(own: Mapping[str, Mapping[int, FileSummary]], name: str, more_ns: int) -> tuple[PartChange, ...]:
    """The parts that changed as the step did, each by the rank where it did so most."""
    found: dict[str, PartChange] = {}
    for rank, one in own[name].items():
        same = [ranks[rank].parts_ns for other, ranks in own.items() if other != name and rank in ranks]
        for part in dict.fromkeys([*one.parts_ns, *(key for other in same for key in other)]) if same else ():
            values = np.array([one.parts_ns.get(part, 0.0), *(other.get(part, 0.0) for other in same)])
            change = round(values[0] - _usual(values, 0))
            if change * more_ns > 0 and (part not in found or abs(change) > abs(found[part].more_ns)):
                found[part] = PartChange(part, rank if len(own[name]) > 1 else None, change)
    worth = [one for one in found.values() if abs(one.more_ns) >= _LEAST_SHARE * abs(more_ns)]
    return tuple(sorted(worth, key=lambda one: (-abs(one.more_ns), one.part))[:_PARTS])


def _program_share(one: Mapping[int, FileSummary], other: Mapping[int, FileSummary]) -> float:
    """The least over the ranks that both have."""
    both = one.keys() & other.keys()
    return min((shared_part(one[rank].program, other[rank].program) for rank in both), default=1.0)
