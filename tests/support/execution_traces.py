"""Execution traces of a few ops, and the profiler's trace of the same steps."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.trace_builder import H200, TraceBuilder

US = 1_000


@dataclass(frozen=True)
class Tensor:
    """A tensor, contiguous if it has no strides. vmap's wrapped ones have no device, nor storage."""

    storage: int
    shape: tuple[int, ...] = (64,)
    device: str = "cuda:0"
    offset: int = 0
    strides: tuple[int, ...] = ()

    def value(self) -> list[Any]:
        """As the observer writes it: id, storage, offset, elements, bytes of each, device."""
        if not self.device:
            return [self.storage, 0, 0, 0, 0, ""]
        return [self.storage, self.storage, self.offset, math.prod(self.shape), 4, self.device]


@dataclass(frozen=True)
class Call:
    """An op with its tensors; `writes` are positions of arguments that it writes. `kernels` share `gpu`, ns.

    A function that Python derives from autograd's, if `function` names one, is around it, with autograd's number 1,
    which each node of backward has. An op inside of it, if `inside` names one, launches the kernels. It has the
    tensors of `unwrapped`, reads and results. If `indexes`, the tensors after the first are a list, whose shapes the
    profiler's trace lacks. An op and the op of backward in the node that it records have the same `sequence`.
    """

    name: str
    reads: tuple[Tensor, ...]
    results: tuple[Tensor, ...] = ()
    writes: tuple[int, ...] = ()
    numbers: tuple[float | list[int], ...] = ()
    backward: bool = False
    function: str = ""
    inside: str = ""
    unwrapped: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] = ((), ())
    kernels: tuple[str, ...] = ("void kernel()",)
    gpu: int = 20 * US
    indexes: bool = False
    sequence: int | None = None

    def schema(self) -> str:
        """Such as `aten::add_(Tensor(a!) a0, Tensor a1) -> Tensor`."""
        tensors = [f"Tensor{'(a!)' if at in self.writes else ''} a{at}" for at in range(len(self.reads))]
        return f"{self.name}({', '.join([*tensors, *(f'float n{at}' for at in range(len(self.numbers)))])}) -> Tensor"


def nodes_of(steps: Sequence[Sequence[Call]]) -> list[dict[str, Any]]:
    """Nodes of the steps, each under its ProfilerStep mark; ops of backward in a node of autograd."""
    nodes = [_node(1, "[pytorch|profiler|execution_trace|thread]", 0, scope=7)]
    for step, calls in enumerate(steps):
        mark = len(nodes) + 1
        nodes.append(_node(mark, f"ProfilerStep#{step}", 1, scope=7))
        for call in calls:
            around = mark
            if call.backward or call.function:
                around = len(nodes) + 1
                nodes.append(_node(around, _around(call), 1, number=1))
            nodes.append(_node(len(nodes) + 1, call.name, around, call))
            if call.inside:
                inner = Call(call.inside, *call.unwrapped) if any(call.unwrapped) else None
                nodes.append(_node(len(nodes) + 1, call.inside, len(nodes), inner))
    return nodes


def document(steps: Sequence[Sequence[Call]]) -> dict[str, Any]:
    """The whole file."""
    return {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes_of(steps), "finish_ts": 9}


def written(folder: Path, steps: Sequence[Sequence[Call]]) -> Path:
    """Path of `built.json`, beside which lies `built.et.json`; each op takes 20 us on the CPU."""
    trace, at, free = TraceBuilder(devices=[H200], record_shapes=1), 0, 0
    for step, calls in enumerate(steps):
        begin = at
        for call in calls:
            shapes = [list(tensor.shape) for tensor in call.reads]
            dims = [shapes[0], []] if call.indexes else [*shapes, *[[] for _ in call.numbers]]
            numbered: dict[str, Any] = (
                {} if call.sequence is None else {"Sequence number": 1_000 * step + call.sequence}
            )
            if call.backward or call.function:
                trace.op(_around(call), at, 24 * US, **numbered)
                numbered = {}
            given = [*["" for _ in call.reads], *map(str, call.numbers)]
            inputs = {"Input Dims": dims, "Input type": ["float"] * len(dims), "Concrete Inputs": given}
            trace.op(call.name, at + US, 20 * US, **inputs, **numbered)
            if call.inside:
                dims = [list(tensor.shape) for tensor in call.unwrapped[0]]
                trace.op(call.inside, at + 2 * US, 18 * US, **{"Input Dims": dims} if dims else {})
            each = call.gpu // len(call.kernels)
            free = max(free, at + 9 * US)
            for place, kernel in enumerate(call.kernels):
                trace.launched((at + (4 + place) * US, US), (free, each), name=kernel)
                free += each
            at += 25 * US
        trace.step(step, begin, at - begin)
    path = folder / "built.json"
    trace.write(path)
    (folder / "built.et.json").write_text(json.dumps(document(steps)))
    return path


def _around(call: Call) -> str:
    return call.function or "autograd::engine::evaluate_function: MulBackward0"


def _node(
    place: int, name: str, around: int, call: Call | None = None, scope: int = 0, number: int = -1
) -> dict[str, Any]:
    reads, results, numbers = (call.reads, call.results, call.numbers) if call else ((), (), ())
    inputs = _columns(reads, numbers)
    if call and call.indexes:
        inputs = {key: [column[0], column[1:]] for key, column in inputs.items()}
        inputs["types"] = ["Tensor(float)", "GenericList[Tensor(long int)]"]
    attributes = {
        "rf_id": place,
        "seq_id": number,
        "scope": scope,
        "tid": 1,
        "op_schema": call.schema() if call else "",
    }
    return {
        "id": place,
        "name": name,
        "ctrl_deps": around,
        "inputs": inputs,
        "outputs": _columns(results, ()),
        "attrs": [{"name": key, "value": value} for key, value in attributes.items()],
    }


def _columns(tensors: Sequence[Tensor], numbers: Sequence[float | list[int]]) -> dict[str, list[Any]]:
    return {
        "values": [*[tensor.value() for tensor in tensors], *numbers],
        "shapes": [*[list(tensor.shape) for tensor in tensors], *[[] for _ in numbers]],
        "types": [*["Tensor(float)" for _ in tensors], *["Double" for _ in numbers]],
        "strides": [
            *[
                [*(tensor.strides or (math.prod(tensor.shape[at + 1 :]) for at in range(len(tensor.shape))))]
                for tensor in tensors
            ],
            *[[] for _ in numbers],
        ],
    }
