"""The causes of idle time: one table, which is what runs and what docs/accounting.md shows.

Proven causes come first. Each takes the part of a gap that its events cover (at least a tenth of the gap or 20 µs), and
no later cause can take that part. The first judged cause that holds takes the rest. "Most" is at least half. "Launched
late": the launch of the next work began after the device became idle; "in time": before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from traceanalyzer.idle import cause_conditions
from traceanalyzer.idle.cause_conditions import Verdict
from traceanalyzer.idle.gap_evidence import Evidence
from traceanalyzer.idle.gap_segments import Proof
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.records import dataclass

HIGH, MEDIUM, LOW = Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


@dataclass(frozen=True, slots=True)
class Proven:
    """A cause whose evidence has a beginning and an end.

    Attributes:
        cause: kebab-case; several rows of the tables may name the same.
        group: whose time it is, in a few words.
        test: the proofs for it.
        sure: how sure the cause is where the test holds.
        holds: what the test looks for.
        why: why the row stands at this place.
    """

    cause: str
    group: str
    test: Callable[[Evidence], Iterator[Proof]]
    sure: Confidence
    holds: str
    why: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A cause for all that remains of a gap; attributes as in `Proven`, the test says for which gaps it holds."""

    cause: str
    group: str
    test: Callable[[Evidence], Verdict]
    sure: Confidence
    holds: str
    why: str


RECORDING, FIRST, LATE = "the recording", "getting started", "launched late"
WAITED, DEVICE, OPEN = "the CPU waited for the device", "the device", "open"

PROVEN: tuple[Proven, ...] = (
    Proven(
        "not-recorded",
        RECORDING,
        cause_conditions.before_recording,
        MEDIUM,
        "before the first recorded event of this device, while events of another device are recorded",
        "the device may have been busy with work from before the recording",
    ),
    Proven(
        "graph-capture",
        FIRST,
        cause_conditions.graph_capture,
        HIGH,
        "inside an op that captures a graph, or between the synchronisation before a capture and its end",
        "launches during a capture start no work",
    ),
    Proven(
        "profiler-overhead",
        RECORDING,
        cause_conditions.profiler,
        HIGH,
        "a stall by the profiler, or prof.step()",
        "it lengthens the op or call that contains it",
    ),
    Proven(
        "data-loading",
        LATE,
        cause_conditions.data_loading,
        HIGH,
        "a data loader's next(), or an annotation of data loading",
        "data loading contains ops and waits",
    ),
    Proven(
        "compilation",
        FIRST,
        cause_conditions.compilation,
        HIGH,
        "rows of a compiler",
        "compilation contains ops, module loading and copies",
    ),
    Proven(
        "module-loading",
        FIRST,
        cause_conditions.module_loading,
        HIGH,
        "rows and calls that load a module or a function",
        "module loading happens inside launch calls",
    ),
    Proven(
        "first-use",
        FIRST,
        cause_conditions.first_use,
        MEDIUM,
        "the op's time right before a kernel was loaded; allocator calls that do not recur from step to step; a "
        "call or op that stalls for at least 0.1 ms and ten times its usual time, and is the first of its name or "
        "launches a kernel that runs for the first time",
        "the start of a library or of the allocator consists of ordinary calls",
    ),
    Proven(
        "allocator",
        LATE,
        cause_conditions.allocator,
        HIGH,
        "cudaMalloc, cudaFree and similar calls that most steps make",
        "cudaFree waits for the device",
    ),
    Proven(
        "long-call",
        LATE,
        cause_conditions.long_call,
        MEDIUM,
        "like first use, but not the first call of its kind",
        "else it would count as host work or launch-bound",
    ),
    Proven(
        "unknown",
        OPEN,
        cause_conditions.head_wait,
        LOW,
        "a synchronising call or blocking copy before the first recorded work: the trace does not show what it "
        "waits for",
        "the CPU only waited, for work that is not recorded",
    ),
    Proven(
        "host-work",
        LATE,
        cause_conditions.host_work,
        HIGH,
        "an op of at least 0.1 ms that calls neither runtime nor driver and is not mostly views: it computes on the "
        "CPU",
        "it is inside ops, like dispatching, but launches nothing",
    ),
    Proven(
        "host-collective",
        LATE,
        cause_conditions.host_collective,
        HIGH,
        "an annotation of a collective on the CPU, such as gloo:all_reduce, while no other thread runs an op",
        "the collective's threads run no ops meanwhile: else it would count as host code",
    ),
    Proven(
        "not-recorded",
        RECORDING,
        cause_conditions.not_recorded,
        MEDIUM,
        "at the end, after the first launch whose work is not in the trace; the whole end if the file was cut. From "
        "the launch of a CUDA graph whose kernels are not in the trace to the next work",
        "the device may have been busy",
    ),
)

JUDGED: tuple[Judged, ...] = (
    Judged(
        "tail",
        RECORDING,
        cause_conditions.tail,
        HIGH,
        "no work follows on the device",
        "without next work there is no launch to explain the gap",
    ),
    Judged(
        "in-graph",
        DEVICE,
        cause_conditions.in_graph,
        HIGH,
        "the next work belongs to a CUDA graph that is already running",
        "no launch lies between a graph's nodes",
    ),
    Judged(
        "unlinked",
        RECORDING,
        cause_conditions.unlinked,
        HIGH,
        "the next work has no launch in the trace",
        "without a launch the CPU's events cannot explain the gap",
    ),
    Judged(
        "synchronisation",
        WAITED,
        cause_conditions.refill,
        HIGH,
        "launched in time, but the queue was empty since a synchronising call, or the next work is the copy that "
        "such a call waits for",
        "the gap is short and looks like latency, but the call emptied the queue",
    ),
    Judged(
        "launch-latency",
        DEVICE,
        cause_conditions.usual_latency,
        HIGH,
        "launched in time, started after the device's usual delay",
        "the CPU is not the cause",
    ),
    Judged(
        "autotuning",
        FIRST,
        cause_conditions.autotuning,
        MEDIUM,
        "like synchronisation, if the call waits for an event inside a convolution or matrix product",
        "such an op waits for its own trial runs, not for a value",
    ),
    Judged(
        "blocking-upload",
        WAITED,
        cause_conditions.blocking_upload,
        HIGH,
        "like synchronisation, if the call is a copy to the device or waits in an op that only copies there. A call "
        "that itself copies, and began while the device was idle, explains a gap only if it covers most of it",
        "the same wait, but another remedy",
    ),
    Judged(
        "synchronisation",
        WAITED,
        cause_conditions.drained,
        HIGH,
        "launched late; a synchronising call or blocking copy of a launching thread reaches into the gap. The CPU "
        "was in this call when the device became idle, or the gap is shorter than 0.2 ms, or the call covers most "
        "of it. The CPU does not spend most of the gap, and at least 0.2 ms, between ops. Or the launch itself is a "
        "blocking copy whose call covers most of the gap",
        "the CPU could not launch while it waited",
    ),
    Judged(
        "launch-latency",
        DEVICE,
        cause_conditions.long_launch,
        HIGH,
        "launched in time, and started when the launch call returned",
        "only the launch call was slow",
    ),
    Judged(
        "waiting",
        DEVICE,
        cause_conditions.waiting,
        LOW,
        "launched, but started later than usual, for most of the remaining gap: after a wait for an event, or at "
        "the start of the trace behind work that is not recorded",
        "the launch came in time, so the CPU is not the cause",
    ),
    Judged(
        "unknown",
        OPEN,
        cause_conditions.unknown,
        LOW,
        "like waiting, but no recorded wait explains it",
        "the CPU is not the cause, and no other cause is recorded",
    ),
    Judged(
        "engine",
        LATE,
        cause_conditions.engine,
        MEDIUM,
        "launched late; most of the gap between ops, on the autograd engine's thread",
        "Python stacks do not show the engine's code",
    ),
    Judged(
        "python",
        LATE,
        cause_conditions.python,
        HIGH,
        "launched late; most of the gap between ops of a thread that runs Python, as stacks show",
        "no op is open",
    ),
    Judged(
        "host-code",
        LATE,
        cause_conditions.host_code,
        MEDIUM,
        "launched late; most of the gap between ops, without stacks",
        "Python or other host code",
    ),
    Judged(
        "dispatching",
        LATE,
        cause_conditions.dispatching,
        HIGH,
        "launched late; most of the gap inside ops and calls",
        "no other cause applies",
    ),
)

TABLE: tuple[Proven | Judged, ...] = (*PROVEN, *JUDGED)
CAUSES: tuple[str, ...] = tuple(dict.fromkeys(row.cause for row in TABLE))
GROUPS: dict[str, str] = {row.cause: row.group for row in TABLE}
