"""Which of the ops that compute the same is kept: the first one with a backward pass, or the first one."""

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.tensors.values import Values
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, in_hooks
from traceanalyzer.timeline.calls_and_work import Calls


def trained_ops(calls: Calls, ops: Calls) -> Mask:
    """Which ops have recorded a node of backward that runs. What hooks of backward run comes too late to be kept."""
    _, recorder = backward_nodes_of(calls, ops)
    trained = np.bincount(recorder[recorder >= 0], minlength=len(ops)) > 0
    return trained & ~in_hooks(calls.events, ops.rows)


def others_than_kept(values: Values, again: Rows, trained: Mask) -> Rows:
    """For each op the one that is kept in its place, -1 of the kept ones and of those that nothing computes again.

    `again` is the first op that made the same, -1 of none, and `trained` which ops have a backward pass; (ops,).
    """
    every = np.arange(len(again))
    first = np.where(again >= 0, again, every)
    of_pass = _of_trained_pass(values, first, (again >= 0) & ~trained[first], trained)
    kept = every.copy()
    for chosen in (of_pass & ~trained, of_pass & trained):
        kept[first[chosen][::-1]] = every[chosen][::-1]
    result = kept[first]
    return np.where(result == every, -1, result)


def _of_trained_pass(values: Values, first: Rows, later: Mask, trained: Mask) -> Mask:
    """Which of the later ops have a backward pass, or hand values to or from these as the first ops do."""
    chosen = later & trained
    if not chosen.any():
        return chosen
    maker, user = values.producer[values.read], values.reads
    made = maker >= 0
    links = list(dict.fromkeys(zip(maker[made].tolist(), user[made].tolist(), strict=True)))
    of_first = set(links)
    both = [
        link
        for link in links
        if later[link[0]] and later[link[1]] and (int(first[link[0]]), int(first[link[1]])) in of_first
    ]
    for before, after in reversed(both):
        chosen[before] |= chosen[after]
    for before, after in both:
        chosen[after] |= chosen[before]
    return chosen
