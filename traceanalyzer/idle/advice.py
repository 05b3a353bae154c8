"""What to say of each cause of idle time: what happened, what to do, how sure, and whose loss it is."""

from __future__ import annotations

ONCE = "-once"  # suffix of a cause that stands out in a single step

# cause -> (what happened, what to do); fields in braces come from the finding's evidence
TEXTS = {
    "dispatching": (
        "the CPU was still dispatching when the device ran dry, before {ops}",
        "Launch less often: CUDA graphs (mode='reduce-overhead'), torch.compile where it is not in use yet, fused or "
        "foreach kernels, larger batches.",
    ),
    "python": (
        "python between ops kept the CPU from launching, before {ops}; the longest in {where}",
        "Move that python out of the loop, vectorise it, or run it while the device has work queued.",
    ),
    "host-code": (
        "for most of it the CPU ran no op and launched nothing, before {ops}; without stacks python cannot be told "
        "from other code",
        "Record with with_stack=True to see the code; suspects are python between ops, garbage collection, logging.",
    ),
    "engine": (
        "the autograd engine's thread mostly ran no op and launched nothing, before {ops}; stacks do not reach into it",
        "Backward starts and hands over between nodes here. torch.compile or CUDA graphs leave less of it to the CPU.",
    ),
    "data-loading": (
        "the CPU was waiting for data ({ops})",
        "Load ahead: num_workers above 0, pin_memory, a larger prefetch_factor, cheaper transforms, preprocessed data.",
    ),
    "compilation": (
        "code was being compiled ({ops})",
        "Warm up before measuring; in steady state look for recompilation: TORCH_LOGS=recompiles, mark dynamic shapes.",
    ),
    "module-loading": (
        "kernels were being loaded for the first time ({ops})",
        "Warm up before measuring; CUDA_MODULE_LOADING=EAGER loads everything at the start.",
    ),
    "long-call": (
        "one call or op stood still for most of it, far longer than its kind does or alone of its kind: {ops}",
        "If it is first use, warm up before measuring. If it comes back, look at what that call waits for.",
    ),
    "allocator": (
        "the CPU was in cudaMalloc or cudaFree, most in {ops}",
        "Keep memory cached: no empty_cache() in the loop, expandable_segments, or a smaller peak.",
    ),
    "synchronisation": (
        "the CPU waited for the device at {ops} and then had to launch anew ({outside} of it outside any op)",
        "Avoid the read-back or do it less often: no .item(), .cpu(), nonzero or synchronize() inside the step.",
    ),
    "blocking-upload": (
        "the CPU was held up in a copy to the device and then had to launch anew: {ops}",
        "Copy from pinned memory (pin_memory=True in the DataLoader) with non_blocking=True, ahead of its use.",
    ),
    "profiler-overhead": (
        "the profiler was at work ({ops}), not your code",
        "Nothing to do: without the profiler this time is not lost. A longer warm-up moves it out of the window.",
    ),
    "launch-latency": (
        "work was queued in time and started after the device's usual delay, or when its launch call returned: {ops}",
        "Only fewer and larger kernels reduce it: fusion, CUDA graphs.",
    ),
    "in-graph": (
        "gaps between the nodes of a CUDA graph; no launch is involved",
        "Fuse kernels within the graph.",
    ),
    "waiting": (
        "work was launched but held up after an event or after work that the trace does not show: {ops}",
        "See which stream or rank it waits for; enable_cuda_sync_events=True in the profiler names the event.",
    ),
    "unlinked": (
        "the next work's launch is not in the trace",
        "It was launched before recording began: record longer.",
    ),
    "graph-capture": (
        "a CUDA graph was being captured, which starts no work",
        "Capture once, before the loop.",
    ),
    "first-use": (
        "a library or a kernel was used for the first time ({ops})",
        "Warm up before measuring.",
    ),
    "host-work": (
        "ops that work on the CPU kept it from launching: {ops}",
        "Do it on the device, in a loader's worker, or while the device has work queued.",
    ),
    "autotuning": (
        "kernels were being tried out: {ops}",
        "Warm up before measuring; shapes that change start it anew (torch.backends.cudnn.benchmark).",
    ),
    "not-recorded": (
        "work was launched that the trace does not show",
        "Record longer; what ran here is not known.",
    ),
    "tail": (
        "nothing more was launched before the last step ended",
        "Look at what the CPU does after its last launch.",
    ),
    "unknown": (
        "work was launched in time, started late, and nothing says why: {ops}",
        "Look at the events named; enable_cuda_sync_events=True in the profiler may show a wait.",
    ),
    "start": (
        "recording began with an idle device, and the loop had to get under way again",
        "Nothing to do: the profiler waits for the device when it starts. Record more steps to see past it.",
    ),
    "once": ("", "Look whether it comes back in a longer recording before changing anything."),
}
# Only these can be a hiccup or the recording getting under way: the others name what happened.
NO_MORE_THAN_LATE = (
    "dispatching",
    "python",
    "host-code",
    "launch-latency",
)
NOBODYS_LOSS = (
    "profiler-overhead",
    "launch-latency",
    "in-graph",
    "unlinked",
    "not-recorded",
    "graph-capture",
    "tail",
    "start",
)
