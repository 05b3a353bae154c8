"""The causes of idle time as a sentence, and what to do where no rule says more."""

from __future__ import annotations

# cause -> (what happened, what to do); of causes that have a rule of their own this is what that rule leaves.
TEXTS: dict[str, tuple[str, str]] = {
    "launch-latency": (
        "work was queued in time and started after the device's usual delay",
        "Fewer and larger kernels: fusion, CUDA graphs.",
    ),
    "in-graph": (
        "its work is a CUDA graph, with gaps between the nodes that no launch explains",
        "Fuse kernels within the graph.",
    ),
    "waiting": (
        "work was launched and waited for an event, or for work that the trace does not show",
        "See which stream or rank it waits for: enable_cuda_sync_events=True in the profiler names the event.",
    ),
    "unlinked": (
        "the launch of the next work is not in the trace",
        "Record longer: it was launched before recording began.",
    ),
    "tail": (
        "nothing more was launched to the end of the last step",
        "See what the CPU does after its last launch.",
    ),
    "unknown": (
        "work was launched in time, started late, and nothing says why",
        "Record with enable_cuda_sync_events=True.",
    ),
    "profiler-overhead": (
        "the profiler was at work",
        "Nothing to do: without the profiler this time is not lost.",
    ),
    "not-recorded": (
        "the trace ends before work that was launched",
        "Record more steps; a file that was cut has to be exported again.",
    ),
    "graph-capture": (
        "a CUDA graph was being captured: what it launches runs later",
        "Nothing to do: capture once, outside the steps that count.",
    ),
    "python": (
        "Python ran between two ops",
        "Take it out of the loop, or launch more work ahead of it.",
    ),
    "host-code": (
        "the CPU ran Python or other code between two ops",
        "Record with with_stack=True: it names the line.",
    ),
    "engine": (
        "the autograd engine was between two of its nodes",
        "Fewer nodes: fuse ops, or compile the model, so that backward has less to hand over.",
    ),
    "host-work": (
        "an op computed on the CPU",
        "See whether it can be done on the device, or once, ahead of the loop.",
    ),
    "first-use": (
        "something was used for the first time",
        "Record after a warm-up: schedule(wait=1, warmup=3).",
    ),
    "module-loading": (
        "kernels were loaded",
        "Record after a warm-up: schedule(wait=1, warmup=3).",
    ),
    "compilation": (
        "code was compiled",
        "Record after a warm-up; where it comes back, see why with TORCH_LOGS=recompiles.",
    ),
    "autotuning": (
        "a library timed its own kernels",
        "Record after a warm-up; shapes that change make it time again.",
    ),
    "allocator": (
        "memory was allocated or freed with the driver",
        "Keep sizes the same from step to step, and call no empty_cache() in the loop.",
    ),
    "data-loading": (
        "the next batch was being loaded",
        "See that batches are made ahead of the step.",
    ),
    "long-call": (
        "one op or call took far longer than its kind usually does",
        "See whether it comes back in a longer recording, and what else ran on the CPU then.",
    ),
    "synchronisation": (
        "the CPU had waited for the GPU, and nothing was queued",
        "Wait less often, or for less: launch the next work before asking for a result.",
    ),
    "blocking-upload": (
        "the CPU waited for a copy to the device",
        "Copy from pinned memory with non_blocking=True, or create the tensor on the device.",
    ),
    "dispatching": (
        "the CPU was inside the ops that launch the next work",
        "Fewer and larger kernels: fusion, CUDA graphs.",
    ),
    "start": (
        "recording began with an idle device, and the loop had to get under way",
        "Record more steps to see past it.",
    ),
}
ELSE = (
    "the CPU had not launched the next work yet",
    "See what the CPU does there in the trace viewer.",
)

# Causes that say of themselves why: whether they come back, or in which step they are, adds nothing.
SAYS_WHY = (
    *("not-recorded", "graph-capture", "profiler-overhead", "in-graph"),
    *("unlinked", "tail", "waiting", "unknown"),
)
# Causes that no change of the program's code takes away.
NOT_THE_CODE = (
    *("not-recorded", "graph-capture", "profiler-overhead", "launch-latency"),
    *("in-graph", "unlinked", "tail", "start"),
)
