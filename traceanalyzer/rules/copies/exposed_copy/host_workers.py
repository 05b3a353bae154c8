"""The op on CPU tensors that a copy is made for: what makes the data before it, or computes with it after."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule import Calls, Work
from traceanalyzer.timeline.names import ALLOCATING_OP, DATA_LOADING, VIEWING_OP

NUMPY = "numpy"
"""Stands for an op: what runs without one right after a tensor has become an array."""
_AS_ARRAY = "aten::resolve_neg"  # Tensor.numpy() ends with it
_MOVES = r"^aten::(to|_to_copy|copy_|clone|contiguous|cuda|cpu|_?pin_memory|resolve_\w+|empty\w*|zeros|lift_fresh)$"


def host_workers(calls: Calls, copies: Work, min_ns: int) -> tuple[Texts, Rows]:
    """(the op that works longest on the host right before or after each copy, how long all of them do there).

    Before a copy to the device, after one to the host: on its thread, as far as the next op that calls the device.
    What a data loader does is its own, and no op of the step. Where no op works on the host, but the copy becomes an
    array of numpy, the time up to the next op, call or annotation is numpy's.

    Args:
        min_ns: of an op; shorter ones are on the way.
    """
    top = calls[calls.is_top_op]
    busy = np.zeros(len(top), bool)
    owner = calls[calls.is_call].index_of_enclosing(top)
    busy[owner[owner >= 0]] = True
    works = ~busy & (top.dur_ns >= min_ns) & ~top.name.matches(_MOVES)
    works &= ~top.name.meets(VIEWING_OP.search) & ~top.name.meets(ALLOCATING_OP.search)
    works &= ~top.annotation.meets(DATA_LOADING.search)
    longest, spent = np.full(len(copies), -1, np.int64), np.zeros(len(copies), np.int64)
    launcher, upward = copies.outer_op, copies.kind.one_of("copy_h2d")
    for thread in distinct(launcher.thread[launcher.there]).tolist():
        of_thread = np.flatnonzero(top.thread == thread)
        order = of_thread[np.argsort(top.start_ns[of_thread], kind="stable")]
        calling = order[busy[order]]
        own = np.flatnonzero(launcher.there & (launcher.thread == thread))
        low, high = _windows(top, calling, launcher, own, upward)
        hosts = order[works[order]]
        first = np.searchsorted(top.start_ns[hosts], low, side="left")
        last = np.searchsorted(top.start_ns[hosts], high, side="left")
        sums = np.append(0, np.cumsum(top.dur_ns[hosts]))
        spent[own] = np.where(last > first, sums[np.maximum(last, first)] - sums[first], 0)
        array_ns = np.where(upward[own] | (last > first), 0, _numpy_ns(calls, thread, low, high))
        spent[own] = np.where(array_ns >= min_ns, array_ns, spent[own])
        longest[own] = np.where(array_ns >= min_ns, len(top), longest[own])
        for at, begin, end in zip(own.tolist(), first.tolist(), last.tolist(), strict=True):
            if end > begin:
                longest[at] = hosts[begin + int(np.argmax(top.dur_ns[hosts[begin:end]]))]
    names = top.name
    code = np.append(names.code, (len(names.names), -1))[longest]  # -1, of no op, is the last
    return Texts(code, np.append(names.names, NUMPY)), spent


def _numpy_ns(calls: Calls, thread: int, low: Rows, high: Rows) -> Rows:
    """How long nothing is recorded on the thread after a tensor became an array within [low, high); 0 without one."""
    own = calls[calls.thread == thread]
    made = own[own.name.one_of(_AS_ARRAY)]
    made = made[np.argsort(made.start_ns, kind="stable")]
    following = np.append(np.sort(own.start_ns), np.iinfo(np.int64).max)
    next_ns = following[np.searchsorted(following, made.end_ns, side="left")]
    which = np.searchsorted(made.start_ns, low, side="left")
    begins, ends, nexts = (np.append(ns, high.max(initial=0)) for ns in (made.start_ns, made.end_ns, next_ns))
    there = (begins[which] < high) & (which < len(made))
    return np.where(there, np.minimum(nexts[which], high) - ends[which], 0)


def _windows(top: Calls, calling: Rows, launcher: Calls, own: Rows, upward: np.ndarray) -> tuple[Rows, Rows]:
    """When the host works for each copy: from the call before it, or up to the call after it."""
    starts, ends = top.start_ns[calling], top.end_ns[calling]
    begun, done = launcher.start_ns[own], launcher.end_ns[own]
    before = np.searchsorted(starts, begun, side="left") - 1
    after = np.searchsorted(starts, done, side="left")
    previous = np.where(before >= 0, ends[np.maximum(before, 0)], 0) if len(calling) else np.zeros_like(begun)
    following = np.where(after < len(starts), starts[np.minimum(after, max(len(starts) - 1, 0))], done)
    up = upward[own]
    return np.where(up, previous, done), np.where(up, begun, following)
