"""Checks that every finding passes before it is printed: it contradicts neither itself nor the recording.

What is false is left out. What rests on an assumption is demoted: `low` at most.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Confidence, Finding, Severity
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.edit_footprint import Footprint
from traceanalyzer.replay.edits import ReadLater
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.gpus import GUESSED_RATE, device_peaks
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import tensor_types
from traceanalyzer.timeline.steps import Steps

_ROUNDING = 1.01  # rounded numbers in a text exceed an exact bound by as much
# Times what a fix removes: a replayed saving may be as much, since what waits for it comes earlier, too. Chosen.
_MOST_TIMES = 2.0
_PASSES = 8  # times an op's work: as much do the ops take that read its result; more is other data; chosen
_HALVES = frozenset({"c10::Half", "c10::BFloat16"})
_ALIGNED = 8
_RATE = regex(r"([\d,]+(?:\.\d+)?) (GB/s|TFLOP/s)")
_EMPTY = regex(r"(?<![\d.,])0 (?:ns|times)\b|(?<![\d.,])1 times\b")
_SIZES = regex(r"\d+")
NOT_WORTH_IT = "Not worth it"  # begins the advice where following it makes the step longer
OTHER_RANKS = "for other ranks' launching"  # ends the basis of a step that rests on what other ranks are assumed to do
BOUNDS = "bounds"  # the check of shapes, bounds and units of what a rule yields, which rule/validation.py makes
ASSUMED = "assumed"  # evidence of what a finding assumes because the trace does not record it


@dataclass(frozen=True, slots=True)
class Failure:
    """A check that a finding failed: it was left out (`dropped`) or demoted, or is of low confidence (`doubted`)."""

    rule: str
    cause: str
    by: str | None
    rank: int | None
    check: str
    reason: str
    dropped: bool
    doubted: bool = False

    def __str__(self) -> str:
        rank = "" if self.rank is None else f"rank {self.rank}"
        place = ", ".join(filter(None, (self.cause, self.by, rank)))
        effect = "left out" if self.dropped else "demoted"
        return f"{self.rule}{f' ({place})' if place else ''} {effect}, {self.check}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A finding with what it is compared with; None for what is unknown.

    Attributes:
        dialect, step_basis: `Meta.dialect` of the recording, and how the step without the profiler was predicted.
        peaks: unit of a rate -> the most that a device of the recording reaches.
        most_ns: the most that its fix can take off a step: the time of what it removes or moves.
        step_ns: length of the longest step, on the CPU or on a GPU.
    """

    finding: Finding
    hits: Hits | None = None
    dialect: str = ""
    step_basis: str = ""
    peaks: dict[str, float] | None = None
    inputs: WorkInputs | None = None
    most_ns: float | None = None
    step_ns: int | None = None

    @property
    def work(self) -> Work | None:
        """The GPU work that the finding is about."""
        return self.hits.occurrences if self.hits and isinstance(self.hits.occurrences, Work) else None


def most_rates(devices: Iterable[str | None]) -> dict[str, float] | None:
    """Unit -> the highest rate that one of the devices reaches; None if one is not in the table of peaks."""
    known = [device_peaks(name) for name in devices]
    peaks = [one for one in known if one is not None]
    if not peaks or len(peaks) < len(known):
        return None
    tflops = max(rate for one in peaks for rate in one.tflops.values())
    return {"GB/s": max(one.gbps for one in peaks), "TFLOP/s": tflops}


def claim_of(finding: Finding, hits: Hits, analysis: Analysis, forecast: Forecast | None) -> Claim:
    """A finding of one trace with what it is compared with."""
    meta = analysis.trace.meta
    peaks, inputs = most_rates(one.name for one in meta.devices), analysis.index_or_none(WorkInputs)
    basis = "" if forecast is None else forecast.step.basis
    replayed = forecast is not None and forecast.program is not None and finding.saving
    most_ns = _removed_ns(finding, hits, forecast) if forecast is not None and replayed else None
    steps, step_ns = analysis.index_or_none(Steps), None
    if steps is not None:
        lanes = steps.durations_ns(), *(steps.durations_ns(device) for device in steps.bounds_ns)
        step_ns = max(int(lengths.max(initial=0)) for lengths in lanes)
    return Claim(finding, hits, meta.dialect, basis, peaks, inputs, most_ns, step_ns)


def _removed_ns(finding: Finding, hits: Hits, forecast: Forecast) -> float | None:
    """Time of a step that the fix removes or moves; None if it removes a wait, behind which any time may hide."""
    program, edits = forecast.program, hits.edits()
    taken, later = Footprint.of(program, edits), any(isinstance(one, ReadLater) for one in edits)
    if later or taken.woken.any() or taken.dropped[program.waits.last].any() or hits.of_job:
        return None
    whole_ns = float(taken.cpu_ns.sum() + taken.work_ns.sum() + taken.moved_ns.sum())
    return whole_ns / max(len(program.sample.steps), 1) + taken.late_ns + finding.cost_per_step_ns


@dataclass(frozen=True, slots=True)
class Check:
    """A property of findings; `reason` says what contradicts what in a claim, and is empty where it holds.

    A finding without it is false and left out if it `drops`, else demoted, and of low confidence if it `doubts`.
    """

    name: str
    reason: Callable[[Claim], str]
    drops: bool = True
    doubts: bool = False


def _rate_above_peak(claim: Claim) -> str:
    for rate in _RATE.finditer(claim.finding.message):
        peak = (claim.peaks or {}).get(rate[2])
        if peak is not None and float(rate[1].replace(",", "")) > _ROUNDING * peak:
            return f"{rate[0]} is above the device's peak of {peak:,.0f} {rate[2]}"
    return ""


def _empty_number(claim: Claim) -> str:
    empty = _EMPTY.search(claim.finding.message)
    return f'"{empty[0]}" is no finding' if empty else ""


def _worthless_and_saving(claim: Claim) -> str:
    saving, worthless = claim.finding.saving, claim.finding.advice.startswith(NOT_WORTH_IT)
    return "not worth it, and saves time" if worthless and saving is not None and saving.share > 0 else ""


def _cost_above_its_op(claim: Claim) -> str:
    """A finding named by an op claims no more work than that op and passes over its result."""
    work, by = claim.work, claim.finding.by
    if work is None or by is None or claim.hits is None:
        return ""
    named = work.op.name.one_of(by) | work.outer_op.name.one_of(by) | work.op.parent.name.one_of(by)
    lost = claim.hits.losses()
    start_ns = np.maximum(lost.start_ns, work.start_ns[lost.owner])
    end_ns = np.minimum(lost.end_ns, work.end_ns[lost.owner])
    known = work.op.there[lost.owner]  # a launch before the recording has no op
    claimed_ns = int(np.maximum(end_ns - start_ns, 0)[known].sum())
    named_ns = work[named].total_ns
    if not named.any() or claimed_ns <= _PASSES * named_ns:
        return ""
    return f"claims {format_ns(claimed_ns)} of work, but {by} takes {format_ns(named_ns)}"


def _idle_above_step(claim: Claim) -> str:
    """The GPU's idle time within a step is no longer than the step."""
    waits, idle_ns = isinstance(claim.hits and claim.hits.occurrences, Calls), claim.finding.cost_per_step_ns
    if not waits or claim.step_ns is None or idle_ns <= _ROUNDING * claim.step_ns:
        return ""
    return f"{format_ns(idle_ns)} a step of idle time, in a step of {format_ns(claim.step_ns)}"


def _saving_above_its_time(claim: Claim) -> str:
    saving, most_ns = claim.finding.saving, claim.most_ns
    if saving is None or most_ns is None or saving.step_ns <= _MOST_TIMES * most_ns:
        return ""
    return f"saves {format_ns(saving.step_ns)} a step of the {format_ns(round(most_ns))} that it removes"


def _padding_of_aligned(claim: Claim) -> str:
    shapes = claim.finding.evidence.get("shapes")
    sizes = _SIZES.findall(shapes) if isinstance(shapes, str) else []
    aligned = bool(sizes) and all(int(size[-3:]) % _ALIGNED == 0 for size in sizes)
    pads = claim.finding.advice.startswith("Pad the dimension")
    return f"{shapes} has no dimension to pad" if pads and aligned else ""


def _float32_of_halves(claim: Claim) -> str:
    work, inputs = claim.work, claim.inputs
    if work is None or inputs is None or not claim.finding.message.startswith("float32 "):
        return ""
    halves = inputs.meets(lambda op: bool(kinds := tensor_types(op)) and kinds <= _HALVES)[work.entries]
    mostly = 2 * int(work.dur_ns[halves].sum()) > work.total_ns > 0
    return "the recorded types of its inputs are half precision" if mostly else ""


def _cuda_graph_elsewhere(claim: Claim) -> str:
    asks = "torch.cuda.graph" in claim.finding.advice
    return "only CUDA and ROCm have CUDA graphs" if asks and claim.dialect.endswith(("XPU", "MTIA")) else ""


def _ranks_assumed(claim: Claim) -> str:
    saving = claim.finding.saving
    if saving is None or claim.work is not None or not claim.step_basis.endswith(OTHER_RANKS):
        return ""
    return "rests on what other ranks are assumed to launch"


def _peak_guessed(claim: Claim) -> str:
    one = claim.finding
    high = one.severity.rank < Severity.LOW.rank and one.evidence.get(GUESSED_RATE)
    return "rests on a device that is not in the table of peaks" if high else ""


def _assumed(claim: Claim) -> str:
    one = claim.finding
    assumed = one.severity.rank < Severity.LOW.rank and one.evidence.get(ASSUMED)
    return f"the trace does not record {assumed}" if assumed else ""


CHECKS = (
    Check("rate-above-peak", _rate_above_peak),
    Check("empty-number", _empty_number),
    Check("worthless-and-saving", _worthless_and_saving),
    Check("cost-above-its-op", _cost_above_its_op, drops=False, doubts=True),
    Check("idle-above-step", _idle_above_step),
    Check("padding-of-aligned", _padding_of_aligned),
    Check("float32-of-halves", _float32_of_halves),
    Check("cuda-graph-on-xpu", _cuda_graph_elsewhere, drops=False),
    Check("saving-above-its-time", _saving_above_its_time, drops=False),
    Check("ranks-assumed", _ranks_assumed, drops=False, doubts=True),
    Check("peak-guessed", _peak_guessed, drops=False),
    Check("assumed", _assumed, drops=False),
)


def failures_of(claim: Claim) -> list[Failure]:
    one = claim.finding
    reasons = ((check, check.reason(claim)) for check in CHECKS)
    return [
        Failure(one.rule, one.cause, one.by, one.rank, check.name, reason, check.drops, check.doubts)
        for check, reason in reasons
        if reason
    ]


def passed(claim: Claim) -> tuple[Finding | None, list[Failure]]:
    """(the finding as it may be printed, None if it is false; the checks that it failed)."""
    failures = failures_of(claim)
    if any(failure.dropped for failure in failures):
        return None, failures
    if not failures:
        return claim.finding, []
    doubted = any(failure.doubted for failure in failures)
    confidence = Confidence.LOW if doubted else claim.finding.confidence
    severity = claim.finding.severity.at_most(Severity.LOW)
    return replace(claim.finding, severity=severity, confidence=confidence), failures
