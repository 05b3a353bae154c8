"""What the first screen says of a report in few words: what was recorded, how many problems, where the step goes."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.words.escape import printable
from traceanalyzer.report.summary import FILES, OPS, OTHER, WAITS
from traceanalyzer.report.verdict import NOTHING, NOTHING_SURE
from traceanalyzer.rule.registry import Kind, kind_of

# Classes of the accounting by what their names begin with, the specific first, as the first screen names them.
_CLASSES = {
    "communication_waiting": "waiting for other ranks",
    "communication": "communication without compute",
    "compute": "compute",
    "idle": "idle",
    "": "copies",
}
_LEAST = 0.005  # of the recorded time: less is not named
_MAKER = re.compile("^(?:NVIDIA|AMD) ")  # of a device: the type says it


def problem_words(report: Report, findings: Collection[Finding]) -> str:
    """`2 problems, 1 to check`: faults with findings above `info`, and questions that no trace answers; else as Fix."""
    infos = [finding for finding in findings if finding.severity is Severity.INFO]
    problems = len({one.fault or id(one) for one in findings if one.severity is not Severity.INFO})
    questions = sum(kind_of(finding.rule) is Kind.QUESTION for finding in infos)
    named = [f"{problems} problem{'s' * (problems != 1)}"] if problems else []
    named += [f"{questions} to check"] if questions else []
    if named:
        return ", ".join(named)
    if not any(trace.accounting for trace in report.traces):
        return "GPU work not judged"
    verdicts = [one.summary for one in ([report.job] if report.job is not None else report.traces)]
    return NOTHING_SURE if any(one.fix.startswith(NOTHING_SURE) for one in verdicts) else NOTHING


def recorded_words(trace: TraceReport) -> str:
    """The devices and the number of steps: `NVIDIA H200, 5 steps`."""
    known = Counter(_MAKER.sub("", device.name or "unknown GPU") for device in trace.meta.devices)
    devices = [name if count == 1 else f"{count} x {name}" for name, count in known.items()]
    count = 0 if trace.steps is None or not trace.steps.marked else trace.steps.every.count
    asked = [f"window of {format_ns(trace.window.length_ns)}"] * trace.window.asked
    return printable(", ".join([*devices, *[f"{count:,} step{'s' * (count != 1)}"] * bool(count), *asked]))


def parts_of_step(traces: Sequence[TraceReport]) -> tuple[str, Mapping[str, float]]:
    """(what the shares are of, part of the step -> its share, the largest first)."""
    if len(traces) == 1:
        return f"{traces[0].parts_of} time by region", traces[0].parts
    sums: Counter[str] = Counter()
    for device in (device for trace in traces for device in trace.accounting):
        for name, ns in device.classes_ns.items():
            sums[next(words for begins, words in _CLASSES.items() if name.startswith(begins))] += ns
    whole = max(sums.total(), 1)
    shares = {name: ns / whole for name, ns in sums.most_common() if ns >= _LEAST * whole}
    return f"recorded, mean of {len(traces)} ranks", shares


def cpu_parts(trace: TraceReport) -> Mapping[str, float]:
    """What the CPU does in the steps of a trace without GPU work -> its share of their time."""
    words = {
        OPS: f"ops on {trace.op_threads} thread{'s' * (trace.op_threads > 1)}",
        FILES: "files",
        WAITS: "waiting for other threads or processes",
        OTHER: "code outside of ops",
    }
    return {words[use]: share for use, share in trace.cpu_use.items() if share >= _LEAST}
