"""The library's `compare`: recordings, folders, traces or baselines -> Comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from traceanalyzer.comparison.baseline import load_baseline
from traceanalyzer.comparison.region_changes import region_times
from traceanalyzer.comparison.result import Comparison
from traceanalyzer.comparison.sides import compared
from traceanalyzer.comparison.snapshot import TABLES, KnownFault, Piece, Side, Snapshot, StepStrip, StepTime
from traceanalyzer.comparison.work_tables import Chosen, host_table, tables_of
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import distinct, numbered, places_of, sums_of
from traceanalyzer.model.errors import BadOption, Unavailable
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.report import Fault, TraceReport
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.read.folders import layout_of
from traceanalyzer.read.load import load_any, load_job
from traceanalyzer.regions.regions import Regions
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.run import run_at
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.rule.registry import Kind, kind_of
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps

Capture = Trace | Mapping[int, Trace] | str | Path
Given = Capture | Sequence[Capture]


def compare(base: Given, new: Given, *, base_ms: float | None = None, new_ms: float | None = None) -> Comparison:
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
        raise BadOption("a step is timed on one side only", remedy="Give base_ms and new_ms.")
    return compared(timed(side_of(base), base_ms), timed(side_of(new), new_ms))


def timed(side: Side, step_ms: float | None) -> Side:
    """The side with the step that the user timed without the profiler."""
    if step_ms is None:
        return side
    if not 0 < step_ms < math.inf:
        raise BadOption(f"step time {step_ms} ms: not a positive time")
    ns = round(step_ms * 1e6)

    def with_time(one: Snapshot) -> Snapshot:
        step = one.step and replace(one.step, ns=ns, low_ns=ns, high_ns=ns, measured=True)
        return replace(one, step=step)

    return [{rank: with_time(one) for rank, one in capture.items()} for capture in side]


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
        return list(load_baseline(str(given).removeprefix("baseline:")))
    if Path(given).is_dir():
        return _folder(Path(given))
    return [snapshots(load_any(given))]


def _folder(path: Path) -> list[Mapping[int | None, Snapshot]]:
    """A job where each trace declares a rank of its own, else one capture each; iterations are captures, too."""
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
        None if alone else rank: replace(snapshot_of(analysis, heads[rank], report.findings), culprit=rank in culprits)
        for rank, analysis in analysed
    }


_MAX_PIECES = 300  # pieces: more are not seen on a page


def strip_of(trace: Trace, work: DeviceWork, steps: Steps, chosen: Chosen) -> StepStrip:
    """The chosen step of median length on the main device."""
    rows = np.flatnonzero(chosen.place[:-1] >= 0)
    lengths = steps.durations_ns(chosen.device)[rows]
    step = int(rows[np.argsort(lengths, kind="stable")[(len(rows) - 1) // 2]])
    begin = int(steps.bounds_ns[chosen.device][step])
    selected = np.flatnonzero((steps.of_work == step) & (work.device == chosen.device))
    by_length = np.argsort(work.start_ns[selected] - work.end_ns[selected], kind="stable")
    shown = np.sort(selected[by_length[:_MAX_PIECES]])
    streams = {stream: index for index, stream in enumerate(distinct(work.stream[selected]).tolist())}
    names = texts_of(trace.gpu, "name")[codes_at(trace.gpu, "name", work.row[shown])]
    columns = (column[shown].tolist() for column in (work.stream, work.start_ns, work.end_ns, work.kind))
    pieces = tuple(
        Piece(streams[stream], start - begin, end - start, KINDS[kind], short_kernel(str(name)))
        for stream, start, end, kind, name in zip(*columns, names, strict=True)
    )
    return StepStrip(int(steps.durations_ns(chosen.device)[step]), pieces, len(selected) - len(shown))


# Times as quick as the CPU was: what hosts differ by, and more.
_PACES = (0.4, 0.55, 0.75, 1.0, 1.33, 1.8, 2.5)
_LONGER = 0.01  # of the step, by which a fix makes it longer for that to be no rounding error; chosen


def snapshot_of(analysis: Analysis, head: TraceReport, findings: Sequence[Finding]) -> Snapshot:
    """The snapshot of one trace, of whose report are `head` and the findings; those of other ranks are left out."""
    meta = analysis.trace.meta
    forecast, regions = analysis.index_or_none(Forecast), analysis.index_or_none(Regions)
    tables = {
        name: pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in columns.items()})
        for name, columns in TABLES.items()
    }
    kind, phase, batch, count, step, strip = "window", None, None, 0, None, None
    with suppress(Unavailable):
        work, steps = analysis.index(DeviceWork), analysis.index(Steps)
        chosen = chosen_steps(work, steps, main_device(work))
        at = int(np.flatnonzero(chosen.place[:-1] >= 0)[0])
        kind, phase = (steps.kind if steps.marked else "window"), steps.phase[at]
        batch = int(steps.batch[at]) if steps.batch[at] >= 0 else None
        count = chosen.count
        tables |= tables_of(analysis, chosen)
        if forecast is not None:
            tables["host"] = host_table(analysis.trace, forecast.program)
        step = step_time(steps, chosen, head, forecast)
        strip = strip_of(analysis.trace, work, steps, chosen)
    return Snapshot(
        source=Path(meta.source).name,
        rank=head.rank,
        gpus=tuple(sorted({device.name for device in meta.devices if device.name})),
        versions=dict(meta.versions),
        recorded=tuple(sorted(name for name, there in meta.capabilities.items() if there)),
        step_kind=kind,
        phase=phase,
        batch=batch,
        steps=count,
        step=step,
        waiting_ns=head.waiting_ns,
        tables=tables,
        faults=known_faults(head, findings),
        strip=strip,
        regions={} if regions is None else region_times(regions),
    )


def main_device(work: DeviceWork) -> int:
    number, devices = numbered(work.device)
    return int(devices[np.argmax(sums_of(number, work.end_ns - work.start_ns, len(devices)))])


def chosen_steps(work: DeviceWork, steps: Steps, device: int) -> Chosen:
    """Warm steps of the phase and batch size that most of them have; where there are several, not the first."""
    launched = np.bincount(steps.of_work[steps.of_work >= 0], minlength=len(steps)) > 0
    usable = np.flatnonzero(steps.steady & launched & ~steps.cut)
    if len(usable) == 0:
        usable = np.arange(len(steps))
    kinds = [(steps.phase[at] or "", int(steps.batch[at])) for at in usable.tolist()]
    commonest = max(sorted(set(kinds)), key=kinds.count)
    usable = usable[[kind == commonest for kind in kinds]]
    usable = usable[1:] if len(usable) > 1 else usable
    return Chosen(places_of(usable, len(steps)), len(usable), device)


def step_time(steps: Steps, chosen: Chosen, head: TraceReport, forecast: Forecast | None) -> StepTime:
    selected = chosen.place[:-1] >= 0
    on_device, on_cpu = steps.durations_ns(chosen.device)[selected], steps.durations_ns()[selected]
    each = on_device if on_device.sum() >= on_cpu.sum() or not steps.marked else on_cpu
    recorded = round(float(each.mean()))
    spread = tuple(each.tolist())
    if forecast is None or head.step is None:
        return StepTime(recorded, recorded, recorded, recorded, False, each_ns=spread)
    said, typical = head.step, forecast.replays.slowdown.typical
    replays = run_at(EditedProgram(forecast.program), [typical * pace for pace in _PACES])
    paces = tuple((pace, step.ns) for pace, step in zip(_PACES, replays, strict=True))
    cpu = round(forecast.base[0].cpu_ns)
    times = said.unprofiled_ns, said.low_ns, said.high_ns, recorded
    return StepTime(*times, True, cpu, said.bound, paces, spread)


def known_faults(head: TraceReport, findings: Sequence[Finding]) -> tuple[KnownFault, ...]:
    """What the report says of the rank's program, ranked as there: faults, choices, and what does not pay."""
    return tuple(
        _known(fault, [findings[number - 1] for number in fault.findings])
        for fault in head.faults
        if fault.findings and _worth(fault, findings[fault.findings[0] - 1])
    )


def _worth(fault: Fault, lead: Finding) -> bool:
    """Whether a program without it would differ: of `info` only what was chosen, and what is longer when fixed."""
    if fault.severity is not Severity.INFO:
        return True
    choice = kind_of(lead.rule, lead.cause) is Kind.CHOICE
    return fault.saving is not None and (choice or fault.saving.share <= -_LONGER)


def _known(fault: Fault, evidence: Sequence[Finding]) -> KnownFault:
    """The fault, known again by the rule, the cause and the name of the finding that saves most of it."""
    lead, rules = evidence[0], tuple(dict.fromkeys(found.rule for found in evidence))
    key = "|".join((lead.rule, lead.cause, lead.by or ""))
    title = f"{lead.rule}: {lead.by or lead.cause}" if lead.by or lead.cause else lead.rule
    said = fault.saving
    saving = () if said is None else (said.share, said.low_share, said.high_share, said.step_ns)
    return KnownFault(key, rules, title, str(fault.severity), *saving)
