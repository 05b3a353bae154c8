"""What is found and what it would save, of each kind of repeats."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropSpans, Edit, Resize
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Hits, IdleTime, LostTime, Work
from traceanalyzer.rules.gpu_idle.repeated_calls.batched_work import batched_work
from traceanalyzer.rules.gpu_idle.repeated_calls.evaluations import Evaluations
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_backward import LoopNodes
from traceanalyzer.rules.gpu_idle.repeated_calls.loop_inputs import LoopInputs
from traceanalyzer.rules.gpu_idle.repeated_calls.passes import Passes
from traceanalyzer.rules.gpu_idle.repeated_calls.recurrent_loops import follows
from traceanalyzer.rules.gpu_idle.repeated_calls.repeat_texts import advised, first_of, launched, listed
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats


def loop_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    sure: Confidence,
    along: tuple[Edit, ...],
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    floor_ns: int,
    min_copied_share: float,
    *,
    sized: bool,
) -> Hits:
    """Of loops of the same ops.

    Args:
        backward: what each of them recorded.
        along: what else goes when they become one.
    """
    at = loops[0].at.joined([loop.at for loop in loops])
    lost, fix = _saved(loops, backward, work, idle, gpus, floor_ns)
    ends = np.concatenate([loop.ends_ns for loop in loops])
    largest = max(loops, key=lambda loop: loop.launches)
    lines = at.line.or_else(at.annotation).sums(ends - at.start_ns)
    copies = round(largest.moves / largest.count, 1)
    copied = largest.copies and largest.moves >= min_copied_share * largest.launches
    kernels = round((largest.launches - largest.moves) / largest.count, 1)
    nodes = round(sum(len(one.nodes) for one in backward) / len(at), 1)
    ops = len(set(largest.names))
    kinds = f" to {ops} different ops" if 1 < ops < len(largest.names) else ""
    return Hits(
        occurrences=at,
        named_by=next(iter(lines), None) or first_of(largest.names),
        lost=lost,
        fix=(*fix, *along),
        confidence=sure,
        message=(
            f"a sequence of {{members}} calls{kinds} runs {{times_a_step}}"
            if len(largest.names) > 1
            else "{ops} runs {times_a_step}"
        )
        + "; each run launches "
        + launched(kernels, copies)
        + ("; the ops are {ops}" if len(largest.names) > 1 else "")
        + (f", {'at' if any('.py(' in line for line in lines) else 'in'} {{lines}}" if lines else "")
        + ("; each repeat adds {nodes} autograd nodes to backward" if nodes else "")
        + (
            "; before each repeat, the GPU counts the repeat's rows, and the CPU waits for this number"
            if sized
            else ""
        ),
        advice=advised(largest.names, copied, lines, sized=sized, backward=nodes > 0),
        evidence={
            "ops": listed(largest.names),
            "members": len(largest.names),
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "kernels": kernels,
            "kernel_ns": int(largest.kernel_ns),
            "copies": copies,
            "copy_ns": int(largest.move_ns),
            **({"nodes": nodes} if nodes else {}),
            "lines": lines,
        },
    )


def recurrent_hits(
    loops: list[Repeats],
    backward: list[LoopNodes],
    layer: str,
    work: Work,
    idle: IdleTime,
    gpus: Gpus,
    floor_ns: int,
) -> Hits:
    """Of loops that call a recurrent layer with one time step at a time."""
    at = loops[0].at.joined([loop.at for loop in loops])
    lost, fix = _saved(loops, backward, work, idle, gpus, floor_ns)
    largest = max(loops, key=lambda loop: loop.launches)
    lines = at.line.or_else(at.annotation).sums(
        np.concatenate([loop.ends_ns for loop in loops]) - at.start_ns
    )
    others = follows(largest, layer)
    cell = layer.endswith("_cell")
    return Hits(
        occurrences=at,
        cause="recurrent-steps",
        named_by=next(iter(lines), None) or layer,
        lost=lost,
        fix=fix,
        confidence=Confidence.MEDIUM,
        message="{layer} runs {times_a_step}, each time on one time step x[t], and x is known before the loop"
        + ("; {follows} run with it" if others else "")
        + (", at {lines}" if lines else "")
        + "; each repeat launches {launches} kernels or copies, and adds {nodes} autograd nodes to backward",
        advice=("Use nn.LSTM or nn.GRU with the weights of the cell" if cell else "Call the layer")
        + " once on the whole sequence, as in out, state = lstm(x, state)"
        + (", and then what follows (head, loss) once on all of out" if others else "")
        + ". A loop is needed only where the model's own output is the next input, as in sampling.",
        evidence={
            "layer": layer,
            "repeats": largest.count,
            "launches": round(largest.launches / largest.count, 1),
            "nodes": round(sum(len(one.nodes) for one in backward) / len(at), 1),
            "follows": listed(others),
            "lines": lines,
        },
    )


def _saved(
    loops: list[Repeats], backward: list[LoopNodes], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int
) -> tuple[LostTime, tuple[Resize, Batch]]:
    """(idle time by repeat, the edits that leave one repeat of each loop): both with what backward does for them."""
    starts = np.concatenate([one.at.start_ns for one in loops] + [one.nodes.start_ns for one in backward])
    ends = np.concatenate([one.ends_ns for one in loops] + [one.nodes.end_ns for one in backward])
    before = np.cumsum([0] + [one.count for one in loops])
    owner = [np.arange(before[-1])] + [one.repeat + at for one, at in zip(backward, before[:-1], strict=True)]
    group, own = [np.full(one.count, at) for at, one in enumerate(loops)], len(loops)
    for one in backward:
        group.append(own + one.place)
        own += int(one.place.max(initial=-1)) + 1
    groups = np.concatenate(group)
    lost = LostTime.launched_within(idle, starts, ends).owned_by(np.concatenate(owner))
    grown = batched_work(work, starts, ends, groups, gpus, floor_ns)
    return lost, (grown, Batch(starts, ends, groups))


def passes_hits(passes: list[Passes], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int) -> Hits:
    """Of passes through one network."""
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
            batched_work(work, at.start_ns, ends, group, gpus, floor_ns),
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


def evaluation_hits(found: list[Evaluations], work: Work, idle: IdleTime) -> Hits:
    """Of evaluations of one network, of which the first may do for all."""
    at = found[0].at.joined([one.at[1:] for one in found])
    ends = np.concatenate([one.ends_ns[1:] for one in found])
    nodes = at.joined([one.nodes for one in found])
    before = np.cumsum([0] + [len(one.at) - 1 for one in found])[:-1]
    owner = [one.owner - 1 + own for one, own in zip(found, before, strict=True)]
    starts, stops = np.append(at.start_ns, nodes.start_ns), np.append(ends, nodes.end_ns)
    lost = [LostTime.spent_within(work, starts, stops), LostTime.launched_within(idle, starts, stops)]
    first = found[0]
    lines = at.line.or_else(at.annotation).sums(ends - at.start_ns)
    return Hits(
        occurrences=at,
        cause="evaluated-anew",
        lost=LostTime.joined(lost).owned_by(np.concatenate([np.arange(len(at)), *owner])),
        fix=DropSpans(starts, stops),
        confidence=Confidence.LOW,
        message="one network ({members} ops) is evaluated {passes} times a step on inputs of one shape, {given}, and "
        "differentiated each time before the next; the loss goes backward through each"
        + (", at {lines}" if lines else ""),
        advice="If the inputs are the same, as the points of several residuals: evaluate the network and its "
        "derivatives once, and share them. Other inputs: put them into one batch. The trace shows shapes, not values.",
        evidence={
            "members": len(first.names),
            "passes": len(first.at),
            "given": "x".join(map(str, first.given)),
            "nodes": len(nodes) // len(found),
            "lines": lines,
        },
    )


def inputs_hits(loops: list[LoopInputs], work: Work, idle: IdleTime, gpus: Gpus, floor_ns: int) -> Hits:
    """Of layers in a loop that take x[t] and no state."""
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
            batched_work(work, at.start_ns, ends, group, gpus, floor_ns),
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
