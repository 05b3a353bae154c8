"""Commands of Nsight Compute and Nsight Systems for what a trace of torch.profiler cannot answer about a finding."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.step_times import RECORDING
from traceanalyzer.model.trace import Meta
from traceanalyzer.timeline.calls_and_work import Work
from traceanalyzer.timeline.steps import Steps

PROGRAM = "PROGRAM.py"
"""Stands for the program where the trace does not hold its command."""

_WARM_UP = 10  # steps before those that are measured, as `traceanalyzer record` has it
_MOST_LAUNCHES = 5  # of one ncu run: each is repeated for some dozen counters
# Of an nsys run: 1 s holds what happens every 100 ms ten times.
_RANGE_NS, _LEAST_STEPS, _MOST_STEPS = 1e9, 5, 500
_IDENTIFIER = re.compile(r"[A-Za-z_]\w+")
# Rule, or rule and cause -> sections of ncu: what its finding leaves open.
_SECTIONS = {
    "far-from-bound": "SpeedOfLight MemoryWorkloadAnalysis WarpStateStats Occupancy",
    "low-occupancy": "SpeedOfLight LaunchStats Occupancy",
    "hotspot": "SpeedOfLight Occupancy ComputeWorkloadAnalysis MemoryWorkloadAnalysis",
    "hotspot: below-bounds": "SpeedOfLight SchedulerStats WarpStateStats MemoryWorkloadAnalysis Occupancy",
    "hotspot: compute": "SpeedOfLight ComputeWorkloadAnalysis InstructionStats",
    "hotspot: memory": "SpeedOfLight MemoryWorkloadAnalysis",
}
# Causes of hotspots that ncu tells nothing about.
_NO_KERNELS = ("communication", "copies", "latency", "link")
_DEVICE = "--gpuctxsw=true --gpu-metrics-devices=all"
_PROCESS = "--sample=process-tree --cpuctxsw=process-tree"
_SYSTEM = "--sample=system-wide --cpuctxsw=system-wide"
# Rule, or rule and cause -> options of nsys: clocks and other processes of the GPU, threads, the whole machine.
_SYSTEM_OPTIONS = {
    "kernel-variance": _DEVICE,
    "throttling": _DEVICE,
    "slowed-by-communication": "--gpu-metrics-devices=all",
    "dataloader-stall": _PROCESS,
    "host-hotspot: stalled": _SYSTEM,
    "launch-bound: slow-launches": _PROCESS,
    "scheduler-gap: unknown": _SYSTEM,
    "scheduler-gap: waiting": _DEVICE,
    "unprofiled-delay": _SYSTEM,
}
_OF_THE_HOST = ("host-gap", "host-hotspot")  # a line of Python in them answers the question
_SAMPLED = f"--python-sampling=true {_PROCESS}"


def with_profiler_commands(findings: Sequence[Finding], analysis: Analysis, step_ns: int | None) -> tuple[Finding, ...]:
    """The findings, each with the command that answers what its trace leaves open; `step_ns` without the profiler."""
    meta = analysis.trace.meta
    if meta.dialect.endswith((" on ROCm", " on XPU", " on MTIA")):  # their profilers have other names
        return tuple(findings)
    return tuple(replace(finding, profiler_command=_command(finding, analysis, meta, step_ns)) for finding in findings)


def _command(finding: Finding, analysis: Analysis, meta: Meta, step_ns: int | None) -> str:
    names = f"{finding.rule}: {finding.cause}", finding.rule
    if finding.settled or (finding.rule == "hotspot" and finding.cause in _NO_KERNELS):
        return ""
    if sections := next((_SECTIONS[name] for name in names if name in _SECTIONS), ""):
        return _ncu(finding, sections.split(), analysis, meta)
    options = next((_SYSTEM_OPTIONS[name] for name in names if name in _SYSTEM_OPTIONS), "")
    if finding.rule in _OF_THE_HOST and ".py(" not in f"{finding.by}{finding.message}":
        options = options or _SAMPLED
    return _nsys(options.split(), meta, step_ns) if options else ""


def program_command(meta: Meta) -> list[str]:
    """`python train.py --epochs 1`, as the recorder wrote it down."""
    recording = meta.extra.get(RECORDING)
    command = recording.get("command") if isinstance(recording, Mapping) else None
    return ["python", *(map(str, command) if isinstance(command, list) and command else [PROGRAM])]


def _nsys(options: Sequence[str], meta: Meta, step_ns: int | None) -> str:
    """System events of some steps after a warm-up."""
    count = min(max(math.ceil(_RANGE_NS / (step_ns or 1)), _LEAST_STEPS), _MOST_STEPS)
    fixed = ["--trace=cuda,nvtx,osrt", "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    command = shlex.join(["nsys", "profile", *fixed, *options, "-o", "steps", *program_command(meta)])
    calls = "torch.cuda.cudart().cudaProfilerStart() before step {} and .cudaProfilerStop() after step {}"
    root = "; needs root" * (options != _PROCESS.split() and options[0] != "--python-sampling=true")
    return f"{command}  # with {calls.format(_WARM_UP, _WARM_UP + count - 1)}{root}"


def _ncu(finding: Finding, sections: Sequence[str], analysis: Analysis, meta: Meta) -> str:
    """Counters of the finding's longest kernel, in a step after a warm-up; empty where it has none."""
    work = analysis.index(Work).in_order()
    work = work[work.kind.one_of("compute")]
    of_finding = np.isin(work.number("event_id"), [i for o in finding.occurrences for i in o.event_ids])
    if not of_finding.any():
        return ""
    sums = work[of_finding].name.sums(work[of_finding].dur_ns)
    name = max(sums, key=lambda one: (sums[one], one))
    # The kernel's function, and its functor where the function is generic.
    pattern = ".*".join(_IDENTIFIER.findall(short_kernel(name)))
    pattern = pattern if re.search(pattern, name) else re.escape(name.partition("(")[0])
    own = of_finding & work.name.one_of(name)
    same = work.name.matches(pattern)
    step = work.step[own].max()  # -1, outside of all steps, only where the kernel runs in none
    at = np.flatnonzero(own[same & (work.step == step)])
    count = min(int(at[-1] - at[0]) + 1, _MOST_LAUNCHES)
    # Without marks of steps nobody knows what comes before.
    marked = same & (work.step >= 0) & analysis.index(Steps).marked
    _, per_step = np.unique(work.step[marked], return_counts=True)
    skipped = int(at[0]) + (_WARM_UP * int(np.median(per_step)) if len(per_step) else 0)
    words = ["ncu", "--target-processes", "all", "--kernel-name-base", "demangled"]
    words += ["--kernel-name", f"regex:{pattern}", "--launch-skip", str(skipped)]
    words += ["--launch-count", str(count), "--kill", "yes"]
    words += [word for section in sections for word in ("--section", section)]
    return shlex.join([*words, *program_command(meta)])
