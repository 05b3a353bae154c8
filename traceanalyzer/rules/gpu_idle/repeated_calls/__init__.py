"""The same few ops again and again, where one call for all of them would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, limit, rule
from traceanalyzer.rules.gpu_idle.repeated_calls.batched_work import batched_work
from traceanalyzer.rules.gpu_idle.repeated_calls.fewer_parameters import fewer_parameters
from traceanalyzer.rules.gpu_idle.repeated_calls.how_sure import how_sure, of_layers, sized_by_data
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_inputs import LoopInputs, loop_inputs_of
from traceanalyzer.rules.gpu_idle.repeated_calls.passes import Passes, passes_of
from traceanalyzer.rules.gpu_idle.repeated_calls.repeat_texts import (
    advised,
    first_of,
    launched,
    listed,
)
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats, repeats_of
from traceanalyzer.rules.gpu_idle.repeated_calls.stacked_results import stacked_results
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    min_repeats: int = limit(
        16,
        "a sequence must repeat at least this many times in a step; fewer repeats may be the layers of a model",
    )
    few_repeats: int = limit(
        4, "this many repeats are enough if shapes change from repeat to repeat, as in a loop over experts"
    )
    min_parts: int = limit(8, "a loop must take at least this many parts of a tensor; chosen")
    max_kernel_ns: int = limit(
        10_000,
        "kernels may take at most this time on average; launching longer kernels less often gains little; H200",
    )
    kernel_floor_ns: int = limit(
        2_000, "a nearly empty kernel takes this time; it takes 1.1 to 2 µs on an H200"
    )
    max_layer_ops: int = limit(
        12,
        "a repeat with a matrix product may have at most this many ops; more ops are a layer of a model",
    )
    max_loop_launches: int = limit(
        16,
        "a repeat with a matrix product may launch at most this many kernels; a loop over samples launches 6 per "
        "repeat, an expert 13, a small U-Net 36; H200",
    )
    min_copied_share: float = limit(
        0.1,
        "the advice is to build all values on the host first if copies are at least this share of a loop's "
        "launches; chosen",
    )
    min_pass_launches: int = limit(
        40, "a call of a network must launch at least this many kernels or copies; fewer are a layer; chosen"
    )
    min_pass_share: float = limit(
        0.5,
        "the calls of one network must make at least this share of a step's launches; chosen",
    )


_COUNTS = r"^aten::(nonzero|masked_select|_unique2)$"  # the size of what it makes is in the data


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits, causes=("passes", "loop-inputs"))
def repeated_calls(calls: Calls, work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """The same sequence of small ops many times a step.

    What it looks for: the shortest sequence of outermost ops that repeats at least 16 times in a row within a
    step and launches tiny kernels each time. This may be a loop over samples, requests, parameters or a list.

    4 repeats are enough in three cases:
    - shapes change from repeat to repeat, as in a loop over experts;
    - a tensor was split or unbound into N parts, and each of N repeats takes one part;
    - the results of the repeats are concatenated or stacked.

    The backward pass of such a loop is found as well. The rule also finds a network that is called several
    times in a row on the same shapes, if no call needs the result of another and one op combines the results.
    An example is classifier-free guidance with two calls. Together the calls must make at least half of the
    step's launches. In a loop with a state, it finds layers that take x[t] and no state: an encoder of frames.
    Why it costs: every op costs microseconds of CPU time, and every kernel has a start-up time. One call on all
    elements pays for both only once.
    Bad: `[x[i] * torch.tensor(w[i], device="cuda") for i in range(64)]`. Good: one tensor of all weights, `x *
    torch.tensor(w, device="cuda")[:, None]`.
    How sure: the repetition is measured. That the repeats are independent is not. Confidence is medium if each
    repeat copies or updates one of many tensors, if the results are stacked, and for calls of one network.
    Confidence is low if a repeat has a matrix product, because it may be a layer or a time step. Sequences of
    only pointwise ops are left to launch-bound, because a CUDA graph helps them.
    When it is wrong: each repeat needs the previous result, as in a recurrent network. Iterated models
    (denoising, decoding) are recognised and not reported.
    Source: PyTorch's performance tuning guide; measured on an H200 with torch 2.11.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    loops: dict[tuple[str, ...], list[tuple[Repeats, Confidence]]] = {}
    counting = calls[calls.name.matches(_COUNTS)]
    every = list(repeats_of(outer[~outer.inside(marks)], work, limits.few_repeats, limits.max_kernel_ns))
    members = {loop.count for loop in every if loop.apart}
    members |= {loop.count for loop in every if of_layers(loop, limits, counting, members)}
    for loop in every:
        if (sure := how_sure(loop, limits, counting, members)) is not None:
            loops.setdefault(loop.key, []).append((loop, sure))
    for loop in every:  # of a loop in which some repeats take another branch
        same_ops = loops.get(loop.key, [])
        if same_ops and loop.launches >= loop.count and all(loop is not one for one, _ in same_ops):
            same_ops.append((loop, same_ops[0][1]))
    for same in loops.values():
        found = [loop for loop, _ in same]
        sized = sized_by_data(found[0], counting)
        along: tuple[Edit, ...] = (*fewer_parameters(found, calls), *stacked_results(found, outer))
        yield _hits(found, same[0][1], work, idle, gpus, limits, along, sized=sized)
    parts = sorted(loop_inputs_of(calls, outer, limits.min_parts), key=lambda one: (one.names, one.whole))
    for _, equal in groupby(parts, key=lambda one: (one.names, one.whole)):
        yield _inputs_hits(list(equal), work, idle, gpus, limits)
    passes = passes_of(outer, work, limits.min_pass_launches, limits.min_pass_share)
    for _, alike in groupby(sorted(passes, key=lambda one: one.names), key=lambda one: one.names):
        yield _passes_hits(list(alike), work, idle, gpus, limits)


def _passes_hits(passes: list[Passes], work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Hits:
    at = passes[0].at.joined([one.at for one in passes])
    ends = np.concatenate([one.ends_ns for one in passes])
    group = np.repeat(np.arange(len(passes)), [len(one.at) for one in passes])
    ops = at.joined([one.ops for one in passes])
    lines, times = ops.line.or_else(ops.annotation).sums(ops.dur_ns), len(passes[0].at)
    return Hits(
        occurrences=at,
        cause="passes",
        lost=LostTime.launched_within(idle, at.start_ns, ends),
        fix=(
            batched_work(work, at.start_ns, ends, group, gpus, limits.kernel_floor_ns),
            Batch(at.start_ns, ends, group),
        ),
        confidence=Confidence.MEDIUM,
        message="the same {members} ops run "
        + ("twice" if times == 2 else "{passes} times")
        + (
            " in a row on tensors of the same shapes, with {launches} launches each time, and then {taker} "
            "combines the results: calls of one network, {times_a_step}"
        )
        + (", at {lines}" if lines else ""),
        advice="Put the inputs into one batch and call the network once: net(torch.cat([a, b])).chunk(2).",
        evidence={
            "members": len(passes[0].names),
            "passes": times,
            "launches": passes[0].launches,
            "taker": passes[0].taker,
            "lines": lines,
        },
    )


def _inputs_hits(loops: list[LoopInputs], work: Work, idle: IdleTime, gpus: Gpus, limits: Limits) -> Hits:
    at = loops[0].at.joined([one.at for one in loops])
    ends = np.concatenate([one.ends_ns for one in loops])
    group = np.concatenate([one.group + 2 * place for place, one in enumerate(loops)])
    one, lines = loops[0], at.line.or_else(at.annotation).sums(at.dur_ns)
    return Hits(
        occurrences=at,
        cause="loop-inputs",
        named_by=next(iter(lines), None) or first_of(one.names),
        lost=LostTime.launched_within(idle, at.start_ns, ends),
        fix=(
            batched_work(work, at.start_ns, ends, group, gpus, limits.kernel_floor_ns),
            Batch(at.start_ns, ends, group),
        ),
        confidence=Confidence.MEDIUM,
        message="{ops} run {repeats} times a step in a loop, each time on another part of one tensor, {part} of "
        "{whole}, and on nothing that the loop makes" + (", at {lines}" if lines else ""),
        advice="Run these layers once before the loop, on the whole tensor, and take each repeat's part of the result: "
        "e = encoder(x.flatten(0, 1)).unflatten(0, x.shape[:2]), then e[t]. Layers with different weights in each "
        "repeat need stacked weights and bmm.",
        evidence={
            "ops": listed(one.names),
            "members": len(one.names),
            "repeats": one.repeats,
            "part": "x".join(map(str, one.part)),
            "whole": "x".join(map(str, one.whole)),
            "lines": lines,
        },
    )


def _hits(
    loops: list[Repeats],
    sure: Confidence,
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    limits: Limits,
    along: tuple[Edit, ...],
    *,
    sized: bool,
) -> Hits:
    at = loops[0].at.joined([loop.at for loop in loops])
    ends = np.concatenate([loop.ends_ns for loop in loops])
    group = np.repeat(np.arange(len(loops)), [loop.count for loop in loops])
    largest = max(loops, key=lambda loop: loop.launches)
    grown = batched_work(work, at.start_ns, ends, group, gpus, limits.kernel_floor_ns)
    lines = at.line.or_else(at.annotation).sums(ends - at.start_ns)
    copies = round(largest.moves / largest.count, 1)
    copied = largest.copies and largest.moves >= limits.min_copied_share * largest.launches
    kernels = round((largest.launches - largest.moves) / largest.count, 1)
    return Hits(
        occurrences=at,
        named_by=next(iter(lines), None) or first_of(largest.names),
        lost=LostTime.launched_within(idle, at.start_ns, ends),
        fix=(grown, Batch(at.start_ns, ends, group), *along),
        confidence=sure,
        message="{ops}"
        + (
            " ({members} calls in all) run {times_a_step} and launch "
            if len(largest.names) > 1
            else " runs {times_a_step} and launches "
        )
        + launched(kernels, copies)
        + " each time"
        + (", at {lines}" if lines else "")
        + ("; before each repeat the GPU counts its rows, and the CPU waits for the number" if sized else ""),
        advice=advised(largest.names, copied, sized=sized),
        evidence={
            "ops": listed(largest.names),
            "members": len(largest.names),
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "kernels": kernels,
            "kernel_ns": int(largest.kernel_ns),
            "copies": copies,
            "copy_ns": int(largest.move_ns),
            "lines": lines,
        },
    )
