"""One-hot tensors on the device, where the index would do."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from traceanalyzer.model.arrays import Floats, pick
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import REACHED, bound_of, reached_ns
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, gpu_time_evidence, op_times, reduce_to, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.flow import Flow, confidence_of
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.shapes import UNREADABLE
from traceanalyzer.tensors.ops.table import Kind, flops_of, is_view, op_row, result_shape
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops

# Share of a product's time to write a gradient of zeros: the product reads two tensors and writes one.
_WRITTEN = 1 / 3
# Ops after one_hot, views not counted: conversions of the mask and of a weight, and the op that reads it.
_HOPS = 4
# Ops before a product, views counted, among which one makes its other factor; chosen.
_NEAR = 8
_GEMMS = frozenset({"aten::linear", "aten::matmul", "aten::mm"})
_PRODUCTS = frozenset({"aten::mm", "aten::bmm"})


# Dice loss over 152 classes of 4x512x512, H100: gather and scatter_add save 6.8 of the 25.6 ms of a step.
@rule(since="0.1", claims=Claims.WORK, causes=("dispatch",))
def one_hot(calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, flow: Flow | None) -> Iterator[Hits]:
    """One-hot tensors are written out, though the index is enough.

    What it looks for: calls of torch.nn.functional.one_hot, and ops that use the result to pick
    rows, or to pick one of several classes. Cause `dispatch`: work on a mask of rows x experts x places that two
    one-hot tensors make, and products with it, as where a mixture of experts moves its tokens by einsum.
    Why it costs: one_hot writes eight bytes per class and element, nearly all of them zeros. A conversion
    reads all these bytes again. A product multiplies the zeros, only to pick one of many values.
    Bad: F.one_hot(target, 150).permute(0, 3, 1, 2).float() in a Dice loss; one_hot(x, words).float() @ table.
    Good: gather and scatter_add along the classes for a Dice loss; class indices for cross_entropy; an
    embedding for a product with a table; bincount to count; index_add to sum rows.
    How sure: only one_hot creates such tensors. Which ops read them is known by an execution trace. Without one it
    is concluded from the order of ops, and from dtypes and sizes.
    When it is wrong: the program changes the one-hot tensor before use, for example to smooth or mix labels.
    Saving: the time of the one-hot tensor or mask and its products, minus the time that gather or an embedding takes.
    Source: torch.nn.functional.one_hot in PyTorch's documentation (the result is int64); measured on an H100,
    torch 2.11.
    """
    ops, number, signatures = top_ops(calls, "shows what reads one-hot tensors")
    every = [signatures[which] for which in number.tolist()]
    masks = np.flatnonzero(ops.name.one_of("aten::one_hot"))
    if len(masks) == 0:
        return
    uses = Uses()
    readers = {} if flow is None else _readers(flow, ops, masks.tolist())
    for place in masks.tolist():
        uses.follow(place, every, readers.get(place))
    launcher, recorder = work.op.index_of_enclosing(ops), recording_ops(calls, ops, work)
    making, converted, read = (np.isin(launcher, places) for places in (masks, uses.converted, [*uses.instead]))
    backward = np.isin(recorder, uses.multiplied)
    moved = np.isin(recorder, uses.factors) & inputs.meets(_moves)
    yield from _dispatch(work, inputs, gpus, _masks(signatures))
    for device, pieces in work[making | converted | read | backward | moved].by_device():
        launched_by = launcher[pieces.entries]
        needed_ns = np.where(backward[pieces.entries], pieces.dur_ns * _WRITTEN, 0.0)
        for target, op in uses.instead.items():
            bound, peaks = bound_of(op), gpus[device].peaks
            at_best = math.inf if bound is None or peaks is None else float(reached_ns(bound, peaks, None))
            needed_ns = np.where(launched_by == target, np.minimum(pieces.dur_ns, at_best), needed_ns)
        on_device = work.device == device
        parts = [work[part & on_device] for part in (making, converted, read | backward | moved)]
        yield _hits(flow, pieces, needed_ns, *parts)


def _masks(signatures: Sequence[Signature]) -> dict[int, int]:
    """Elements of each mask of rows x classes x classes by two one-hot tensors, to the rows that it moves at most."""
    indices: dict[int, set[int]] = {}
    for op in signatures:
        with suppress(*UNREADABLE):
            if op.name == "aten::one_hot":
                indices.setdefault(int(op.scalar(1)), set()).add(math.prod(op.shape(0)))
    masks = {}
    for shape in {shape for op in signatures for shape in tensors(op) if len(shape) > 2 and 0 not in shape}:
        rows = math.prod(shape[:-2])
        # Each row has one or more experts.
        if all(any(index % rows == 0 for index in indices.get(each, ())) for each in shape[-2:]):
            masks[math.prod(shape)] = max(rows, math.prod(shape) // math.prod(shape[-3:-2]))
    return masks


def _dispatch(work: Work, inputs: WorkInputs, gpus: Gpus, masks: Mapping[int, int]) -> Iterator[Hits]:
    """Work on these masks; products with them move rows, which an index does as well."""
    mask, moved = np.zeros((2, len(inputs.signatures)))
    for which, op in enumerate(inputs.signatures):
        sizes = {math.prod(shape) for shape in (*tensors(op), result_shape(op) or ())}
        for size in sizes & masks.keys():
            mask[which] = size
            # Bytes of the rows, each read and written.
            moved[which] = masks[size] * flops_of(op) / size * op.item_bytes(0) if op.name in _PRODUCTS else 0
    if moved[inputs.number].any():
        needed_ns = moved[inputs.number] / (gpus.memory_gbps(work.device) * REACHED["gather"])
        yield from slow_work(
            work,
            np.where(mask[inputs.number], np.minimum(needed_ns / work.dur_ns, 0.99), 1.0),
            cause="dispatch",
            message="rows are moved by products with a one-hot mask of {elements} elements, nearly all of them zeros: "
            "{gpu} of all GPU work{where}",
            advice="Compute the place of each row, and move rows by it: index_select or index_copy_, not einsum.",
            confidence=Confidence.MEDIUM,
            evidence={"elements": int(mask.max())},
        )


def _moves(op: Signature) -> bool:
    """Whether it copies a tensor without a change of its type."""
    return op.name == "aten::copy_" and len(op.types) > 1 and op.types[0] == op.types[1]


@dataclass(slots=True)
class Uses:
    """What happens to one-hot tensors, by positions of ops.

    Attributes:
        converted: ops that change the type or layout.
        instead: product with a one-hot tensor -> the op that would do.
        multiplied: products element by element.
        factors: ops that make the other factor of these products.
    """

    converted: list[int] = field(default_factory=list)
    instead: dict[int, Signature] = field(default_factory=dict)
    multiplied: list[int] = field(default_factory=list)
    factors: list[int] = field(default_factory=list)

    def follow(self, mask: int, ops: Sequence[Signature], readers: Sequence[int] | None) -> None:
        """Add the uses of the one-hot tensor that the op at this position makes; none if the classes are unknown.

        Args:
            readers: ops that read it or a copy of it; None if ids of tensors are not recorded.
        """
        try:
            index, classes = math.prod(ops[mask].shape(0)), int(ops[mask].scalar(1))
        except UNREADABLE:
            return
        elements, hops, kind = index * classes, 0, "long int"
        for place in range(mask + 1, len(ops)) if readers is None else readers:
            op = ops[place]
            if is_view(op.name):
                continue
            hops += readers is None
            sizes = [math.prod(shape) for shape in tensors(op)]
            if hops > _HOPS or op.name == "aten::one_hot":
                return
            if op_row(op.name).kind is Kind.COPY and sizes[:1] == [elements]:
                if kind in ("", op.types[0]):
                    self.converted.append(place)
                    kind = ""
            elif op.name == "aten::mul" and sizes == [elements] * 2:
                self.instead[place] = _op("gather", [[*op.shape(0)], [], [index]], op.types[0], "Scalar", "long int")
                self.multiplied.append(place)
                before = range(place - 1, max(place - _NEAR, -1), -1)
                made = [back for back in before if back not in self.converted and _makes(ops[back], elements)]
                self.factors += made[:1]
                if readers is None:
                    return
            elif op.name in _GEMMS and sizes[:1] == [elements] and op.shape(0)[-1] == classes:
                self.instead[place] = _op("embedding", [[*op.shape(1)], [index]], op.types[1], "long int")
                return


def _readers(flow: Flow, ops: Calls, masks: Sequence[int]) -> dict[int, list[int]]:
    """Positions of the ops of forward that read a one-hot tensor or a copy of it, of each op that makes one."""
    recorded, values = flow.recorded, flow.values
    numbers, steps = pick(flow.number, ops.index_of_enclosing(flow.ops)).tolist(), ops.step.tolist()
    place_of = {key: place for place, key in enumerate(zip(steps, numbers, strict=True))}
    forward = (recorded.outer & ~flow.view & ~recorded.backward)[values.reads]
    reads, read = values.reads[forward], values.read[forward]
    found = dict[int, list[int]]()
    for mask in masks:
        of_mask = set[int]()
        copies = [numbers[mask]] if numbers[mask] >= 0 else []
        while copies:
            readers = {*reads[np.isin(read, values.made_by(copies.pop()))].tolist()} - of_mask
            of_mask |= readers
            copies += [op for op in readers if op_row(recorded.names[recorded.name[op]]).kind is Kind.COPY]
        places = sorted(place_of[steps[mask], op] for op in of_mask if (steps[mask], op) in place_of)
        found |= {mask: places} if places else {}
    return found


def _makes(op: Signature, elements: int) -> bool:
    """Whether an op makes a tensor of so many elements."""
    shape = None if is_view(op.name) else result_shape(op)
    return shape is not None and math.prod(shape) == elements


def _op(name: str, dims: list[list[int]], *types: str) -> Signature:
    return Signature(f"aten::{name}", tuple(dims), types, ("",) * len(dims))


def _hits(flow: Flow | None, pieces: Work, needed_ns: Floats, making: Work, converted: Work, read: Work) -> Hits:
    parts = [
        f"{{{name}_of_step}} {text}"
        for name, text, part in (
            ("making", "to make them", making),
            ("converting", "to convert them", converted),
            ("reading", "to compute with them, in {readers:of this part}", read),
        )
        if len(part)
    ]
    return Hits(
        **reduce_to(pieces, needed_ns),
        message="making one-hot tensors takes {spent_a_step}{where}"
        if len(making) and len(parts) == 1
        else "one-hot tensors take {spent_a_step}{where}: " + ", ".join(parts),
        advice="Use the index itself: F.embedding(index, weight) instead of one_hot(index) @ weight. A target of "
        "cross_entropy can be class indices. gather picks along the classes, scatter_add adds along them, index_add "
        "sums rows, torch.bincount counts.",
        confidence=confidence_of(flow, pieces.op) if len(read) else Confidence.HIGH,
        evidence={
            **gpu_time_evidence(pieces),
            "spent_ns": pieces.total_ns,
            "making_ns": making.total_ns,
            "converting_ns": converted.total_ns,
            "reading_ns": read.total_ns,
            "readers": op_times(read),
        },
    )
