"""Which kernels exchange data with other devices, by name, launch and behavior, and which collective they run.

Names and launches tell most of them. The rest shows in its behaviour: few blocks for its time, since it waits for a
network, and either a stream of its own or a duration that changes though the launch is the same.
"""

import re
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, grouped, numbered, quantile_within
from traceanalyzer.model.shapes import product_of
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, ints, matching
from traceanalyzer.timeline.kernel_families import computes
from traceanalyzer.timeline.names import COMMUNICATING_OP, COMMUNICATION, SPEAKING_OP, TORCHS_OP

FEW_BLOCKS = 2 / 3  # of the multiprocessors: DeepEP takes 20 to 86 of 132, NCCL 1 to 32; H800 and H200
_LEAST_SMS = 80  # where the trace does not say: V100, the smallest device in jobs seen
_OWN_SHARE = 0.5  # of a stream's time: then few-block kernels are what the stream is for
_LONG_NS = 50_000  # kernels of few blocks that compute are shorter: per-row scans and sorts, H200
_CHANGING = 3.0  # 90th to 10th percentile of one launch shape: DeepEP 4 to 23, compute on few blocks up to 1.1, H200
_EXECUTIONS = 8  # fewer give no percentiles


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels, copies and memsets before anybody says what they are; arrays of shape (work,), -1 for no op."""

    trace: Trace
    row: Rows
    device: Rows
    stream: Rows
    op: Rows

    @property
    def name(self) -> Texts:
        return Texts.column(self.trace.lanes.gpu, "name", self.row)

    @property
    def op_name(self) -> Texts:
        return Texts.column(self.trace.lanes.cpu, "name", self.op)

    @property
    def dur_ns(self) -> Rows:
        return ints(self.trace.lanes.gpu, "dur_ns")[self.row]

    @property
    def is_kernel(self) -> Mask:
        category: Mask = matching(self.trace.lanes.gpu, "category", "kernel".__eq__)[self.row]
        return category


def communicating(work: Kernels) -> Mask:
    """Which kernels exchange data with other devices; bool of shape (work,)."""
    by_name = work.is_kernel & _told(work)
    perhaps = unexplained(work, by_name)
    return by_name | _by_place(work, perhaps, by_name) | _by_duration(work, perhaps)


def unexplained(work: Kernels, by_name: Mask) -> Mask:
    """Kernels of few blocks of which neither name nor op tells that they compute; bool of shape (work,)."""
    kernel = work.is_kernel & ~by_name & ~work.name.meets(computes)
    if not kernel.any():
        return kernel
    # Blocks per multiprocessor of the device, 0 where the grid is not recorded.
    blocks = Texts.column(work.trace.lanes.gpu, "grid", work.row).numbers(product_of)
    sms = {device.ordinal: device.sms for device in work.trace.meta.devices}
    which, ordinals = numbered(work.device)
    sms_of = np.array([sms.get(ordinal) or _LEAST_SMS for ordinal in ordinals.tolist()], np.float64)
    share = blocks / sms_of[which]
    return kernel & (share > 0) & (share <= FEW_BLOCKS) & ~work.op_name.matches(TORCHS_OP)


def _told(work: Kernels) -> Mask:
    """By name, or launched by an op that does nothing else, and all of the same name."""
    name, op = work.name, work.op_name
    named = name.matches(COMMUNICATION)
    launched = op.matches(COMMUNICATING_OP) & work.is_kernel & ~name.meets(computes)
    if launched.any():
        kin = np.zeros(len(name.names) + 1, np.bool_)
        kin[name.code[launched]] = True
        named |= kin[name.code]
    speaking = op.matches(SPEAKING_OP) & ~named
    return named | (speaking & unexplained(work, named)) if speaking.any() else named


def _by_place(work: Kernels, perhaps: Mask, by_name: Mask) -> Mask:
    """Long kernels of few blocks on a stream that does little else, beside a stream that computes."""
    if not perhaps.any():
        return perhaps
    dur_ns, (stream, _) = work.dur_ns, grouped([work.device, work.stream])
    whole = np.bincount(stream, dur_ns)
    candidate_ns = np.bincount(stream[perhaps | by_name], dur_ns[perhaps | by_name], len(whole))
    dedicated = (candidate_ns > _OWN_SHARE * whole) & (whole - candidate_ns < (whole - candidate_ns).max())
    number, _ = grouped([work.name.code, stream])
    usual = quantile_within(number, dur_ns, 0.5)
    return np.asarray(perhaps & dedicated[stream] & (usual >= _LONG_NS))


def _by_duration(work: Kernels, perhaps: Mask) -> Mask:
    """Kernels of one name and launch shape that take many times as long at one time as at another."""
    chosen, varying = np.flatnonzero(perhaps), np.zeros(len(perhaps), np.bool_)
    gpu, row = work.trace.lanes.gpu, work.row[chosen]
    shape = (Texts.column(gpu, column, row).code for column in ("grid", "block"))
    number, _ = grouped([work.name.code[chosen], *shape])
    dur_ns = work.dur_ns[chosen]
    short, usual, long = (quantile_within(number, dur_ns, part) for part in (0.1, 0.5, 0.9))
    frequent = np.bincount(number)[number] >= _EXECUTIONS
    varying[chosen] = frequent & (long >= _CHANGING * short) & (usual >= _LONG_NS / 10)
    return varying


_KERNEL = regex(
    r"(?:nccl|rccl)\w*?(?P<what>AllReduce|AllGather|ReduceScatter|SendRecv|Broadcast|AllToAll|Reduce)(?:_\w+?)?_?"
    r"(?P<type>bf16|f16|f32|f64|half|float|double|u?int8_t|i8|u8|int32_t|i32|u32|i64|u64)?\b",
    re.IGNORECASE,
)
_OP = regex(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send|recv|barrier)", re.IGNORECASE)
# What extensions call their own kernels: cross_device_reduce_2stage, _mxfp8_all_to_all_expert_major_kernel.
_EXTENSION = regex(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)", re.IGNORECASE)


def collective_of(kernel: str, op: str | None = None) -> str:
    """What is done, in the words of torch.distributed where the op tells: all_to_all, which NCCL does as SendRecv."""
    asked = _OP.search(op or "")
    if asked:
        return asked[1].lower().replace("_", "")
    match = _KERNEL.search(kernel)
    if match:
        return match["what"].lower()
    named = _EXTENSION.search(kernel)
    # Else the last part of a C++ name, without types and arguments.
    plain = kernel.removeprefix("void ").partition("(")[0].partition("<")[0].rpartition("::")[2][:40]
    return named[1].lower().replace("_", "") if named else plain
