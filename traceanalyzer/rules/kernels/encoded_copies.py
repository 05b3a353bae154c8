"""A network runs on copies of the same items, so that each item is computed several times."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from traceanalyzer.roofline.results import made_of, product_of
from traceanalyzer.roofline.signatures import Signature, signatures_of
from traceanalyzer.roofline.tensor_types import Shape, tensors
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.quicker_work import not_below, quicker
from traceanalyzer.timeline.names import VIEWING_OP

_COPIES = r"^aten::(unfold|as_strided|expand|expand_as|broadcast_to|index|index_select|repeat|repeat_interleave|tile)$"
_BETWEEN = re.compile(r"^aten::(contiguous|clone|reshape|flatten|to|_to_copy|copy_|empty\w*)$")
_REGROUPS = re.compile(r"^aten::(view|reshape|_unsafe_view|unflatten)$")
_LAYERS = re.compile(r"^aten::(linear|addmm|mm|conv\w*|cudnn_convolution\w*|embedding|lstm|gru|\w*_norm)$")
_WRITES = re.compile(
    r"^aten::(index_put|index_copy|index_add|masked_scatter|scatter|copy|fill|zero|slice_s)\w*$"
)
_RANDOM = re.compile(r"rand|normal_|bernoulli|uniform|multinomial|exponential_|dropout|rrelu")
_PER_ITEM = re.compile(
    r"^aten::(matmul|bmm|baddbmm|\w*pool\w*|\w*softmax|scaled_dot_product_attention|\w*relu\w*|gelu|silu_?|mish|elu"
    r"|hardswish_?|hardsigmoid|hardtanh_?|softplus|sigmoid_?|tanh_?|clamp\w*|dropout|add_?|sub_?|mul_?|div_?|pow|exp|log"
    r"|r?sqrt|abs|neg|mean|sum|amax|amin|max|var|linalg_vector_norm|norm|contiguous|clone|to|_to_copy|reshape|flatten"
    r"|cat|upsample\w*|pad|constant_pad_nd|square|masked_fill|chunk|split\w*|unbind|select|slice|detach|type_as)$"
)
_AHEAD, _FAR = 8, 200  # ops between the copies and the network, and between two ops of a network; chosen


@dataclass(frozen=True, slots=True)
class Limits:
    min_times: float = limit(
        2.0,
        "there must be at least this many copies of each item, on average; gathering costs time, too; chosen",
    )
    min_gpu_share: float = limit(0.1, "the network must take at least this share of GPU time; chosen")
    floor_ns: int = limit(2_000, "a kernel takes at least this time, however few its bytes; H200, torch 2.11")


class Copied(NamedTuple):
    """Where a network begins, and on how many copies of how many items."""

    begin: int
    copies: int
    items: int
    shape: Shape


@rule(since="0.2", claims=Claims.WORK, min_share=0.03, limits=Limits)
def encoded_copies(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A network runs on copies of the same items, so that each item is computed several times.

    What it looks for: an op that makes more items than its tensor has: a gather (x[index], index_select),
    overlapping windows (unfold, as_strided), expand or repeat. The layers after it work on each copy
    separately: the first dimension of their tensors is the number of copies. Layers that mix items are not
    counted, nor what follows them.
    Why it costs: copies of an item give the same result.
    Bad: encode(video[:, windows].flatten(0, 2)). Good: encode(video.flatten(0, 1)) once for each frame; then cut
    the windows from the features. The same for an image with several captions, and for a user with several candidates.
    How sure: numbers of items are known from shapes. Which tensor an op reads is concluded from order and shapes, so
    confidence is medium.
    When it is wrong: the copies are changed before the network.
    Saving: the share of the additional copies in the network's forward pass.
    Source: shapes; measured on an H200 with torch 2.11.
    """
    ops = calls[calls.is_top_op]
    ops = ops[np.lexsort((ops.start_ns, ops.thread))]
    number, signatures = signatures_of(calls.events.trace, ops.rows)
    if not any(one.dims for one in signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows which items are copies")
    left, makers = np.ones(len(ops)), {}
    for maker, copied, members in _networks(ops, number.tolist(), signatures, limits):
        left[members] = copied.items / copied.copies
        makers.update(dict.fromkeys(members, (maker, copied)))
    chosen = ops[left < 1]
    spent, owner = chosen.launched()
    kept = spent.kind.one_of("compute")
    spent, owner = spent[kept], np.flatnonzero(left < 1)[owner[kept]]
    for device, found in spent.by_device():
        mine = owner[spent.device == device]
        share = found.total_ns / max(work[work.device == device].total_ns, 1)
        if share < limits.min_gpu_share:
            continue
        maker, copied = makers[int(mine[np.argmax(found.dur_ns)])]
        yield Hits(
            **quicker(found, not_below(found.dur_ns * left[mine], found, limits.floor_ns)),
            message="{maker} makes {copies} items of {items}, and a network runs on all of them: it computes each item "
            "{repeats} times on average; {gpu} of GPU time, in {ops}{where}",
            advice="Run the network once on each item, then gather, expand or cut the windows from its results.",
            confidence=Confidence.MEDIUM,
            evidence={
                **told(found),
                "gpu_share": share,
                "maker": maker,
                "copies": copied.copies,
                "items": copied.items,
                "repeats": round(copied.copies / copied.items, 2),
            },
        )


def _networks(
    ops: Calls, number: list[int], signatures: Sequence[Signature], limits: Limits
) -> Iterator[tuple[str, Copied, list[int]]]:
    """(op that makes copies, what it makes, positions of the ops that work on each of them)."""
    known: dict[tuple[int, ...], Copied | None] = {}
    steps, threads, done = ops.step, ops.thread, -1
    for at in np.flatnonzero(ops.name.matches(_COPIES)).tolist():
        key = tuple(number[at : at + _AHEAD + 1])
        if key not in known:
            known[key] = _copied([signatures[one] for one in key], limits)
        copied = known[key]
        if copied is None or at < done:
            continue
        last = at + copied.begin
        end = int(np.searchsorted(threads[at:] != threads[at], True)) + at
        end = int(np.searchsorted(steps[at:end], steps[at], side="right")) + at
        members = []
        for place in _members(number, signatures, last, end, copied):
            members.append(place)
            done = place
        if members:
            yield signatures[number[at]].name, copied, members


def _copied(ops: Sequence[Signature], limits: Limits) -> Copied | None:
    """What the first op copies, if one of the next ones works on separate copies."""
    source = next(iter(tensors(ops[0])), ())
    for begin, op in enumerate(ops[1:], 1):
        for shape in _read(op):
            items = _items(source, shape) if len(shape) > 1 and not VIEWING_OP.search(op.name) else 0
            if items and shape[0] >= limits.min_times * items:
                return Copied(begin, shape[0], items, shape)
        if not (VIEWING_OP.search(op.name) or _BETWEEN.search(op.name)):
            return None
    return None


def _read(op: Signature) -> Sequence[Shape]:
    """Shapes of what it works on: of a layer its input, not its weight."""
    if not _LAYERS.search(op.name):
        return tensors(op)
    first = op.name == "aten::addmm"  # behind the bias
    return tensors(op)[first : first + 1]


def _items(source: Shape, shape: Shape) -> int:
    """How many items of the sizes of each of `shape` a source has; 0 where it has none."""
    wanted = math.prod(shape[1:])
    for at in range(len(source)):
        if wanted > 1 and math.prod(source[at:]) == wanted and source[at] > 1:
            return math.prod(source[:at])
    return 0


def _members(
    number: Sequence[int], signatures: Sequence[Signature], begin: int, end: int, copied: Copied
) -> Iterator[int]:
    """Positions of ops that work on each copy alone, until one takes other tensors of as many entries."""
    made = {copied.shape: 1}
    unknown, last = False, begin
    for place in range(begin, end):
        op = signatures[number[place]]
        shapes = tensors(op)
        if (
            (_RANDOM.search(op.name) and "False" not in op.scalars)
            or _WRITES.search(op.name)
            or place - last > _FAR
        ):
            return
        if unknown and shapes and shapes[0][:1] == (copied.copies,):
            made[shapes[0]] = made.get(shapes[0], 0) + 1
        read = _read(op)
        mine = [one for one in read if one in made]
        if not mine:
            unknown = unknown and not shapes
            continue
        foreign = any(one not in made and one[:1] == (copied.copies,) for one in read)
        viewing = VIEWING_OP.search(op.name)
        if foreign or (len(mine) > 1 and not _LAYERS.search(op.name) and max(made[one] for one in mine) < 2):
            return
        if not (viewing or _LAYERS.search(op.name) or _PER_ITEM.search(op.name)):
            return
        result = product_of(op) or made_of(op)
        if _REGROUPS.search(op.name) and (result is None or result[0] % copied.copies):
            return
        unknown, last = result is None, place
        if result is not None:
            made[result] = made.get(result, 0) + (not viewing)
        if not viewing:
            yield place
