"""What is said of a loop of ops: its ops in short, and what would replace it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

HEAVY = re.compile(
    r"linear|matmul|mm\b|[Mm]m(Backward|_)|conv|Conv|attention|Attention|lstm|gru|einsum|(layer|batch|group|instance|rms)_norm|NormB"
)
_SLICES = re.compile(r"::(slice|narrow)$|SliceBackward")
_SUMS = re.compile(r"^aten::(sum|norm|linalg_vector_norm|mean|\w+_loss|kl_div|cosine_similarity)$")
_LIST_OPS = re.compile(
    r"^aten::(sum|norm|linalg_vector_norm|mean|pow|square|abs|add_?|mul|sub|to|detach|flatten|view|_?reshape"
    r"|(mse|l1|smooth_l1|huber)_loss|kl_div|cosine_similarity)$"
)
_DISTANCES = re.compile(r"^aten::(pow|square|abs)$")
_SQUARES = re.compile(r"^aten::(pow|square|norm|linalg_vector_norm|sum|add_?|mul|to)$")
_TABLES = re.compile(r"::embedding(_bag)?$|Embedding\w*Backward")


def is_of_lists(names: tuple[str, ...]) -> bool:
    """Whether a repeat sums up a tensor, as a penalty or a norm does for each parameter."""
    scan = "aten::mul" in names and not any(map(_DISTANCES.search, names))  # of a state, step after step
    return all(map(_LIST_OPS.search, names)) and any(map(_SUMS.search, names)) and not scan


def listed(names: tuple[str, ...]) -> str:
    """The first four different ops of a repeat, and how many more it has, `aten::select (twice), aten::copy_`."""
    shown = [
        name if count == 1 else f"{name} ({'twice' if count == 2 else f'{count} times'})"
        for name, count in Counter(names).items()
    ]
    more = len(shown) - 4
    return ", ".join(shown[:4]) + (f" and {more} other op{'s' * (more > 1)}" if more > 0 else "")


def launched(kernels: float, copies: float) -> str:
    """What each repeat launches on average: the end of a message with fields for kernels, copies and their times."""
    said = (
        [f"{{kernels}} kernel{'s' * (kernels != 1)} ({{kernel}}{' per kernel' * (kernels != 1)})"]
        if kernels
        else []
    )
    said += (
        [f"{{copies}} {'copy' if copies == 1 else 'copies'} ({{copy}}{' per copy' * (copies != 1)})"]
        if copies
        else []
    )
    return " and ".join(said)


def first_of(names: tuple[str, ...]) -> str:
    """Its first op, and how many different others there are."""
    first, *others = dict.fromkeys(names)
    return f"{first} + {len(others)} op{'s' * (len(others) > 1)}" if others else first


def advised(
    names: tuple[str, ...],
    copies: bool,
    places: Iterable[str] = (),
    *,
    sized: bool = False,
    backward: bool = False,
) -> str:
    """How one call does it for all repeats, in the imperative.

    Args:
        places: lines and annotations that it is called in.
        sized: the device counts the rows of each repeat before it.
        backward: it is differentiated.
    """
    if "torchvision::nms" in names:
        return "Use torchvision.ops.batched_nms: one call for the boxes of all classes."
    if sized:
        return (
            "Sort the rows once by the expert or class that each belongs to (argsort), read the sizes of "
            "all groups at once (bincount(...).tolist()), and give each expert or class its slice of the sorted "
            "rows. Or use one grouped product for all."
        )
    if names == ("aten::zero_",):
        return "Set gradients to None instead of zero: zero_grad(set_to_none=True) launches nothing."
    if any(map(HEAVY.search, names)):
        return (
            "Stack the inputs, and call the layer or model once. If each call has weights of its own, use bmm, vmap "
            "or a grouped GEMM."
        )
    if is_of_lists(names):
        return _of_lists(names, backward=backward)
    if all(map(_SLICES.search, names)):
        return "Take all slices with one op: x.unfold() for overlapping windows, else view or reshape."
    if any(map(_TABLES.search, names)):
        return (
            "Join the tables into one, and add each table's offset to its indices. Then there is one lookup and "
            "one gradient."
        )
    if copies:
        return (
            "Collect on the host what each repetition copies, copy it once as one tensor, and compute on all of it "
            "together."
        )
    if names == ("aten::copy_",):
        buffers = "use broadcast_buffers=False if each rank may keep buffers of its own."
        if any("DistributedDataParallel" in place for place in places):
            return (
                f"DistributedDataParallel copies its buffers to all ranks before each forward pass: {buffers}"
            )
        return (
            "Copy all these tensors with one call: {torch._foreach_copy_} takes lists of them. If "
            f"DistributedDataParallel copies its buffers, {buffers}"
        )
    if all(name.endswith("_") for name in names):
        return "Update all tensors with one call: torch._foreach_ ops take the whole list."
    if not {"aten::norm", "aten::linalg_vector_norm"}.isdisjoint(names):
        return (
            "Compute all norms with one call of torch._foreach_norm, join the results on the device, and read one "
            "number."
        )
    return "Stack the inputs and use one op for all of them."


def _of_lists(names: tuple[str, ...], *, backward: bool) -> str:
    """What sums up a list of tensors at once."""
    if not backward:
        return (
            "Take all tensors at once: torch._foreach_norm (or clip_grad_norm_, which uses it), then one torch.stack "
            "and one op for all results."
        )
    penalty = "An L2 penalty on parameters is the optimizer's weight_decay (of SGD or Adam), at no launches. Else take "
    once = (
        "all tensors at once: one op on stacked tensors of one shape, or torch._foreach_ ops on the list, then one "
        "torch.stack of the results and one sum."
    )
    return (penalty if all(map(_SQUARES.search, names)) else "Take ") + once
