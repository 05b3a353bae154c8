"""The words for every cause of idle time, for all renderers, rules and verdicts."""

from __future__ import annotations

from typing import NamedTuple

from traceanalyzer.model.finding import NOTHING_TO_DO


class CauseText(NamedTuple):
    """How people call a cause.

    Attributes:
        name: of the bar, the page and Perfetto's track: "launch-bound".
        idle: after "the GPU is idle": "while the CPU launches kernel after kernel".
        happened: a sentence after "since".
        advice: what to do where no rule says more; of causes that have a rule, for what that rule leaves.
    """

    name: str
    idle: str
    happened: str
    advice: str


TEXTS: dict[str, CauseText] = {
    "launch-latency": CauseText(
        "launched, not yet started",
        "between the launch of a kernel and its start",
        "work was queued in time and started after the device's usual delay",
        "Fewer and larger kernels: fusion, CUDA graphs.",
    ),
    "in-graph": CauseText(
        "inside a CUDA graph",
        "between the nodes of a CUDA graph",
        "the work is a CUDA graph, and the gaps are between its nodes",
        "Fuse kernels within the graph.",
    ),
    "waiting": CauseText(
        "waiting for other work",
        "while work waits for an event",
        "work was launched and waited for an event, or for work that the trace does not show",
        "See which stream or rank it waits for: record with {enable_cuda_sync_events=True}.",
    ),
    "unlinked": CauseText(
        "launch not recorded",
        "before work whose launch is not recorded",
        "the launch of the next work is not in the trace",
        "Record longer: the work was launched before recording began.",
    ),
    "tail": CauseText(
        "end of the recording",
        "after the last recorded launch",
        "nothing was launched between its last work and the end of the recording",
        "See what the CPU does after its last launch.",
    ),
    "unknown": CauseText(
        "not explained",
        "for reasons that the trace does not show",
        "work was launched in time and started late, without a recorded reason",
        "Look for another process on the GPU (nvidia-smi), and for a driver that submits in batches (WDDM, WSL).",
    ),
    "profiler-overhead": CauseText(
        "profiler overhead",
        "while the profiler works",
        "the profiler was busy",
        f"{NOTHING_TO_DO}: without the profiler there is no such idle time.",
    ),
    "not-recorded": CauseText(
        "not recorded",
        "before and after what is recorded",
        "work was launched that is not in the trace",
        "If the file is truncated, export it again. To see kernels of CUDA graphs, record a step without the graph.",
    ),
    "graph-capture": CauseText(
        "graph capture",
        "while a CUDA graph is captured",
        "a CUDA graph was being captured, so its launches start no work",
        "Capture before the steps that you measure: they then only replay the graph.",
    ),
    "python": CauseText(
        "Python between ops",
        "while Python runs between ops",
        "Python ran between two ops",
        "Move it out of the loop, or launch more work before it.",
    ),
    "host-code": CauseText(
        "host code between ops",
        "while host code runs between ops",
        "the CPU ran Python or other code between two ops",
        "Pass with_stack=True when you record: it names the line.",
    ),
    "engine": CauseText(
        "autograd engine",
        "while the autograd engine runs",
        "the autograd engine was between two of its nodes",
        "Fuse ops or compile the model, so that backward has fewer nodes.",
    ),
    "host-work": CauseText(
        "CPU work inside an op",
        "while an op computes on the CPU",
        "an op computed on the CPU",
        "Run it on the device, or once before the loop, if possible.",
    ),
    "first-use": CauseText(
        "first use of a library",
        "while libraries are used for the first time",
        "a library or a kernel was used for the first time",
        "Record after a warm-up: schedule(wait=1, warmup=3).",
    ),
    "module-loading": CauseText(
        "module loading",
        "while kernels are loaded",
        "kernels were loaded",
        "Record after a warm-up: schedule(wait=1, warmup=3).",
    ),
    "compilation": CauseText(
        "compilation",
        "while code is compiled",
        "code was compiled",
        "Record after a warm-up; if it recurs, TORCH_LOGS=recompiles shows why.",
    ),
    "autotuning": CauseText(
        "autotuning",
        "while a library times its kernels",
        "a library timed its own kernels",
        "Record after a warm-up; changing shapes restart the timing.",
    ),
    "allocator": CauseText(
        "allocator",
        "while memory is allocated",
        "memory was allocated or freed with the driver",
        "Keep sizes the same from step to step, and do not call empty_cache() in the loop.",
    ),
    "data-loading": CauseText(
        "data loading",
        "while data is loaded",
        "the next batch was being loaded",
        "Prepare batches ahead of the step.",
    ),
    "host-collective": CauseText(
        "collective on the CPU",
        "while the CPU carries out collectives",
        "the CPU carried out a collective",
        "Use NCCL, which reduces on the GPUs.",
    ),
    "long-call": CauseText(
        "slow call on the CPU",
        "while single calls take unusually long",
        "one such call on the CPU, or a call within it, took unusually long",
        "See what else runs on the CPU then: other processes, other threads, too few cores.",
    ),
    "synchronisation": CauseText(
        "after synchronisation",
        "after synchronisations, when nothing is queued",
        "the CPU waited for the GPU, and nothing was queued after that",
        "Synchronise less often, or launch the next work before you ask for a result.",
    ),
    "blocking-upload": CauseText(
        "after a blocking copy",
        "while the CPU waits for copies to the device",
        "the CPU waited for a copy to the device",
        "Copy from pinned memory with non_blocking=True, or create the tensor on the device.",
    ),
    "dispatching": CauseText(
        "waiting for launches",
        "while the CPU launches kernel after kernel",
        "the CPU was inside the ops that launch the next work",
        "Fewer and larger kernels: fusion, CUDA graphs.",
    ),
    "start": CauseText(
        "start",
        "while the loop starts",
        "the recording began before the loop had queued any work",
        "Record more steps: later ones do not have this idle time.",
    ),
}
ELSE = CauseText(
    "other",
    "for another reason",
    "the CPU had not launched the next work yet",
    "Look in the trace viewer at what the CPU does there.",
)

# Causes that say of themselves why: whether they come back, or in which step they are, adds nothing.
SAYS_WHY = (
    *("not-recorded", "graph-capture", "profiler-overhead", "in-graph"),
    *("unlinked", "tail", "waiting", "unknown"),
)
# Causes of a gap that goes by between two ops for the most part, without and with stacks.
BETWEEN_OPS = ("host-code", "python")
# Causes that no change of the program's code takes away.
NOT_THE_CODE = (
    *("not-recorded", "graph-capture", "profiler-overhead", "launch-latency"),
    *("in-graph", "unlinked", "tail", "start"),
)
