"""An optimizer that launches kernels per parameter, or pass by pass, where one fused kernel does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.rule.views.selection import Rows
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    min_launches: int = limit(16, "a step: fewer are a foreach optimizer of one pass, or have few parameters")
    tensors_per_launch: int = limit(36, "fused kernel of four lists, multi_tensor_apply.cuh of torch 2.11")
    cpu_per_tensor_ns: int = limit(2_200, "fused AdamW of 300 tensors, H200 host, torch 2.11, no profiler")
    cpu_per_pass_ns: int = limit(15_000, "one foreach op of 300 tensors, H200 host, torch 2.11, no profiler")
    fused_passes: float = limit(
        3.7,
        "of foreach's, as long as the fused kernel: 28 bytes a parameter at 4 TB/s, GPT-2 with AdamW, H200",
    )
    min_sure_share: float = limit(
        0.03, "saved even at the interval's low end: both implementations are in use"
    )


_DONE = re.compile(r"_fused_|CompiledFunction|^triton_|^Torch-Compiled|^## Call")
_FUSED = ("Adam", "AdamW", "SGD")  # torch 2.4 and later have a fused CUDA implementation of these
_FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
_RARE = 0.05  # share of the launches below which an op is not done for every tensor


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def unfused_optimizer(
    calls: Calls, work: Work, idle: IdleTime, forecast: Forecast | None, limits: Limits
) -> Iterator[Hits]:
    """The optimizer's step is many kernels where a few would do.

    What it looks for: `Optimizer.step#` blocks that launch 16 kernels or more, none of them fused or compiled. Ops
    named `_foreach_` take all parameters at once, in one pass over the memory for each; without these it is a loop
    that launches several kernels for every parameter.
    Why it costs: a loop over 300 parameters is 2,400 launches of AdamW, each longer than its kernel. foreach does it
    in few launches, but reads and writes parameters and states about three times as often as the fused kernel.
    Bad: AdamW(params, foreach=False). Good: AdamW(params, fused=True).
    How sure: the launches and the kernels' names say which implementation it is. The saving replays a step with the
    fused kernels; it is info where the saving may be next to nothing, as behind a busy GPU.
    When it is wrong: parameters on several devices or of exotic dtypes, which the fused kernel does not take.
    Source: PyTorch's optimizer documentation (for-loop, foreach, fused); measured on an H200 with torch 2.11.
    """
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(marks) == 0:
        raise Unavailable("no optimizer step is marked in the trace")
    launched, owner = marks.launched()
    names = launched.op.name.or_else(launched.name)
    done = np.isin(np.arange(len(marks)), owner[names.matches(_DONE) | launched.in_graph])
    for name, step in marks.by(marks.name):
        own = np.isin(owner, np.flatnonzero(np.isin(marks.rows, step.rows) & ~done))
        if own.sum() >= limits.min_launches * max(len(np.unique(owner[own])), 1):
            found = _hits(name.split("#")[-1].split(".")[0], marks[np.unique(owner[own])], idle, limits)
            low = 1.0 if forecast is None else forecast.saving(found.edits()).low_share
            yield replace(found, info=low < limits.min_sure_share)


def _hits(kind: str, marks: Calls, idle: IdleTime, limits: Limits) -> Hits:
    work, owner = marks.launched()
    launches, foreach = len(work) / len(marks), bool(work.op.name.matches("_foreach_").mean() > 0.5)
    passes, tensors = _passes(work, len(marks), limits) if foreach else _loop(work, len(marks))
    stays = (min(limits.fused_passes, passes) if foreach else 1.0) if kind in _FUSED else passes
    share = min(stays / passes, 1.0) if foreach or kind in _FUSED else 1.0
    kernels = math.ceil(tensors / limits.tensors_per_launch) * (1 if kind in _FUSED else math.ceil(passes))
    gpu_ns = np.bincount(owner, weights=work.dur_ns, minlength=len(marks)) * share
    cpu_ns = limits.cpu_per_tensor_ns * tensors + limits.cpu_per_pass_ns * (
        stays if kind not in _FUSED else 0
    )
    charged = idle.launch.owner(marks)
    late = Lost.all_of(idle[charged >= 0], charged[charged >= 0])
    excess = Lost.excess(work, (work.dur_ns * (1 - share)).astype(np.int64))
    needless = Lost(owner[excess.owner], excess.device, excess.start_ns, excess.end_ns)
    return Hits(
        at=marks,
        by=kind,
        cause="foreach" if foreach else "loop",
        lost=Lost.joined([late, needless]),
        fix=Replace(
            marks.start_ns, marks.end_ns, np.repeat(gpu_ns[:, None] / kernels, kernels, axis=1), cpu_ns
        ),
        message="{by}.step() {times_a_step} launches {launches} kernels of {kernel} on average "
        + ("in {passes} passes over all parameters" if foreach else "one parameter after the other, {tensors} in all")
        + ": {cpu} of the CPU and {gpu} of the GPU each time",
        advice=_advice(kind, foreach),
        evidence={
            "launches": round(launches),
            "kernel_ns": int(work.dur_ns.mean()),
            "passes": round(passes),
            "tensors": round(tensors),
            "cpu_ns": marks.total_ns // len(marks),
            "gpu_ns": work.total_ns // len(marks),
            "ops": work.op.name.sums(work.dur_ns),
        },
    )  # fmt: skip


def _loop(work: Work, marks: int) -> tuple[float, float]:
    """(kernels per tensor, tensors): how often the rarest op comes that is done for every tensor."""
    counts = np.array(list(work.op.name.sums(np.ones(len(work), np.int64)).values()) or [len(work)])
    tensors = max(float(counts[counts >= _RARE * len(work)].min()), 1.0)
    return len(work) / tensors, tensors / marks


def _passes(work: Work, marks: int, limits: Limits) -> tuple[float, float]:
    """(foreach ops, tensors at most) of one step."""
    ops: Rows = work.op.distinct().rows
    passes = max(len(ops) / marks, 1.0)
    return passes, len(work) / marks / passes * limits.tensors_per_launch


def _advice(kind: str, foreach: bool) -> str:
    if kind in _FUSED:
        return f"Pass fused=True to {kind}: one kernel for {'all passes' if foreach else '36 parameters'}."
    if kind in _FOREACH and not foreach:
        return f"Pass foreach=True to {kind}, or compile its step with torch.compile."
    return "Compile the optimizer's step with torch.compile, or write it with torch._foreach_ ops."
