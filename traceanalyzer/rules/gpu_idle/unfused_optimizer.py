"""An optimizer launches a kernel per parameter or pass instead of a fused kernel."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Unavailable, Work, rule
from traceanalyzer.timeline.names import OPTIMIZER_MARK

# torch 2.4 and later have a fused CUDA implementation of these.
FUSED = ("Adam", "AdamW", "SGD")
_FOREACH = ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
# apex and DeepSpeed launch multi_tensor_apply without an op.
DONE = regex(
    r"_fused_|^void multi_tensor_apply|multi_tensor_apply_kernel|CompiledFunction|^triton_|^Torch-Compiled|^## Call"
)
LISTS = regex(r"_foreach_")
SPARSE = regex(r"^aten::(_?coalesce|sparse_mask|_sparse_coo_tensor\w*)$")
_MOST = 0.5
# Share of the launches below which an op does not run for every tensor.
_RARE = 0.05


class Limits:
    min_launches: int = 16
    """reported only if the optimizer launches at least this many kernels a step; a foreach optimizer with one
    pass, or with few parameters, launches fewer"""
    min_groups: int = 16
    """parameter groups, each of which is updated by itself, are named from this many on; models have one to
    four, and layer-wise learning rates need two for each layer; chosen"""
    tensors_per_launch: int = 36
    """for the saving: one fused kernel handles up to this many parameters, with four lists of tensors
    (parameters, gradients, two states); multi_tensor_apply.cuh of torch 2.11"""
    cpu_per_tensor_ns: int = 2_200
    """for the saving: a fused optimizer takes this CPU time for each tensor; measured with AdamW of 300
    tensors, H200 host, torch 2.11, no profiler"""
    cpu_per_pass_ns: int = 15_000
    """for the saving: a foreach optimizer takes this CPU time for each pass; measured with one foreach op of
    300 tensors, H200 host, torch 2.11, no profiler"""
    fused_passes: float = 3.7
    """for the saving: all fused kernels together take as long as this many foreach passes; measured with
    GPT-2 and AdamW, H200"""
    min_sure_share: float = 0.03
    """the severity is info if the low end of the saving's interval is below this share of the step, because
    healthy programs use for-loop and foreach optimizers, too"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits, causes=("foreach", "loop", "foreach-fallback"))
def unfused_optimizer(calls: Calls, idle: IdleTime, forecast: Forecast | None, limits: Limits) -> Iterator[Hits]:
    """The optimizer's step launches many kernels instead of a few.

    What it looks for: `Optimizer.step#` ranges that launch many kernels, none of them fused or compiled.
    PyTorch's for-loop implementation (foreach=False) launches several kernels for every parameter. Its
    foreach implementation launches `_foreach_` ops, and each op makes one pass over all parameters.
    Why it costs: in a for-loop, a launch usually takes longer than its kernel. The foreach ops access
    memory two to three times as often as the fused kernel.
    If tensors differ in dtype, device or layout, a `_foreach_` op falls back to one op for each tensor
    (`foreach-fallback`).
    Bad: AdamW(params, foreach=False). Good: AdamW(params, fused=True).
    How sure: launches and kernel names show the implementation. For the saving, fused kernels are simulated.
    The severity is info if the saving may be nearly zero.
    When it is wrong: a third-party optimizer does more than the update. Or the fused kernel does not support
    the parameters: they are on several devices or have unusual dtypes. Not reported if the step reads back
    values of many tensors: see implicit-sync.
    Source: PyTorch's optimizer documentation (for-loop, foreach, fused); measured on an H200 with torch 2.11.
    """
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(marks) == 0:
        raise Unavailable("no optimizer step is marked in the trace")
    launched, owner = marks.launched()
    names = launched.op.name.or_else(launched.name)
    # neither the fused nor the foreach implementation supports sparse gradients
    sparse = calls[calls.name.matches(SPARSE)].index_of_enclosing(marks)
    is_done = names.matches(DONE) | launched.in_graph
    is_done |= launched.kind.one_of("communication")
    done = np.isin(np.arange(len(marks)), np.append(owner[is_done], sparse))
    # Steps that are mostly something else than passes, and make their updates by lists already.
    every = np.bincount(owner, minlength=len(marks))
    lists = np.bincount(owner[names.matches(LISTS)], minlength=len(marks))
    done |= (lists > 0) & (2 * lists <= every)
    # No compiler or fused kernel removes that a step reads back a value for many of its tensors.
    done |= np.bincount(owner[launched.kind.one_of("copy_d2h")], minlength=len(marks)) > _RARE * every
    for name, step in marks.by(marks.name):
        within_step = np.isin(owner, np.flatnonzero(np.isin(marks.rows, step.rows) & ~done))
        if within_step.sum() >= limits.min_launches * max(len(distinct(owner[within_step])), 1):
            hits = _hits(name.split("#")[-1].split(".")[0], marks[distinct(owner[within_step])], idle, limits)
            low = 1.0 if forecast is None else forecast.saving(hits.edits()).low_share
            yield replace(hits, info=low < limits.min_sure_share)


def _hits(kind: str, marks: Calls, idle: IdleTime, limits: Limits) -> Hits:
    work, owner = marks.launched()
    now = Implementation.of(work, len(marks), limits)
    needed_passes = min(limits.fused_passes if now.foreach else 1.0, now.passes) if kind in FUSED else now.passes
    stays = needed_passes / now.passes
    needless = LostTime.excess(work, (work.dur_ns * (1 - stays)).astype(np.int64), owner)
    gpu_ns = np.bincount(owner, work.dur_ns * stays, len(marks))
    kernels, foreach_ops = now.best_launches(kind, limits.tensors_per_launch)
    cpu_ns = limits.cpu_per_tensor_ns * now.tensors + limits.cpu_per_pass_ns * foreach_ops
    return Hits(
        occurrences=marks,
        named_by=kind,
        cause="foreach" if now.foreach else "foreach-fallback" if now.falls_back else "loop",
        lost=LostTime.joined([LostTime.launched_by(idle, marks), needless]),
        fix=Replace(marks.start_ns, marks.end_ns, np.tile(gpu_ns[:, None] / kernels, kernels), cpu_ns),
        message="{by}.step() runs {times_a_step} and launches {launches} kernels ("
        + (
            f"{{passes}} foreach ops, {'for {groups} parameter groups' if now.groups else 'each over all parameters'}"
            if now.foreach
            else "{passes} for each of {tensors} parameters"
        )
        + ", because its _foreach_ ops fall back to one op for each tensor" * now.falls_back
        + ", {kernel} per kernel); a call takes {cpu} of CPU time in the recording on average, and {gpu} of GPU time",
        advice=now.advice(kind),
        evidence={
            "launches": round(len(work) / len(marks)),
            "kernel_ns": int(work.dur_ns.mean()),
            "passes": round(now.passes),
            "tensors": round(now.tensors),
            **({"groups": now.groups} if now.groups else {}),
            "cpu_ns": marks.total_ns // len(marks),
            "gpu_ns": work.total_ns // len(marks),
            "ops": work.op.name.sums(work.dur_ns),
        },
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Implementation:
    """What one step launches, on average."""

    foreach: bool  # by ops that take all tensors at once
    passes: float  # kernels for each tensor, or foreach ops
    tensors: float  # how many there are; of foreach ops at most
    falls_back: bool = False  # `_foreach_` ops call an op for each tensor
    groups: int = 0  # how many parameter groups there are, if many

    @classmethod
    def of(cls, work: Work, steps: int, limits: Limits) -> Self:
        if work.op.name.matches("_foreach_").mean() > _MOST:
            each = work.op.distinct()
            passes = max(len(each) / steps, 1.0)
            # Each foreach op runs for each group, some more than once.
            often = each.name.sums(np.ones(len(each), np.int64)).values()
            groups = min((count for count in often if count >= _RARE * len(each)), default=0) // steps
            tensors = len(work) / steps / passes * limits.tensors_per_launch
            return cls(True, passes, tensors, groups=groups if groups >= limits.min_groups else 0)
        # Count of the rarest op that runs for every tensor.
        ops = work.op.name.sums(np.ones(len(work), np.int64)).values()
        counts = np.array(list(ops) or [len(work)])
        tensors = max(float(counts[counts >= _RARE * len(work)].min(initial=len(work))), 1.0)
        falls_back = bool(work.outer_op.name.matches(LISTS).mean() > _MOST)
        return cls(False, len(work) / tensors, tensors / steps, falls_back)

    def best_launches(self, kind: str, tensors_per_launch: int) -> tuple[int, int]:
        """(kernels, foreach ops) of the best implementation: fused if there is one, else one op per pass."""
        passes = 1 if kind in FUSED else math.ceil(self.passes)
        kernels = passes * math.ceil(self.tensors / tensors_per_launch)
        return kernels, 0 if kind in FUSED else passes

    def advice(self, kind: str) -> str:
        if self.groups:
            fused = f", and pass {{fused=True to {kind}}}" if kind in FUSED else ""
            return f"Put parameters with equal options into one parameter group: each is updated by itself{fused}."
        if kind in FUSED:
            return f"Pass {{fused=True to {kind}}}: each kernel then updates up to 36 parameter tensors."
        if kind in _FOREACH and not self.foreach:
            return f"Pass foreach=True to {kind}, or compile its step with {{torch.compile}}."
        if self.falls_back:
            return (
                "Use one multi-tensor kernel ({fused=True} in torch's optimizers, or apex), or give the _foreach_ ops "
                "tensors of one dtype, device and layout."
            )
        by_hand = "" if self.foreach else ", or write it with torch._foreach_ ops"
        return f"Compile the optimizer's step with {{torch.compile}}{by_hand}."
