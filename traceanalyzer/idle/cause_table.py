"""The causes of idle time: one table, which is what runs and what docs/accounting.md shows.

Proven causes come first. Each cuts out of a gap what its events cover, at least a tenth of the gap or 20 us, and
what one has taken the next cannot take. Of what remains the first judged cause that holds takes all. "Most" is at
least half. Launched late means that the launch of the next work began after the device ran dry, and in time that it
had begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from traceanalyzer.idle import judged, proven
from traceanalyzer.idle.evidence import Evidence
from traceanalyzer.idle.judged import Verdict
from traceanalyzer.idle.pieces import Proof
from traceanalyzer.model.finding import Confidence

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
        proven.before_recording,
        MEDIUM,
        "at the head of a device, before the recording tells anything of it, while it tells of another device",
        "the device may have been busy with work from before the recording",
    ),
    Proven(
        "graph-capture",
        FIRST,
        proven.graph_capture,
        HIGH,
        "in an op that captures a graph, or from the synchronisation before a capture to its end",
        "launches there start no work, whatever else the CPU does",
    ),
    Proven(
        "profiler-overhead",
        RECORDING,
        proven.profiler,
        HIGH,
        "a stall by the profiler, or prof.step()",
        "it swells whatever op or call contains it",
    ),
    Proven(
        "data-loading",
        LATE,
        proven.data_loading,
        HIGH,
        "a data loader's next(), or an annotation that says so",
        "contains ops and waits",
    ),
    Proven(
        "compilation",
        FIRST,
        proven.compilation,
        HIGH,
        "rows of a compiler",
        "contains ops, loading and copies",
    ),
    Proven(
        "module-loading",
        FIRST,
        proven.module_loading,
        HIGH,
        "rows and calls that load a module or a function",
        "hides in launch calls",
    ),
    Proven(
        "first-use",
        FIRST,
        proven.first_use,
        MEDIUM,
        "what the op did right before a kernel was loaded, but for queries without any event; allocator calls that do "
        "not recur from step to step; a call or op that stands still for 0.1 ms or more and ten times longer than its "
        "kind usually does, the first of its name or for a kernel that runs for the first time",
        "the start of a library or of the allocator looks like everyday calls",
    ),
    Proven(
        "allocator",
        LATE,
        proven.allocator,
        HIGH,
        "cudaMalloc, cudaFree and their like, which most steps have",
        "cudaFree waits for the device",
    ),
    Proven(
        "long-call",
        LATE,
        proven.long_call,
        MEDIUM,
        "as first use, but not the first of its kind",
        "would be taken for the CPU's work or for dispatching",
    ),
    Proven(
        "unknown",
        OPEN,
        proven.head_wait,
        LOW,
        "a synchronising call or blocking copy before the first work of the trace begins: what it waits for is not in "
        "the trace",
        "the CPU did not work, and no work is known that it waited for",
    ),
    Proven(
        "host-work",
        LATE,
        proven.host_work,
        HIGH,
        "an op of 0.1 ms or more that makes no call on the device's library and is not mostly views: it computes on "
        "the CPU",
        "is inside ops, as dispatching is, and launches nothing",
    ),
    Proven(
        "not-recorded",
        RECORDING,
        proven.not_recorded,
        MEDIUM,
        "at the tail, from the first launch on whose work is not in the trace; all of it where the file was cut",
        "the device may have been busy",
    ),
)

JUDGED: tuple[Judged, ...] = (
    Judged(
        "tail",
        RECORDING,
        judged.tail,
        HIGH,
        "nothing runs on the device any more",
        "no next work, so no launch to ask about",
    ),
    Judged(
        "in-graph",
        DEVICE,
        judged.in_graph,
        HIGH,
        "the next work's graph launch had begun its work",
        "no launch lies between a graph's nodes",
    ),
    Judged(
        "unlinked",
        RECORDING,
        judged.unlinked,
        HIGH,
        "the next work has no launch in the trace",
        "nothing on the CPU can be asked",
    ),
    Judged(
        "synchronisation",
        WAITED,
        judged.refill,
        HIGH,
        "launched in time, but the queue has been empty since a synchronising call, or this is the copy that such a "
        "call waits for",
        "the gap is short and looks like latency, but the call emptied the queue",
    ),
    Judged(
        "launch-latency",
        DEVICE,
        judged.usual_latency,
        HIGH,
        "launched in time, started after the device's usual delay",
        "the CPU is not the cause",
    ),
    Judged(
        "autotuning",
        FIRST,
        judged.autotuning,
        MEDIUM,
        "as synchronisation, where the call waits for an event inside a convolution or matrix product",
        "such an op waits for its own trials, not to read back",
    ),
    Judged(
        "blocking-upload",
        WAITED,
        judged.blocking_upload,
        HIGH,
        "as synchronisation, where the call is a copy to the device or waits in an op that only copies there. A call "
        "that began when the device was dry, and copied there itself, explains a gap only where it is most of it",
        "the same wait with another remedy",
    ),
    Judged(
        "synchronisation",
        WAITED,
        judged.drained,
        HIGH,
        "launched late; a synchronising call or blocking copy of the launching threads reaches into it, in which the "
        "CPU was when the device ran dry (or the gap is shorter than 0.2 ms, or it waited for most of it), and no "
        "stretch without ops that is longer than the CPU waited there covers most of it. Or the launch itself is a "
        "blocking copy whose call covers most of it",
        "the CPU could not launch while it waited, whatever it did after",
    ),
    Judged(
        "launch-latency",
        DEVICE,
        judged.long_launch,
        HIGH,
        "launched in time, and started when the launch call returned",
        "the call itself took a little long",
    ),
    Judged(
        "waiting",
        DEVICE,
        judged.waiting,
        LOW,
        "launched, but the start took longer than usual and most of the rest: after a wait for an event, or at the "
        "head of the trace after work that it does not show",
        "the launch was there: what the CPU did before it is not the cause",
    ),
    Judged("unknown", OPEN, judged.unknown, LOW, "as above, without a wait that explains it", "as above"),
    Judged(
        "engine",
        LATE,
        judged.engine,
        MEDIUM,
        "launched late; most of it between ops, on the autograd engine's thread",
        "stacks do not reach into it",
    ),
    Judged(
        "python",
        LATE,
        judged.python,
        HIGH,
        "launched late; most of it between ops of a thread that runs python, as stacks show",
        "no op is open",
    ),
    Judged(
        "host-code",
        LATE,
        judged.host_code,
        MEDIUM,
        "launched late; most of it between ops, without stacks",
        "python or other host code",
    ),
    Judged(
        "dispatching",
        LATE,
        judged.dispatching,
        HIGH,
        "launched late; most of it inside ops and calls",
        "what is left",
    ),
)

TABLE: tuple[Proven | Judged, ...] = (*PROVEN, *JUDGED)
CAUSES: tuple[str, ...] = tuple(dict.fromkeys(row.cause for row in TABLE))
SURE: dict[str, Confidence] = {row.cause: row.sure for row in TABLE}
GROUPS: dict[str, str] = {row.cause: row.group for row in TABLE}
