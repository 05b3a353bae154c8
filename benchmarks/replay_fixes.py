"""For each kind of fault the edit that its fix is, chosen by names and structure as a rule would choose it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.replay_case import Case, Rows, matches
from traceanalyzer.model.arrays import grouped
from traceanalyzer.model.trace import NULL_INT, codes, ints
from traceanalyzer.replay.edits import Aside, Drop, DropSpans, DropWork, Edit, Resize, Scale, ShrinkGaps
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch, Replace
from traceanalyzer.timeline.names import ALLOCATOR, is_compilation

_LINK_BYTES_PER_NS = 55.0  # PCIe 5 x16 from pinned memory, measured on H200
_HBM_BYTES_PER_NS = 4800 * 0.75  # H200, what a pointwise kernel reaches
_TF32_OVER_FP32 = (67 * 0.75) / (494 * 0.58)  # achieved TFLOP/s of FP32 over TF32, H100 and H200
_FP64_OVER_FP32 = 0.25  # bytes halve twice over FP64 arithmetic at half rate; bound by memory: half
_POINTWISE = re.compile(r"elementwise_kernel|vectorized_elementwise|unrolled_elementwise|triton_poi")
_FUSIBLE = re.compile(_POINTWISE.pattern + r"|reduce_kernel")
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|convertTensor_kernel", re.IGNORECASE)
_NCHW_ONLY = re.compile(r"batch_norm_(collect_statistics|transform_input|backward)_kernel<|conv_depthwise2d_")
_NHWC_OVER_NCHW = 0.3  # of these kernels; EfficientNet in bf16, H200
_FP32_GEMM = re.compile(r"simt_sgemm|f32f32_f32f32_f32|[^a-z]sgemm|implicit_convolve_sgemm|ffma")
_LOADING = re.compile(r"^enumerate\(DataLoader\)")

Selector = Callable[[Case], list[Edit]]


def explicit_sync(case: Case) -> list[Edit]:
    rows = case.syncs.row[~case.syncs.profiler & ~case.syncs.copy]
    return [Drop(rows[case.nesting.op[rows] < 0])]


def item(case: Case) -> list[Edit]:
    """Ops that read back a value: with their copy and wait."""
    waits = case.syncs.row
    top = case.nesting.top_op(waits)
    reads = np.unique(
        top[np.isin(case.cpu_name[top], ["aten::item", "aten::is_nonzero", "aten::_local_scalar_dense"])]
    )
    return [Drop(reads)]


def boolean_mask(case: Case) -> list[Edit]:
    """An op that counts before it writes becomes one kernel of twice the time of the mask's."""
    top = np.unique(case.nesting.top_op(case.syncs.row))
    rows = top[
        np.isin(case.cpu_name[top], ["aten::index", "aten::masked_select", "aten::nonzero"]) & (top >= 0)
    ]
    kernels = 2.0 * _before(case, rows)[:, None]
    return [Replace(case.nesting.start_ns[rows], case.nesting.end_ns[rows], kernels, 8_000.0)]


def _before(case: Case, rows: Rows) -> NDArray[np.float64]:
    """Duration of the kernel launched last before each row."""
    order = np.argsort(case.work.call_start_ns, kind="stable")
    at = np.searchsorted(case.work.call_start_ns[order], case.nesting.start_ns[rows]) - 1
    return case.dur_ns[order[np.maximum(at, 0)]].astype(np.float64)


def graph(case: Case) -> list[Edit]:
    return [GraphLaunch()]


def compiled(case: Case) -> list[Edit]:
    return [Compile(np.flatnonzero(case.gpu(_POINTWISE)))]


def optimizer(case: Case) -> list[Edit]:
    """One launch for 36 tensors, as long as their kernels; 2.2 us of CPU a tensor."""
    marks = case.cpu(r"^Optimizer\.step#")
    edits: list[Edit] = []
    for row in marks.tolist():
        mine = np.flatnonzero(
            case.inside(np.maximum(case.work.call, 0), np.array([row])) & (case.work.call >= 0)
        )
        if len(mine) == 0:
            continue
        tensors = len(mine) / max(_per_tensor(case, mine), 1)
        launches = int(np.ceil(tensors / 36))
        each = case.dur_ns[mine].sum() / max(len(mine) / tensors, 1) / launches
        spans = case.nesting.start_ns[[row]], case.nesting.end_ns[[row]]
        edits.append(Replace(*spans, [each] * launches, 2_200.0 * tensors))
    return edits


def _per_tensor(case: Case, entries: Rows) -> int:
    """Kernels per tensor: how many launches until the sequence of names comes again."""
    names = codes(case.trace.gpu, "name")[case.work.row[entries]]
    for period in range(1, min(60, len(names) // 2)):
        if (names[period:] == names[:-period]).mean() > 0.98:
            return period
    return 1


def addmm_copy(case: Case) -> list[Edit]:
    copies = case.gpu(r"^Memcpy DtoD") & case.op(r"^aten::(addmm|addmv|baddbmm)$")
    return [DropWork(np.flatnonzero(copies))]


def layout(case: Case) -> list[Edit]:
    """Conversions go, and kernels that exist for this layout alone become those of the other one."""
    slow = case.gpu(_NCHW_ONLY)
    return [DropWork(np.flatnonzero(case.gpu(_LAYOUT))), Scale(np.flatnonzero(slow), _NHWC_OVER_NCHW)]


def tensor_cores(case: Case) -> list[Edit]:
    return [Scale(np.flatnonzero(case.gpu(_FP32_GEMM)), _TF32_OVER_FP32)]


def round_trip(case: Case) -> list[Edit]:
    """From the op that copies to the host to the end of the one that copies back; one pass over the data stays."""
    down, up = (
        np.flatnonzero(case.gpu(p) & (case.work.call >= 0)) for p in (r"^Memcpy DtoH", r"^Memcpy HtoD")
    )
    down = down[np.argsort(case.work.call_start_ns[down])]
    up = up[np.argsort(case.work.call_start_ns[up])]
    following = np.searchsorted(case.work.call_start_ns[up], case.work.call_start_ns[down])
    down, following = down[following < len(up)], following[following < len(up)]
    back = up[following]
    same = case.bytes(down) == case.bytes(back)
    down, back = down[same], back[same]
    starts = case.nesting.start_ns[case.nesting.top_op(case.work.call[down])]
    ends = _next_op(case, case.nesting.end_ns[case.nesting.top_op(case.work.call[back])])
    kernels = 2 * case.bytes(down) / _HBM_BYTES_PER_NS
    return [Replace(starts, ends, kernels[:, None], 5_000.0)]


def _next_op(case: Case, instants: Rows) -> Rows:
    """When the next op of the timeline starts: freeing what was copied is part of the round trip."""
    timeline = case.program.timeline
    starts = timeline.start_ns[~case.program.segments.gap]
    at = np.searchsorted(starts, instants)
    return np.where(at < len(starts), starts[np.minimum(at, len(starts) - 1)], instants)


def copies_aside(case: Case) -> list[Edit]:
    """Copies to the device go to a side stream, from pinned memory."""
    copies = np.flatnonzero(case.gpu(r"^Memcpy HtoD") & (case.dur_ns > 20_000))
    pageable = np.char.find(case.gpu_name[copies].astype(str), "Pageable") >= 0
    dur = np.where(pageable, case.bytes(copies) / _LINK_BYTES_PER_NS, case.dur_ns[copies])
    calls = case.work.call[copies[pageable]]
    waits = case.syncs.row[np.isin(case.nesting.op[case.syncs.row], case.nesting.op[calls])]
    return [Aside(copies, dur), Drop(waits[~np.isin(waits, calls)])]


def data_loading(case: Case) -> list[Edit]:
    rows = case.cpu(_LOADING)
    return [Drop(rows, leaving_ns=150_000)]


def allocator(case: Case) -> list[Edit]:
    rows = case.cpu(ALLOCATOR)
    return [Drop(rows)]


def pointwise(case: Case) -> list[Edit]:
    """More than two kernels in a row that work element by element, or reduce rows, become one."""
    order = np.argsort(case.work.call_start_ns, kind="stable")
    fusible = case.gpu(_FUSIBLE)[order]
    step = case.steps.of_work[order]
    run = np.cumsum(~(fusible & np.append(False, fusible[:-1] & (step[1:] == step[:-1]))))
    long = np.bincount(run)[run] > 2
    return [Fuse(order[long & fusible], run[long & fusible])]


def gaps(case: Case) -> list[Edit]:
    timeline = case.program.timeline
    long = case.program.segments.gap & (case.program.segments.cpu_ns > 100_000)
    return [ShrinkGaps(timeline.start_ns[long], timeline.end_ns[long])]


def recompilation(case: Case) -> list[Edit]:
    known = {name: is_compilation(name) for name in set(case.cpu_name.tolist())}
    rows = np.flatnonzero([known[name] for name in case.cpu_name.tolist()])
    return [DropSpans(case.nesting.start_ns[rows], case.nesting.end_ns[rows])]


def few_blocks(case: Case) -> list[Edit]:
    sms = next((device.sms for device in case.trace.meta.devices if device.sms), 132)
    grid = case.trace.gpu["grid"].astype(str).to_numpy()[case.work.row]
    blocks = np.array([np.prod([int(x) for x in re.findall(r"\d+", g)] or [sms]) for g in grid], float)
    few = (blocks < sms / 4) & (case.dur_ns > 20_000)
    return [Resize(np.flatnonzero(few), (case.dur_ns * blocks / sms)[few])]


def contention(case: Case) -> list[Edit]:
    number, _ = grouped(
        [codes(case.trace.gpu, "name")[case.work.row], codes(case.trace.gpu, "grid")[case.work.row]]
    )
    dur = case.dur_ns.astype(np.float64)
    order = np.lexsort((dur, number))
    count = np.bincount(number)
    begins = np.concatenate(([0], np.cumsum(count)[:-1]))
    median = dur[order[begins + count // 2]][number]
    slow = (dur > 3 * median) & (dur - median > 200_000)
    return [Resize(np.flatnonzero(slow), median[slow])]


def float64(case: Case) -> list[Edit]:
    wide = np.flatnonzero(case.gpu(r"double|dgemm|f64|d884|dmma"))
    return [Scale(wide, _FP64_OVER_FP32)]


def recomputation(case: Case) -> list[Edit]:
    """Forward ops that run with gradients, thus numbered, within a backward node: a checkpoint's second forward."""
    backward = case.cpu(r"Backward\d*$")
    numbered = ints(case.trace.cpu, "sequence") != NULL_INT
    inner = np.isin(case.nesting.parent, backward) & numbered
    return [Drop(np.flatnonzero(inner & matches(case.cpu_name, r"^aten::")))]


def repeats(case: Case) -> list[Edit]:
    """The longest loop of ops in each step, done once: a loop over rows, experts or parameters."""
    timeline = case.program.timeline
    top = case.program.segments.top_op
    changed = np.flatnonzero((top >= 0) & np.append(True, top[1:] != top[:-1]))
    names = codes(case.trace.cpu, "name")[top[changed]]
    starts, steps = timeline.start_ns[changed], timeline.step[changed]
    spans: list[tuple[Rows, Rows, int, int]] = []
    for step in range(int(steps[-1]) + 1):
        mine = np.flatnonzero(steps == step)
        low, period, count = _loop(names[mine])
        if count > 2:
            at = mine[low] + period * np.arange(count + 1)
            edges = starts[np.minimum(at, len(starts) - 1)]
            spans.append((edges[:-1], edges[1:], step, count))
    if not spans:
        return []
    begins, ends = np.concatenate([s[0] for s in spans]), np.concatenate([s[1] for s in spans])
    group = np.repeat([s[2] for s in spans], [s[3] for s in spans])
    return [Batch(begins, ends, group)]


def _loop(names: Rows) -> tuple[int, int, int]:
    """(first position, period, repeats) of the loop that covers most."""
    best = (0, 1, 0)
    for period in range(1, min(65, len(names) // 3)):
        same = np.concatenate(([False], names[period:] == names[:-period], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        begin, end = edges[::2], edges[1::2]
        if len(begin) == 0:
            continue
        k = int(np.argmax(end - begin))
        count = int((end[k] - begin[k]) // period + 1)
        if count > 2 and count * period > 1.2 * best[1] * best[2]:
            best = (int(begin[k]), period, count)
    return best


FIXES: dict[str, Selector] = {
    "addmm_copy": addmm_copy,
    "contended": contention,
    "cpu_roundtrip": round_trip,
    "dataloader": data_loading,
    "device_sync": explicit_sync,
    "fp32_gemm": tensor_cores,
    "gc_pause": gaps,
    "graph_break": compiled,
    "h2d_in_compute": copies_aside,
    "item_sync": item,
    "launch_bound": graph,
    "low_occupancy": few_blocks,
    "malloc_thrash": allocator,
    "nchw_conv": layout,
    "nonzero": boolean_mask,
    "optimizer_loop": optimizer,
    "pageable_h2d": copies_aside,
    "python_between": gaps,
    "recompile": recompilation,
    "unfused_pointwise": pointwise,
    "amp_scaler": item,
    "checkpointing": recomputation,
    "effnet_nchw": layout,
    "float64_leak": float64,
    "norm_upcast": pointwise,
    "moe_loop": repeats,
    "small_h2d": repeats,
}
