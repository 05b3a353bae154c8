"""What rules about GPU work say of it: kernels by short names, shapes, ops and the user's lines, most time first."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson

from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views import Work

_WRAPPED = re.compile(r"cutlass::Kernel2?<\s*([\w:]+)")
_LAMBDA = re.compile(r"(\w+?)(_cuda)?\(at::TensorIteratorBase")
_FUNCTOR = re.compile(r"(\w*(?:Functor|ReduceOp|Ops)\w*)")
_PLAIN = re.compile(r"^(?:void )?(?:[\w:]|\(anonymous namespace\)::)*?(\w+)(?=[<(]|$)")
_MAX_LETTERS = 60
_MAX_SHAPES = 3


def short_name(kernel: str) -> str:
    """`vectorized_elementwise_kernel(tanh_kernel)`: a kernel's name without namespaces and template arguments."""
    wrapped = _WRAPPED.search(kernel)
    if wrapped:
        return wrapped[1][:_MAX_LETTERS]
    plain = _PLAIN.search(kernel)
    if plain is None or "<" not in kernel:
        return kernel.removeprefix("void ").partition("(")[0][:_MAX_LETTERS]
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
    plain = [str(name).removeprefix("autograd::engine::evaluate_function: ") for name in names.names]
    return Texts(names.code, np.array(plain, object)).sums(work.dur_ns)


def called_ops(work: Work) -> Texts:
    """The outermost op where it is one of torch's, within backward and compiled code the op itself."""
    outer = work.outer_op.name
    own = outer.matches(r"^aten::")
    return Texts(np.where(own, outer.code, -1), outer.names).or_else(named_ops(work))


def largest_shapes(work: Work) -> str:
    """`4096x768, 768x50257` of the op that took most; empty where shapes were not recorded."""
    dims = next(iter(work.dims.sums(work.dur_ns)), None)
    return ", ".join(_tensors(orjson.loads(dims))[:_MAX_SHAPES]) if dims else ""


def _tensors(shapes: list[Any]) -> list[str]:
    """Each tensor as `4096x768`, those of lists among them."""
    found: list[str] = []
    for shape in shapes:
        if isinstance(shape, list) and shape:
            nested = any(isinstance(size, list) for size in shape)
            found += _tensors(shape) if nested else ["x".join(map(str, shape))]
    return found


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
    return kin.or_else(Texts(name.code, np.array([short_name(str(one)) for one in name.names], object)))
