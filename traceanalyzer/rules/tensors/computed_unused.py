"""Ops compute what no op reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceanalyzer.model.arrays import distinct
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Claims, Confidence, Hits, IdleTime, LostTime, limit, rule
from traceanalyzer.tensors.flow import Flow


@dataclass(frozen=True, slots=True)
class Limits:
    min_ops: int = limit(
        2,
        "reported only if at least this many ops a step are unused; the loss that nobody prints is one; chosen",
    )


@rule(
    since="0.4",
    claims=Claims.WORK,
    specificity=3,
    min_share=0.02,
    limits=Limits,
    causes=("unread-results", "unread-gradients"),
)
def computed_unused(flow: Flow, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Ops compute what no op reads.

    What it looks for: with an execution trace (NAME.et.json.gz beside the trace), ops whose results no needed
    op reads before their memory is freed. The findings' causes:
    `unread-results`: forward work, for example statistics in hooks, or a head whose output is dropped.
    `unread-gradients`: backward work, for example gradients of a frozen backbone, or of the discriminator in
    the generator's step.
    Why it costs: the GPU computes it, and the CPU launches it.
    Bad: optimizer over the head alone, but backbone parameters with requires_grad. Good: requires_grad_(False)
    on the backbone, or torch.no_grad() around it.
    How sure: tensors are identified by their ids. In training, confidence is high. Without a backward pass it
    is low: a benchmark may drop results that users read.
    When it is wrong: host code reads the result without an op of PyTorch.
    Saving: the time of these ops, and of everything that they launch.
    Source: dead code elimination (Aho, Lam, Sethi, Ullman: Compilers).
    """
    unread = flow.unread[flow.number]
    backward = flow.recorded.backward[flow.number]
    trained = bool(flow.recorded.backward.any())
    for cause, members in (
        ("unread-results", flow.ops[unread & ~backward]),
        ("unread-gradients", flow.ops[unread & backward]),
    ):
        steps = max(len(distinct(members.step)), 1)
        if len(members) < limits.min_ops * steps:
            continue
        spent, owner = members.launched()
        lines = members.line.sums(members.dur_ns)
        yield Hits(
            occurrences=members,
            cause=cause,
            lost=LostTime.joined([LostTime.launched_by(idle, members), LostTime.all_of(spent, owner)]),
            fix=Drop(members.rows),
            message="no op reads the results of {ops_a_step} ops a step: {by_ops:of these ops' time}. They take {cpu} "
            "of CPU time, {gpu} of GPU time and {launches} launches a step"
            + (", at {lines}" if lines else ""),
            advice="Remove this work, or do it only in the steps that use its result."
            if cause == "unread-results"
            else "Call requires_grad_(False) on parameters that the optimizer does not train in this pass, or run that "
            "part of the model under torch.no_grad().",
            confidence=Confidence.HIGH if trained else Confidence.LOW,
            info=not trained,
            evidence={
                "ops_a_step": round(len(members) / steps),
                "by_ops": members.name.sums(members.dur_ns),
                "cpu_ns": members.total_ns // steps,
                "gpu_ns": spent.total_ns // steps,
                "launches": round(len(spent) / steps),
                "lines": lines,
            },
        )
