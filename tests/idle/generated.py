"""Random traces: several devices, streams and threads, work that overlaps or lasts no time, lost launches, graphs."""

from hypothesis import strategies as st

from tests.support.trace_builder import PID, TraceBuilder

HORIZON = 20_000  # ns; short, so that starts and ends often coincide
KERNELS = ("void gemm(float*)", "void add(float*)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")
COPIES = (
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy DtoH (Device -> Pinned)",
    "Memcpy DtoD (Device -> Device)",
    "Memcpy PtoP (Device -> Device)",
    "Memcpy HtoA (Host -> Array)",
)
CALLS = (
    "cudaMalloc",
    "cudaFree",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaStreamWaitEvent",
    "cudaFuncGetAttributes",
    "cuModuleLoadData",
)
OPS = (
    "aten::mm",
    "aten::add",
    "aten::copy_",
    "aten::item",
    "Torch-Compiled Region: 0/0",
    "_compile.inner (dynamo_timed)",
)
MARKS = ("## forward ##", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step")
OVERHEADS = ("Activity Buffer Request", "Buffer Flush", "Lazy Function Loading", "Command Buffer Full")

_starts = st.integers(0, HORIZON)
_lengths = st.one_of(st.just(0), st.integers(0, 400), st.integers(0, HORIZON // 4))
_threads = st.integers(PID, PID + 2)


@st.composite
def traces(draw: st.DrawFn, *, stacks: bool | None = None) -> TraceBuilder:
    """A trace of anything that may be in one, with at least one piece of work."""
    trace = TraceBuilder()
    _add_steps(draw, trace)
    _add_host(draw, trace)
    for correlation in range(1, draw(st.integers(1, 12)) + 1):
        _add_launch(draw, trace, correlation)
    if draw(st.booleans()) if stacks is None else stacks:
        trace.python("train.py(1): main", 0, HORIZON, python_id=1)
    return trace


def _add_steps(draw: st.DrawFn, trace: TraceBuilder) -> None:
    """Marks one behind the other, with pauses between."""
    edges = sorted(draw(st.lists(_starts, max_size=6, unique=True)))
    for number, (start, end) in enumerate(zip(edges[::2], edges[1::2], strict=False), start=3):
        trace.step(number, start, end - start)


def _add_host(draw: st.DrawFn, trace: TraceBuilder) -> None:
    for name in draw(st.lists(st.sampled_from(OPS), max_size=8)):
        trace.op(name, draw(_starts), draw(_lengths), tid=draw(_threads))
    for name in draw(st.lists(st.sampled_from(MARKS), max_size=3)):
        trace.annotation(name, draw(_starts), draw(_lengths), tid=draw(_threads))
    for i, name in enumerate(draw(st.lists(st.sampled_from(CALLS), max_size=6))):
        trace.launch(name, draw(_starts), draw(_lengths), 10_000 + i, tid=draw(_threads))
    for name in draw(st.lists(st.sampled_from(OVERHEADS), max_size=3)):
        trace.overhead(name, draw(_starts), draw(_lengths))


def _add_launch(draw: st.DrawFn, trace: TraceBuilder, correlation: int) -> None:
    """A launch and its work: none, one, or a graph's; or work without a launch."""
    sort = draw(st.sampled_from(("kernel", "kernel", "copy", "memset", "graph", "unlinked", "lost")))
    start = draw(_starts)
    if sort != "unlinked":
        name = {"copy": "cudaMemcpyAsync", "graph": "cudaGraphLaunch"}.get(sort, "cudaLaunchKernel")
        trace.launch(name, start, draw(_lengths), correlation, tid=draw(_threads))
    place = {"device": draw(st.integers(0, 1)), "stream": draw(st.sampled_from((7, 13, 20)))}
    for _ in range({"graph": draw(st.integers(2, 5)), "lost": 0}.get(sort, 1)):
        # Work at 0 is taken for a record that lost its time.
        begin = max(start + draw(st.integers(-200, 3_000)), 1)
        if sort == "copy":
            trace.memcpy(begin, draw(_lengths), correlation, name=draw(st.sampled_from(COPIES)), **place)
        elif sort == "memset":
            trace.memset(begin, draw(_lengths), correlation, **place)
        else:
            trace.kernel(begin, draw(_lengths), correlation, name=draw(st.sampled_from(KERNELS)), **place)


def has_work(trace: TraceBuilder) -> bool:
    """Whether anything runs on a device."""
    return any(event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") for event in trace.events)
