"""Inference computes low-rank adapters beside the layers that they could be merged into."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct, grouped, no_rows, pick, ranges
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, rule
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.tensors.top_ops import with_inputs, without_views

_NODES = r"^autograd::engine"
# Ops of a base layer and its adapter, casts and dropout left out: down, up, scale, add to the layer's result. DoRA
# scales the result of the layer as well, with norms that it computes of weights alone.
_ADAPTERS = (("linear",) * 3 + ("mul", "add"), ("linear",) * 3 + ("mul",) * 3 + ("add",) * 2)
_BETWEEN = r"::(to|dropout|eye)$"
_SWITCH = regex(r": set_adapters?$")


class Limits:
    min_adapters: int = 4
    """reported only if a step has at least this many adapters; a model has some in each layer"""
    max_rank_share: float = 0.25
    """with shapes: the rank is at most this share of the layer's inputs; more is no low-rank update; chosen"""


@rule(since="0.4", claims=Claims.WORK, specificity=3, min_share=0.02, limits=Limits)
def unmerged_adapter(calls: Calls, idle: IdleTime, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Inference computes low-rank adapters (LoRA) that could be merged into the weights.

    What it looks for: in steps without a backward pass, a linear layer followed by two more of a low rank, a
    scaling, and an addition, several times a step. DoRA also computes norms of the adapted weights, and scales the
    layer's result by them.
    Why it costs: an adapter adds about five small ops to each layer. On a busy GPU they read and write the
    layer's output again. In decoding their launches cost as much as the base layer's.
    Bad: PeftModel with LoRA layers in generate(). Good: model.merge_and_unload() before serving.
    How sure: with recorded shapes the rank is checked. Confidence is medium: ids of tensors are not compared.
    When it is wrong: several adapters share the base weights, and requests switch between them. Where the stacks show
    set_adapter(), it is reported only if an execution trace shows that each layer reads the same adapter every time.
    Source: "LoRA: Low-Rank Adaptation of Large Language Models" (Hu et al., 2021), section 4.1.
    Saving: the time of the adapters' ops.
    """
    ops = calls[calls.is_top_op & (calls.step >= 0)]
    if ops.name.matches(_NODES).any():
        return
    ops, number, signatures = with_inputs(without_views(ops).in_order())
    of_weights = flow.ops.rows[flow.constant[flow.number]] if flow is not None else no_rows()
    place = np.flatnonzero(~ops.name.matches(_BETWEEN) & ~np.isin(ops.rows, of_weights))
    found = [_adapters(ops, number, signatures, limits, place, form) for form in _ADAPTERS]
    begin, end = (np.concatenate(each) for each in zip(*found, strict=True))
    steps = max(len(distinct(ops.step[begin])), 1)
    switched = any(map(_SWITCH.search, calls.events.user_code.names))
    if len(begin) < limits.min_adapters * steps or (switched and not _is_single(flow, ops, begin, place)):
        return
    members = ops[distinct(ranges(begin + 1, end - begin)[1])]
    spent, owner = members.launched()
    yield Hits(
        occurrences=members,
        lost=LostTime.joined([LostTime.launched_by(idle, members), LostTime.all_of(spent, owner)]),
        fix=Drop(members.rows),
        message="{adapters} low-rank adapters a step are computed beside their linear layers: they take {cpu} of CPU "
        "time, {gpu} of GPU time and {launches} launches a step{at_lines}",
        advice="Merge the adapter into the weights before serving: model.merge_and_unload() of PEFT, or weight += "
        "scale * (B @ A). "
        + (
            "All recorded requests use the same adapter: set_adapter() goes as well."
            if switched
            else "If requests switch between adapters, group them by adapter."
        ),
        confidence=Confidence.MEDIUM,
        evidence={
            "adapters": round(len(begin) / steps),
            "cpu_ns": members.total_ns // steps,
            "gpu_ns": spent.total_ns // steps,
            "launches": round(len(spent) / steps),
            "lines": members.lines_with_common(1.0),
        },
    )


def _adapters(
    ops: Calls, number: Rows, signatures: list[Signature], limits: Limits, place: Rows, form: tuple[str, ...]
) -> tuple[Rows, Rows]:
    """Position of each base layer that an adapter of this form follows, and of the adapter's last op."""
    size = len(place) - len(form) + 1
    if size <= 0:
        return place[:0], place[:0]
    matched: Mask = ops.step[place[:size]] == ops.step[place[len(form) - 1 :]]
    for offset, name in enumerate(form):
        matched &= ops.name.matches(f"::{name}_?$")[place[offset : offset + size]]
    first = np.flatnonzero(matched)
    layers = [number[place[first + offset]] for offset in range(3)]
    kind, examples = grouped(layers)
    low = [_low_rank([signatures[layer[at]] for layer in layers], limits.max_rank_share) for at in examples.tolist()]
    first = first[np.array(low, bool)[kind]]
    return place[first], place[first + len(form) - 1]


def _is_single(flow: Flow | None, ops: Calls, begin: Rows, place: Rows) -> bool:
    """Whether the ids of tensors show that each base layer has one adapter in all of its calls."""
    if flow is None:
        return False
    values, recorded = flow.values, pick(flow.number, ops.index_of_enclosing(flow.ops))
    adapters: dict[int, set[int]] = {}
    for pair in zip(recorded[begin], recorded[place[np.searchsorted(place, begin) + 1]], strict=True):
        weights = [values.storage[values.read_by(op)[values.arguments_of(op) == 1]] for op in pair if op >= 0]
        if len(weights) == 2 and all(map(len, weights)):
            adapters.setdefault(int(weights[0][0]), set()).add(int(weights[1][0]))
    return bool(adapters) and all(len(each) == 1 for each in adapters.values())


def _low_rank(layers: list[Signature], max_share: float) -> bool:
    """Whether the shapes of base, down and up are those of an adapter; True of what has no recorded shapes."""
    shapes = [tensors(op)[:2] for op in layers]
    if not any(op.dims for op in layers):
        return True
    if any(len(pair) < 2 or len(pair[1]) != 2 for pair in shapes):
        return False
    (_, whole), (_, narrow), (_, wide) = shapes
    return (narrow[1], wide) == (whole[1], (whole[0], narrow[0])) and narrow[0] <= max_share * narrow[1]
