"""How sure it is that a loop could be one call, by the ops of its repeats."""

from __future__ import annotations

import re
from typing import Protocol

from traceanalyzer.model.finding import Confidence
from traceanalyzer.rule import Calls
from traceanalyzer.rules.gpu_idle.repeated_calls.repeat_texts import HEAVY, is_of_lists
from traceanalyzer.rules.gpu_idle.repeated_calls.repeats import Repeats, places

_SELECTS = re.compile(
    r"::(select|index|index_select|gather|take|where|nonzero|unbind|item)$|(Select|Index|Unbind|Split)Backward"
)
_CHECK = (
    "aten::_is_all_true"  # of a distribution's arguments: different distributions look alike by their checks
)
_LIBRARY = re.compile(r"^torch\.distributed")  # what DistributedDataParallel does for each parameter
_CUTS = re.compile(
    r"::(slice|narrow|to|_to_copy)$|SliceBackward"
)  # also on the way of one tensor through a chain
_SLICES = re.compile(r"::(slice|narrow|select|index|unbind)$")  # picks the sample that the repeat is about
_DECODES = re.compile(r"::(argmax|multinomial|topk|cat|stack|index_copy_|scatter_?|randn?\w*|normal_)$")
_TABLES = re.compile(r"Embedding\w*Backward")
_IN_BACKWARD = re.compile(r"Backward\d*$").search
_ON_LISTS = re.compile(r"_$|_norm$|::(sum|norm|zeros_like|clone|isnan|isinf|isfinite|any|all)$")


class Least(Protocol):
    """Limits of the rule."""

    @property
    def min_repeats(self) -> int: ...
    @property
    def max_layer_ops(self) -> int: ...
    @property
    def max_loop_launches(self) -> int: ...


def sized_by_data(loop: Repeats, counting: Calls) -> bool:
    """Whether each repeat first counts on the device how much it will work on: the rows of an expert by a mask."""
    if not loop.shapes_change:
        return False
    inside = (counting.start_ns >= loop.at.start_ns[0]) & (counting.start_ns < loop.ends_ns[-1])
    return int(inside.sum()) >= loop.count


def how_sure(loop: Repeats, limits: Least, counting: Calls, members: set[int]) -> Confidence | None:
    """None where it is no loop that could be one call.

    Args:
        members: how many repeats loops over parts of a tensor or with a layer have, whose backward repeats as often.
    """
    names = loop.names
    if (loop.count < limits.min_repeats and _CHECK in names) or any(map(_LIBRARY.search, names)):
        return None
    heavy, selects = bool(places(HEAVY, names)), bool(places(_SELECTS, names))
    if heavy and loop.exact and loop.count >= limits.min_repeats and _SLICES.search(names[0]):
        return Confidence.LOW if not any(map(_DECODES.search, names)) else None
    backward = loop.count in members and any(map(_IN_BACKWARD, names))
    parts = loop.count < limits.min_repeats and (loop.apart or backward)
    if heavy and (parts or sized_by_data(loop, counting)):
        return Confidence.MEDIUM
    if heavy and _is_iterated(loop, limits):
        return None
    if heavy and backward and loop.count >= limits.min_repeats:
        return Confidence.LOW
    if heavy or loop.count < limits.min_repeats:
        many = loop.count >= limits.min_repeats and len(names) <= limits.max_layer_ops
        alike = (
            selects or any(map(_CUTS.search, names)) or loop.collected
        )  # layers neither pick from one tensor nor are their results stacked
        return Confidence.LOW if alike and (many or loop.shapes_change) else None
    lists = is_of_lists(names) or all(map(_ON_LISTS.search, names))
    # other repeats of pointwise ops alone are not reported: a CUDA graph helps them (launch-bound)
    many = loop.collected or loop.copies or loop.shapes_change or lists
    return (
        Confidence.MEDIUM if many else Confidence.LOW if selects or any(map(_TABLES.search, names)) else None
    )


def of_layers(loop: Repeats, limits: Least, counting: Calls, members: set[int]) -> bool:
    """Whether it is a loop with a layer in the forward pass that could be one call: so could its backward."""
    forward = loop.count >= limits.min_repeats and not any(map(_IN_BACKWARD, loop.names))
    return (
        forward and bool(places(HEAVY, loop.names)) and how_sure(loop, limits, counting, members) is not None
    )


def _is_iterated(loop: Repeats, limits: Least) -> bool:
    """A whole model on a batch, or one that keeps what came before: denoising, decoding; each needs the one before."""
    whole = loop.launches > limits.max_loop_launches * loop.count
    return whole and (not loop.of_one(HEAVY) or loop.shapes_grow)
