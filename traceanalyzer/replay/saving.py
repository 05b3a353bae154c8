"""The step without the profiler, and what edits save of it, each with its interval. Said here and nowhere else.

An interval holds the range of the replays over the range of slowdowns, and how far reported savings were from the truth
(calibration.py), below and above apart, in units of the standard deviation sqrt(s (1 - s)) of the share s, because next
to nothing and next to all are easily told; or how far the mean of what goes is known from so few steps, if that is
more. Of all this it is the part that holds the truth in four of five unseen pairs, by what sets the pace. No end lies
above what the device leaves of the longest plausible step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import GivenStep, Saving, StepEstimate
from traceanalyzer.model.trace import Trace
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.calibration import GPUS, INTERVAL_PART, RESIDUAL, STEP_RESIDUAL
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import DropWork, Edit, apply_edits
from traceanalyzer.replay.program import Program, loading
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch
from traceanalyzer.replay.run import LEAST, PROCESS, RECORDED, Bound, Step, run, run_at, unexplained_ns, unknown
from traceanalyzer.replay.sample import Sample, slow_steps
from traceanalyzer.replay.slowdown import Slowdown
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.steps import Steps

# About STEP_RESIDUAL, the replayed step's error: less idle time than this may be none.
MIN_OPEN_SHARE = 0.1
# Of a step: clocks differ from run to run by less, a slip of unit or of trace is far more; chosen.
_NOISE = 0.1
# Two pairs: 38 % was said where 42 % was measured, and 23 % where it was 8, since the even ranks were bound by the CPU;
# ranks/moe_a2a and ranks/imbalance, 2 H200.
_SPLIT_RESIDUALS = (0.37, 0.37)
# Wider than the ledger's, of one GPU: chosen. Not with stacks: 31 programs so recorded were as near as 71 others.
_ELSEWHERE, _ONE_STEP = 1.5, 1.25
# Share of the work that an edit leaves alone and the true fix does, too: in 56 of 58 measured pairs whose fix changes
# work; in hand-written-attention 0.67 of it, H200.
_LEFT_ALONE = 0.8
_SOLVED = 1e-3
_WORTH = Severity.MEDIUM.least_share  # of the step: less idle time is none that anybody can be sure of
_STRENGTHS = (0.0, 2.0)  # of what the profiler is said to add, between which the user's step is looked for


@dataclass(frozen=True, slots=True)
class Forecast:
    """The program's replays: the step, and what any edits save of it.

    Attributes:
        replays: of the program at these slowdowns, with any edits.
        wider: by how much savings' intervals are wider than those of the ledger.
        given_ns: the measured step, its most and its least, at these slowdowns; what of it no replay has stays.
        loading_ns: that a recorded step waits for data.
    """

    replays: "Replays"
    step: StepEstimate
    wider: float = 1.0
    given_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    loading_ns: float = 0.0

    @property
    def program(self) -> Program:
        return self.replays.program

    @property
    def base(self) -> tuple[Step, Step, Step]:
        """The replays without edits, at the typical, the low and the high slowdown."""
        return self.replays.steps(())

    @property
    def _wholes_ns(self) -> list[float]:
        """The step that savings are shares of, at each slowdown."""
        return [max(step.ns, given) for step, given in zip(self.base, self.given_ns, strict=True)]

    @classmethod
    def build(cls, trace: Trace, nesting: Nesting, work: DeviceWork, steps: Steps, program: Program) -> Self:
        """From the trace alone; `pinned` where the user knows the step."""
        slowdown = program.segments.slowed.range
        replays = Replays(program, slowdown)
        base = replays.steps(())
        times = [step.ns for step in base]
        basis = f"{program.sample.text} replayed; slowdown {slowdown.typical:.1f}, {slowdown.basis}"
        if program.awaited >= LEAST:
            basis += "; what collectives wait for is taken for other ranks' launching"
        traced = round(_traced_ns(steps, program))
        lacking = unexplained_ns(traced - program.waited_ns, run(EditedProgram(program), RECORDED).ns)
        low, high = min(times) * (1 - STEP_RESIDUAL), (max(times) + lacking) * (1 + STEP_RESIDUAL)
        wholes = [ns + lacking for ns in times]
        step = StepEstimate(
            traced,
            min(round(wholes[0]), traced),  # recording makes no step shorter
            min(round(low), traced),
            round(high),
            "wait" if lacking else base[0].bound,
            basis,
            ("wait",) if lacking else possible_bounds(base),
            *base[0].on_device,
            program.sample.left_out,
            slow=slow_steps(trace, nesting, work, steps, program.sample, program.timeline.threads),
            unexplained_ns=round(lacking),
        )
        given_ns = (wholes[0], wholes[1], wholes[2]) if lacking else (0.0, 0.0, 0.0)
        loading_ns = _loading_ns(trace, nesting, work, program)
        return cls(replays, step, _wider(trace, program), given_ns, loading_ns)

    def pinned(self, measured: GivenStep) -> Self:
        """The same where the step without the profiler is measured: the slowdowns that make it so.

        Near a tie of CPU and GPU a few percent decide what a fix saves, so the ends of what was measured are replayed.
        What the step waits for late batches is no work of the program's, so it is none that the profiler slows.
        """
        least, most = measured.range_ms
        given_ns = (measured.ms * 1e6, most * 1e6, least * 1e6)
        program = replace(self.program, late_ns=self._late_ns(measured.waiting_ms))
        replays = Replays(program, _solve(program, given_ns))
        base = replays.steps(())
        basis = f"{self.program.sample.text} replayed; {replays.slowdown.basis}"
        wholes = [max(step.ns, given) for step, given in zip(base, given_ns, strict=True)]
        bound = _bound_in(base[0], wholes[0]), basis, possible_bounds(base, wholes)
        whole, low, high = (round(ms * 1e6) for ms in (measured.ms, measured.low_ms, measured.high_ms))
        traced, slow = self.step.traced_ns, self.step.slow
        step = StepEstimate(traced, whole, low, high, *bound, *base[0].on_device, timed=True, slow=slow)
        return replace(self, replays=replays, step=step, given_ns=given_ns)

    def _late_ns(self, waiting_ms: float) -> float:
        """What a step waits for its batch without the profiler, and does not in the recording."""
        return max(waiting_ms * 1e6 - self.loading_ns, 0.0)

    def doubt(self, step_ms: float, waiting_ms: float = 0.0) -> str | None:
        """Why a step of `step_ms`, of it `waiting_ms` for late batches, cannot be of this run; None where it can."""
        recorded = self.step.traced_ns
        late_ns = Forecast._late_ns(self, waiting_ms) if waiting_ms else 0.0
        if step_ms * 1e6 - late_ns > recorded * (1 + _NOISE):
            return f"a step takes only {format_ns(recorded)} even with the profiler"
        return Forecast.too_short(self, step_ms)

    def too_short(self, step_ms: float) -> str | None:
        """Why no step of this run can be as short as `step_ms`; None where one can."""
        busy = self.program.least_gpu_ns
        if step_ms * 1e6 < busy * (1 - _NOISE):
            return f"the GPU alone is busy for {format_ns(round(busy))} of each step"
        return None

    def fixed(self, edits: Sequence[Edit]) -> StepEstimate:
        """The step when the edits are made: those of all findings together, each nanosecond saved once."""
        said, after = self._saving(edits)
        whole = self.step.unprofiled_ns
        low, high = max(whole - said.high_ns, 0), whole - said.low_ns
        basis = f"{self.program.sample.text} replayed with all findings fixed"
        bound = after.bound, basis, (after.bound,), *after.on_device
        return StepEstimate(self.step.traced_ns, whole - said.step_ns, low, high, *bound)

    def saving(self, edits: Sequence[Edit], given: Sequence[Edit] = ()) -> Saving:
        """What the edits save together, of one finding or of several; with `given`, on top of what those save."""
        return self._saving(edits, given)[0]

    def _saving(self, edits: Sequence[Edit], given: Sequence[Edit] = ()) -> tuple[Saving, Step]:
        """(what the edits save together, the step then at the typical slowdown)."""
        every = [*given, *edits]
        before, left = self.replays.steps(given), self.replays.edited(every)
        fixed = self.replays.steps(every, left)
        wholes = self._wholes_ns
        shares = [
            (start.ns - after.ns) / whole if whole > 0 else 0.0
            for whole, start, after in zip(wholes, before, fixed, strict=True)
        ]
        share, (below, above) = shares[0], self._residuals(edits, left)
        process = max(PROCESS[step.bound] for step in (self.base[0], fixed[0])) if edits else 0.0
        rare = left.unsteady_ns / max(self.step.traced_ns, 1)
        low = min(*shares, share - max(_spread(share, below, 0.0), rare))
        at_first = max(one.ns / max(whole, 1.0) for whole, one in zip(wholes, before, strict=True))
        most = at_first - self._surely_busy_ns(left, edits) / max(self.step.high_ns, 1)
        if (self.program.segments.driver & ~left.kept).any():
            most = 1.0  # the driver's own calls take up to twice as long without the profiler: the step may be longer
        high = min(max(*shares, min(share + max(_spread(share, above, process), rare), most)), 1.0)
        if not left.waits.all():  # whether work starts as late after other work, nobody knows
            steps = len(self.program.sample) * self.program.sample.part
            low = min(low, share - self.program.work.late_ns / steps / max(wholes[0], 1.0))
        if self.base[0].bound != "gpu":
            # More than the device idles once fixed, in the shortest plausible step, nobody can be sure to save.
            idle = 1 - fixed[0].gpu_ns / max(self.step.low_ns, 1)
            low = min(low, idle if idle >= _WORTH else 0.0)
        parts = (getattr(edit, "least_part", 1.0) for edit in edits)
        low = min(low, max(share, 0.0) * min(parts, default=1.0))
        most_parts = (getattr(edit, "most_part", 1.0) for edit in edits)
        high = max(high, min(share * max(most_parts, default=1.0), 1.0))
        # The interval holds as often as is stated; what may save nothing still may.
        part = max((INTERVAL_PART.get(bound, 1.0) for bound in self.step.bounds), default=1.0)
        part = 1.0 if any(edit.kind == "balance" for edit in edits) else part
        low, high = share - part * (share - low) if low > 0 else low, share + part * (high - share)
        unit = self.step.unprofiled_ns
        basis = f"replayed without it: {self.program.sample.text}, bound by the {_WORD[fixed[0].bound]} then"
        if (cold := left.quickened_ns / (len(self.program.sample) * self.program.sample.part)) > LEAST * unit:
            basis += f"; recorded, {format_ns(round(cold))} a step of it is what ran cold after it"
        in_ns = round(share * unit), round(low * unit), round(high * unit)
        return Saving(*in_ns, share, low, high, basis, beyond=bool(given)), fixed[0]

    def _surely_busy_ns(self, left: EditedProgram, edits: Sequence[Edit]) -> float:
        """What the device still has to do in a step, however much the edits save: no step is shorter.

        Work that edits change may take any time, and the true fix may reach as much again; communication waits for
        other ranks. Where the CPU alone does less, all other work stays, with the gaps between what is queued: then
        no more is saved than the device idles.
        """
        program = self.program
        stays = left.alive & ~program.work.communication & (left.stream == program.work.stream)
        # What is longer stands for others: it may be shorter as well.
        stays &= left.dur_ns == program.work.dur_ns
        of_cpu = {edit.kind for edit in edits} <= {"drop"}
        gaps_ns = left.gap_ns if of_cpu else 0.0
        busy_ns = np.bincount(left.stream, np.where(stays, left.dur_ns + gaps_ns, 0.0))
        changed_ns = float(program.work.dur_ns[~stays & ~program.work.communication].sum())
        may_go_ns = 0.0 if of_cpu else np.minimum(changed_ns, (1 - _LEFT_ALONE) * busy_ns)
        return float((busy_ns - may_go_ns).max(initial=0.0)) / (len(program.sample) * program.sample.part)

    def _residuals(self, edits: Sequence[Edit], left: EditedProgram) -> tuple[float, float]:
        """How far below and above the truth may be, per sqrt(s (1 - s)); `left` is what the edits left."""
        if not edits:
            return 0.0, 0.0
        below, above = RESIDUAL[evidence(edits, left)]
        if any(edit.kind == "balance" for edit in edits):
            below, above = max(below, _SPLIT_RESIDUALS[0]), max(above, _SPLIT_RESIDUALS[1])
        return below * self.wider, above * self.wider

    @property
    def idle_share(self) -> float:
        """Share of the unprofiled step in which the device that has most to do does nothing (0 to 1)."""
        whole = self._wholes_ns[0]
        return max(0.0, 1 - self.base[0].gpu_ns / whole) if whole > 0 else 0.0

    @property
    def busy_share(self) -> float:
        """Share of the unprofiled step that the busiest stream works, with the quickest CPU that is plausible."""
        steps = zip(self.base, self._wholes_ns, strict=True)
        shares = [step.gpu_ns / max(whole, 1.0) for step, whole in steps]
        return min(max(0.0, *shares), 1.0)


def evidence(edits: Sequence[Edit], left: EditedProgram) -> str:
    """What a saving rests on: a group of calibration.RESIDUAL.

    "loops" where many calls become one, which nobody has seen; "waits" where the CPU waits no more, a part of which
    recordings hide; "gone" where work goes, and its readers may be slower; "measured" where what was seen shrinks.
    """
    if any(isinstance(edit, Batch | GraphLaunch | Compile) for edit in edits):
        return "loops"
    if not left.waits.all():
        return "waits"
    return "gone" if any(isinstance(edit, DropWork | Fuse) for edit in edits) else "measured"


def possible_bounds(base: tuple[Step, Step, Step], wholes: Sequence[float] = ()) -> tuple[Bound, ...]:
    """The bound; two if the device idles at one slowdown alone; `wholes` is how long the step was measured at each."""
    wholes = wholes or [step.ns for step in base]
    idle = [1 - step.gpu_ns / max(whole, 1.0) for step, whole in zip(base, wholes, strict=True)]
    least, most = (chosen(range(len(idle)), key=idle.__getitem__) for chosen in (min, max))
    if not idle[least] < MIN_OPEN_SHARE <= idle[most]:
        return (_bound_in(base[0], wholes[0]),)
    busy: Bound = "communication" if base[least].bound == "communication" else "gpu"
    return busy, "wait" if base[most].bound == "wait" else "cpu"


def _bound_in(step: Step, whole: float) -> Bound:
    """What sets the pace: the CPU, where the measured step leaves a busy device time that no replay has."""
    idle = 1 - step.gpu_ns / max(whole, 1.0)
    return "cpu" if idle >= MIN_OPEN_SHARE and step.bound in ("gpu", "communication") else step.bound


_WORD = {"gpu": "GPU", "cpu": "CPU", "wait": "waits of one for the other", "communication": "communication"}


def _spread(share: float, residual: float, process: float) -> float:
    return residual * float(np.sqrt(abs(share) * abs(1 - share))) + unknown(share, process)


def _wider(trace: Trace, program: Program) -> float:
    """By how much less is known of this recording than of those of the ledger."""
    elsewhere = any(device.name not in GPUS for device in trace.meta.devices)
    return (_ELSEWHERE if elsewhere else 1.0) * (_ONE_STEP if len(program.sample) == 1 else 1.0)


def _loading_ns(trace: Trace, nesting: Nesting, work: DeviceWork, program: Program) -> float:
    """What a sampled step waits for data, as recorded."""
    loads, sample = loading(trace, nesting, work), program.sample
    return float(intervals.covered(loads, sample.begin_ns, sample.end_ns).mean()) / sample.part


def _traced_ns(steps: Steps, program: Program) -> float:
    """Mean of the sampled steps, as the replay's step is one: on the busiest device, or on the CPU where it is longer.

    Of the CPU without what it waits for work that earlier steps have queued, as before the last mark's end: that is
    their time. A single step has no next one: it lasts until its work is done.
    """
    sample = program.sample
    if len(steps) == 1:
        begin = max(int(steps.cpu_start_ns[0]), steps.window_start_ns)
        return float(max(int(steps.cpu_end_ns[0]), program.work.end_ns) - begin)
    on_device = [np.mean(steps.durations_ns(device)[sample.steps]) for device in steps.bounds_ns]
    on_cpu = np.mean(steps.durations_ns()[sample.steps]) - drained_ns(steps, sample) / len(sample)
    return float(max([on_cpu, *on_device]))


def drained_ns(steps: Steps, sample: Sample) -> int:
    """By how much less the device is behind the CPU after the sampled steps than before them."""
    marks = np.append(steps.cpu_start_ns, steps.cpu_end_ns[-1:])
    ends = [sample.steps[0], sample.steps[-1] + 1]
    behind = [np.maximum(bounds[ends] - marks[ends], 0) for bounds in steps.bounds_ns.values()]
    return max((int(before - after) for before, after in behind if before > after), default=0)


def _solve(program: Program, wanted_ns: tuple[float, float, float]) -> Slowdown:
    """The slowdowns at which the step takes so long, and at the most and at the least of what was measured."""
    edited, slowed = EditedProgram(program), program.segments.slowed
    slow, quick = (run(edited, slowed.slowdown(strength)).ns for strength in _STRENGTHS)
    basis = "the slowdown is chosen to give the measured step"
    if not quick < wanted_ns[0] < slow:
        basis = "no slowdown gives the measured step: what the replay lacks of it stays"
    typical, low, high = (
        slowed.slowdown(_strength(edited, one, slow, quick)) if slow > quick else slowed.slowdown(1.0)
        for one in wanted_ns
    )
    return Slowdown(low, typical, high, basis)


def _strength(edited: EditedProgram, wanted_ns: float, slow: float, quick: float) -> float:
    """Times that the profiler adds of what it is said to add, where the step takes so long; by bisection."""
    low, high = _STRENGTHS
    if wanted_ns >= slow or wanted_ns <= quick:
        return low if wanted_ns >= slow else high
    while high - low > _SOLVED:
        middle = (low + high) / 2
        if run(edited, edited.program.segments.slowed.slowdown(middle)).ns > wanted_ns:
            low = middle
        else:
            high = middle
    return (low + high) / 2


_Steps = tuple[Step, Step, Step]


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of a program with any edits, whose CPU the profiler is taken to have slowed by `slowdown`."""

    program: Program
    slowdown: Slowdown
    # By the identities of the edits, which are kept so that no others get these.
    _known: dict[tuple[int, ...], tuple[tuple[Edit, ...], _Steps]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def edited(self, edits: Sequence[Edit]) -> EditedProgram:
        return apply_edits(self.program, edits)

    def steps(self, edits: Sequence[Edit], edited: EditedProgram | None = None) -> _Steps:
        """The step with the edits made, at the typical, low and high slowdown; `edited` is the program with them.

        A finding's edits come alone, under those of others, in those of its fault and in those of all findings: often
        the same ones twice.
        """
        key = tuple(map(id, edits))
        if key not in self._known:
            edited = self.edited(edits) if edited is None else edited
            speeds = self.slowdown.typical, self.slowdown.low, self.slowdown.high
            each = tuple(dict.fromkeys(speeds))  # all equal where the user pinned them
            step_at = dict(zip(each, run_at(edited, each), strict=True))
            self._known[key] = tuple(edits), (step_at[speeds[0]], step_at[speeds[1]], step_at[speeds[2]])
        return self._known[key][1]


def only_profiled(forecast: Forecast | None) -> bool:
    """Whether the device may be busy all the time without the profiler: idle time in the trace is no fault then."""
    return forecast is not None and forecast.busy_share > 1 - MIN_OPEN_SHARE


def is_busy(forecast: Forecast | None) -> bool:
    """Whether the device is busy all the time without the profiler, as fast or as slow as the CPU may plausibly be."""
    return forecast is not None and only_profiled(forecast) and not forecast.step.open
