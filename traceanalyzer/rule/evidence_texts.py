"""What rules about GPU work say of it: kernels by short names, shapes, ops and the user's lines, most time first."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, grouped
from traceanalyzer.model.shapes import shapes_of
from traceanalyzer.model.short_names import short_kernel, short_op, short_ops
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.backward_nodes import lines_of, recomputed_ops
from traceanalyzer.timeline.collective_waits import collective_names

TYPES = {"float": "float32", "double": "float64", "BFloat16": "bfloat16", "Half": "float16"}
MORE_WORK = 0.01  # of the step: where streams do so much more work than it takes, shares are of all work; chosen
_MAX_SHAPES = 3
_TWICE = (
    " torch.compile does not differentiate compiled code twice: take the inner derivatives with torch.func (jvp, vjp, "
    "jacrev) within the compiled function."
)


def kernel_times(work: Work) -> dict[str, int]:
    """Short name -> ns."""
    sums = Counter[str]()
    for name, ns in work.name.sums(work.dur_ns).items():
        sums[short_kernel(name)] += ns
    return dict(sums.most_common())


def op_times(work: Work) -> dict[str, int]:
    """What the user called -> ns; autograd's `evaluate_function: XBackward0` as `XBackward0`."""
    names = work.outer_op.name
    plain = [short_ops(str(name)) for name in names.names]
    return Texts(names.code, np.array(plain, object)).sums(work.dur_ns)


def called_names(work: Work) -> Texts:
    """What the user called: the outermost op, of communication the collective, of work without an op the kernel.

    What a node of backward only repeats of forward goes by its own op: the node computes something else.
    """
    names = work.outer_op.name.or_else(work.name)
    again = recomputed_ops(work.events)
    if len(again):
        owner = work.launch.index_of_enclosing(again)
        code = np.where(owner >= 0, again.name.code[owner], -1)
        names = Texts(code, again.name.names).or_else(names)
    shared = work.kind.one_of("communication")
    if not shared.any():
        return names
    collectives_only = work[shared]  # the op around one is whatever happened to start it
    op = collectives_only.op
    columns = (collectives_only.name, op.name, op.text("collective"), op.text("group_desc"))
    number, first = grouped([column.code for column in columns])
    collectives = collective_names(collectives_only[first])
    code = np.full(len(work), -1, np.int64)
    code[shared] = collectives.code[number]
    return Texts(code, collectives.names).or_else(names)


def launched_in_steps(work: Work) -> Mask:
    """What steps launched: not what was queued before the recording, the launches of which alone are missing."""
    launched = work.launch.there
    few_are_missing = 2 * work.dur_ns[launched].sum() >= work.dur_ns.sum()
    return (work.step >= 0) & launched if few_are_missing else work.step >= 0


def uncovered_ns(work: Work) -> Rows:
    """Time of each piece; of communication and copies what no kernel, and no communication, runs beside."""
    took_ns, kinds = work.dur_ns.copy(), work.kind
    before = kinds.one_of("compute")
    for later in (kinds.one_of("communication"), ~kinds.one_of("compute", "communication")):
        cover = intervals.union(work.start_ns[before], work.end_ns[before])
        took_ns[later] -= intervals.covered(cover, work.start_ns[later], work.end_ns[later])
        before = before | later
    return took_ns


def display_names(work: Work) -> Texts:
    """The same as it is told: kernels that share a short name, of other types, say, are one."""
    called = called_names(work)
    return Texts(called.code, np.array([short_op(str(name)) for name in called.names], object))


def called_ops(work: Work) -> Texts:
    """The outermost op where it is one of torch's, within backward and compiled code the op itself."""
    outer = work.outer_op.name
    is_torch = outer.matches(r"^aten::")
    return Texts(np.where(is_torch, outer.code, -1), outer.names).or_else(named_ops(work))


def differentiated_twice(work: Work) -> str:
    """What torch.compile needs where gradients of gradients are taken (`TanhBackwardBackward0`); empty elsewhere."""
    return _TWICE * bool(work.outer_op.name.matches(r"BackwardBackward\d*$").any())


def largest_shapes(work: Work) -> str:
    """`4096x768, 768x50257` of the op that took most, equal ones once; empty where shapes were not recorded."""
    return shapes_in_words(next(iter(work.dims.sums(work.dur_ns)), ""))


def shapes_in_words(dims: str) -> str:
    """`4096x768, 768x50257`: recorded shapes, equal ones once, without scalars, and vectors (as a bias) last."""
    shapes = [shape for shape in dict.fromkeys(shapes_of(dims)) if shape] if dims else []
    shapes.sort(key=lambda shape: len(shape) < 2)
    return ", ".join("x".join(map(str, shape)) for shape in shapes[:_MAX_SHAPES])


def counted_shapes(words: str) -> str:
    """`shape 1000`, `shapes 4096x768, 768`."""
    return f"shape{'s' * (', ' in words)} {words}"


def conversion_of(types: Sequence[str]) -> str:
    """`from float32 to bfloat16`, of a copy's target and source; empty where they were not recorded."""
    names = [TYPES.get(kind, kind) for kind in (recorded.removeprefix("c10::") for recorded in types[:2])]
    return f"from {names[1]} to {names[0]}" if len(names) == 2 else ""


def gpu_time_evidence(work: Work) -> dict[str, Any]:
    """The usual evidence: `kernels`, or the `ops`, `lines` (ns by text), `shapes`, and `where`, a sentence's end."""
    lines, shapes, kernels = lines_of(work).sums(work.dur_ns), largest_shapes(work), kernel_times(work)
    where = f", for inputs of {counted_shapes(shapes)}" if shapes else ""
    where += f", from {next(iter(lines))}" if lines else ""
    times = {"kernels": kernels, "ops": op_times(work) or kernels, "lines": lines}
    return {**times, "shapes": shapes, "where": where}


def named_ops(work: Work) -> Texts:
    """The op that launched each piece; without a launch that of the same kernel elsewhere, or the kernel."""
    name, op = work.name, work.op.name
    op_of_kernel = np.full(len(name.names) + 1, -1, np.int64)
    op_of_kernel[name.code[op.there]] = op.code[op.there]
    kin = Texts(np.where(op.there, op.code, op_of_kernel[name.code]), op.names)
    if kin.there.all():
        return kin
    kernels = [short_kernel(str(kernel)) for kernel in name.names]
    return kin.or_else(Texts(name.code, np.array(kernels, object)))
