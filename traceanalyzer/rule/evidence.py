"""What rules about GPU work say of it: kernels by short names, shapes, ops and the user's lines, most time first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import grouped
from traceanalyzer.model.shapes import shapes_of
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.collective_names import collective_names
from traceanalyzer.rule.views import Work

_WRAPPED = re.compile(r"cutlass::Kernel2?<\s*([\w:]+)")
_LAMBDA = re.compile(r"\b(\w+?)(_cuda)?\(at::TensorIteratorBase")
_FUNCTOR = re.compile(r"\b(\w*?(?:Functor|ReduceOp|Ops)\w*)")
_PLAIN = re.compile(r"^(?:void )?(?:[\w:]|\(anonymous namespace\)::)*?(\w+)(?=[<(]|$)")
_ENGINE = "autograd::engine::evaluate_function: "
TYPES = {"float": "float32", "double": "float64", "BFloat16": "bfloat16", "Half": "float16"}
_MAX_LETTERS = 60
_MAX_SHAPES = 3


@lru_cache(maxsize=4_096)
def short_name(kernel: str) -> str:
    """`vectorized_elementwise_kernel(tanh_kernel)`: a kernel's name without namespaces and template arguments."""
    wrapped = _WRAPPED.search(kernel)
    if wrapped:
        return wrapped[1][:_MAX_LETTERS]
    plain = _PLAIN.search(kernel)
    if plain is None or "<" not in kernel:
        bare = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
        return bare.partition("(")[0][:_MAX_LETTERS]
    inner = _LAMBDA.search(kernel, plain.end()) or _FUNCTOR.search(kernel, plain.end())
    return f"{plain[1]}({inner[1]})"[:_MAX_LETTERS] if inner else plain[1][:_MAX_LETTERS]


def kernel_times(work: Work) -> dict[str, int]:
    """Short name -> ns."""
    sums: dict[str, int] = {}
    for name, ns in work.name.sums(work.dur_ns).items():
        sums[short_name(name)] = sums.get(short_name(name), 0) + ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def op_times(work: Work) -> dict[str, int]:
    """What the user called -> ns; autograd's `evaluate_function: XBackward0` as `XBackward0`."""
    names = work.outer_op.name
    plain = [str(name).removeprefix(_ENGINE) for name in names.names]
    return Texts(names.code, np.array(plain, object)).sums(work.dur_ns)


def called_names(work: Work) -> Texts:
    """What the user called: the outermost op, of communication the collective, of work without an op the kernel."""
    names = work.outer_op.name.or_else(work.name)
    shared = work.kind.one_of("communication")
    if not shared.any():
        return names
    own = work[shared]  # the op around one is whatever happened to start it
    columns = own.name, own.op.name, own.op.text("collective"), own.op.text("group_desc")
    number, first = grouped([column.code for column in columns])
    collectives = collective_names(own[first])
    code = np.full(len(work), -1, np.int64)
    code[shared] = collectives.code[number]
    return Texts(code, collectives.names).or_else(names)


def plain_name(op: str) -> str:
    """Without the engine's words; a kernel by its short name."""
    plain = op.removeprefix(_ENGINE)
    name = plain if "(" not in plain and "<" not in plain else short_name(plain)
    return name if len(name) <= _MAX_LETTERS else f"{name[:_MAX_LETTERS]}..."


def called_ops(work: Work) -> Texts:
    """The outermost op where it is one of torch's, within backward and compiled code the op itself."""
    outer = work.outer_op.name
    own = outer.matches(r"^aten::")
    return Texts(np.where(own, outer.code, -1), outer.names).or_else(named_ops(work))


def largest_shapes(work: Work) -> str:
    """`4096x768, 768x50257` of the op that took most, equal ones once; empty where shapes were not recorded."""
    return shapes_in_words(next(iter(work.dims.sums(work.dur_ns)), ""))


def shapes_in_words(dims: str) -> str:
    """`4096x768, 768x50257`: recorded shapes, equal ones once, without those of scalars; empty where there are none."""
    shapes = [shape for shape in dict.fromkeys(shapes_of(dims)) if shape] if dims else []
    return ", ".join("x".join(map(str, shape)) for shape in shapes[:_MAX_SHAPES])


def conversion_of(types: Sequence[str]) -> str:
    """`from float32 to bfloat16`, of a copy's target and source; empty where they were not recorded."""
    names = [TYPES.get(kind, kind) for kind in (one.removeprefix("c10::") for one in types[:2])]
    return f"from {names[1]} to {names[0]}" if len(names) == 2 else ""


def told(work: Work) -> dict[str, Any]:
    """The usual evidence: `kernels`, `ops`, `lines` (ns by text), `shapes`, and `where`, the end of a sentence.

    Where no launch is in the trace, the kernels stand for the ops.
    """
    lines, shapes = work.line.sums(work.dur_ns), largest_shapes(work)
    where = (f", of shapes {shapes}" if shapes else "") + (f", from {next(iter(lines))}" if lines else "")
    kernels = kernel_times(work)
    return {
        "kernels": kernels,
        "ops": op_times(work) or kernels,
        "lines": lines,
        "shapes": shapes,
        "where": where,
    }


def named_ops(work: Work) -> Texts:
    """The op that launched each piece; without a launch that of the same kernel elsewhere, or the kernel."""
    name, op = work.name, work.op.name
    known = np.full(len(name.names) + 1, -1, np.int64)
    known[name.code[op.code >= 0]] = op.code[op.code >= 0]
    kin = Texts(np.where(op.code >= 0, op.code, known[name.code]), op.names)
    if (kin.code >= 0).all():
        return kin
    return kin.or_else(Texts(name.code, np.array([short_name(str(one)) for one in name.names], object)))
