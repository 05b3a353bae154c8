"""The library's `compare`: recordings, folders, traces or baselines -> Comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from traceanalyzer.comparison.recorded import snapshot_of
from traceanalyzer.comparison.result import Comparison
from traceanalyzer.comparison.sides import Side, compared
from traceanalyzer.comparison.snapshot import Snapshot
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.trace import Trace
from traceanalyzer.report.diagnosis import analyses_of, report_of

Capture = Trace | Mapping[int, Trace] | str | Path
Given = Capture | Sequence[Capture]


def compare(
    base: Given, new: Given, *, base_ms: float | None = None, new_ms: float | None = None
) -> Comparison:
    """What changed from `base` to `new`, by how much, and whether it is more than noise.

    Args:
        base, new: each a trace, the traces of a job by rank, the path of a file or of a folder, the name of a baseline
            (`baseline:NAME`), or a list of several captures of the same program. The files of a folder are the ranks of
            a job where each declares a rank of its own, else captures of one program, as are iterations of a job.
        base_ms, new_ms: how long a step takes without the profiler, where you have timed both, in ms.

    Raises:
        UnreadableTrace, NotATrace: a file cannot be read.
        BadOption: a list without a capture, no baseline of that name, or a time of one side alone.
    """
    if (base_ms is None) != (new_ms is None):
        raise BadOption(
            "a timed step of one side says nothing of the other", remedy="Give base_ms and new_ms."
        )
    return compared(timed(side_of(base), base_ms), timed(side_of(new), new_ms))


def timed(side: Side, step_ms: float | None) -> Side:
    """The side with the step that the user timed without the profiler."""
    if step_ms is None:
        return side
    if not 0 < step_ms < math.inf:
        raise BadOption(f"step time {step_ms} ms: not a positive time")
    return [{rank: _timed(one, round(step_ms * 1e6)) for rank, one in capture.items()} for capture in side]


def _timed(snapshot: Snapshot, ns: int) -> Snapshot:
    if snapshot.step is None:
        return snapshot
    return replace(snapshot, step=replace(snapshot.step, ns=ns, low_ns=ns, high_ns=ns, measured=True))


def side_of(given: Given) -> Side:
    """Snapshots of all captures; traces that are loaded here are let go one by one."""
    if isinstance(given, Trace | Mapping | str | Path):
        return _captures(given)
    result = [capture for one in given for capture in _captures(one)]
    if not result:
        raise BadOption("nothing to compare: the list of captures is empty")
    return result


def _captures(given: Capture) -> list[Mapping[int | None, Snapshot]]:
    if isinstance(given, Trace | Mapping):
        return [snapshots(given)]
    if str(given).startswith("baseline:"):
        from traceanalyzer.comparison.baseline import load_baseline

        return list(load_baseline(str(given).removeprefix("baseline:")))
    if Path(given).is_dir():
        return _folder(Path(given))
    from traceanalyzer.read.load import load_any

    return [snapshots(load_any(given))]


def _folder(path: Path) -> list[Mapping[int | None, Snapshot]]:
    """A job where each trace declares a rank of its own, else one capture each; iterations are captures, too."""
    from traceanalyzer.read.folders import layout_of
    from traceanalyzer.read.load import load_job

    iterations = layout_of([path]).iterations
    if iterations:
        return [snapshots(load_job(*files)) for files in iterations.values()]
    job = load_job(path)
    if all(trace.meta.rank is not None for trace in job.values()):
        return [snapshots(job)]
    return [snapshots(trace) for trace in job.values()]


def snapshots(traces: Trace | Mapping[int, Trace]) -> Mapping[int | None, Snapshot]:
    """Snapshots of one capture, by rank; None is the rank of a process alone."""
    analysed = analyses_of(traces)
    report = report_of(analysed)
    heads = {head.rank: head for head in report.traces}
    alone = len(analysed) == 1
    culprits = report.job.culprits if report.job else ()
    return {
        None if alone else rank: replace(
            snapshot_of(analysis, heads[rank], report.findings), culprit=rank in culprits
        )
        for rank, analysis in analysed
    }
