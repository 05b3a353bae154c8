"""Files of torch's ExecutionTraceObserver -> ExecutionTrace. Those beside a trace are `NAME.et.json[.gz]`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.containment import inherited, marked_right_around
from traceanalyzer.model.errors import TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.execution_trace import Access, ExecutionTrace, Layout
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Damage, Trace
from traceanalyzer.read.remote import is_url
from traceanalyzer.read.text.batches import Batches
from traceanalyzer.read.text.source import STDIN, Source

_SUFFIXES = (".et.json.gz", ".et.json.zst", ".et.json")
_ENDING = regex(r"\.json(\.gz|\.zst)?$")
_STEP = regex(r"ProfilerStep#\d+$")
_REMEDY = "Pass the file that torch.profiler.ExecutionTraceObserver writes."
_TENSOR_FIELDS = 6
_COLUMNS = ["id", "parent", "thread", "name", "inputs", "shapes", "role", "draws", "sequence"]
_OF_TENSOR = ["node", "position", "access", "storage", "offset", "elements", "item_bytes", "on_cpu", "layout"]
_OTHER, _OP, _NODE, _MARK, _FUNCTION = range(5)
_WITH_TENSORS = (_OP, _NODE, _FUNCTION)
# RecordScope of ops and functions, and of autograd's nodes; annotations have 7.
_OF_OPS, _OF_NODES = 0, 1


def beside(path: str | Path) -> Path | None:
    """The execution trace that lies beside a trace, by its name; None without one."""
    if is_url(path) or str(path) == STDIN:
        return None
    stem = _ENDING.sub("", str(path))
    return next((Path(stem + suffix) for suffix in _SUFFIXES if Path(stem + suffix).is_file()), None)


def with_tensors(trace: Trace, path: str | Path | None) -> Trace:
    """The trace with its execution trace; a note in its damage says where that could not be read."""
    if path is None:
        return trace
    try:
        return replace(trace, tensors=read_execution_trace(path))
    except TraceAnalyzerError as error:
        problem = f"the execution trace {Path(path).name} is not used: {error.problem}"
        note = Damage("execution trace", problem)
        return replace(trace, meta=replace(trace.meta, damage=(*trace.meta.damage, note)))


def read_execution_trace(path: str | Path) -> ExecutionTrace:
    """Read one file, a batch of nodes at a time.

    Raises UnreadableTrace, NotATrace: it is missing, damaged, or holds no nodes of ops; it is JSON of another kind.
    """
    batches, nodes = Batches(Source(path), events_key="nodes"), _Nodes()
    for batch in batches.listed():
        try:
            for node in batch:
                nodes.add(node)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise UnreadableTrace("holds a node of an unknown form", where=path, remedy=_REMEDY) from None
    if batches.damage:
        raise UnreadableTrace(batches.damage[0].message, where=path, remedy="Record it again.")
    if not nodes.names:
        raise UnreadableTrace("holds no nodes of ops", where=path, remedy=_REMEDY)
    return nodes.finished(str(path))


_RANDOM = regex(r"(?i:rand|dropout|bernoulli|normal_|multinomial|uniform|exponential|poisson|binomial|rrelu)")


@cache
def _argument_names(schema: str) -> tuple[str, ...]:
    arguments = schema.partition("(")[2].rpartition("->")[0]
    listed = [part.strip() for part in re.split(r",\s*(?![^(\[]*[)\]])", arguments)]
    return tuple(part for part in listed if part != "*")


def _draws(name: str, schema: str, values: list[Any]) -> bool:
    """Whether an op draws random numbers; attention and recurrent layers only with a dropout above 0."""
    if _RANDOM.search(name):
        return True
    arguments = zip(_argument_names(schema), values, strict=False)
    return any(isinstance(value, float) and value > 0 for part, value in arguments if _RANDOM.search(part))


@cache
def written_arguments(schema: str) -> frozenset[int]:
    """Positions of the arguments that a schema marks as written, `Tensor(a!) self`."""
    return frozenset(place for place, part in enumerate(_argument_names(schema)) if "!" in part)


def _tensors(values: Any, shapes: Any, strides: Any, kind: str) -> Iterator[tuple[list[Any], Layout]]:
    """([tensor, storage, offset, elements, bytes of each, device], layout) of each tensor of one argument."""
    listed = isinstance(values, list) and kind.startswith(("Tensor", "GenericList["))
    if not listed or "Tensor" not in kind:
        return
    if len(values) == _TENSOR_FIELDS and isinstance(values[-1], str):
        # Without a device and yet defined.
        wraps = not values[-1] and "nullptr" not in kind and all(shapes or ())
        yield ([*values[:3], -1, *values[4:]] if wraps else values), layout_of(shapes, strides)
        return
    for value, shape, stride in zip_longest(values, shapes or (), strides or ()):
        yield from _tensors(value, shape, stride, "Tensor" if shape else "Tensor(nullptr)")


def layout_of(shape: Sequence[int] | None, strides: Sequence[int] | None) -> Layout:
    """(size, stride) of the dimensions of a tensor, those that follow each other in memory as one; () of one number."""
    dims = [(-step, size) for size, step in zip(shape or (), strides or (), strict=False) if size > 1]
    merged: list[tuple[int, int]] = []
    for step, size in ((-negative, size) for negative, size in sorted(dims)):
        if merged and merged[-1][1] == size * step:
            merged[-1] = merged[-1][0] * size, step
        else:
            merged.append((size, step))
    return tuple(merged)


@dataclass(slots=True)
class _Nodes:
    """Columns of nodes in the order of the file, in which a node follows those in it."""

    names: dict[str, int] = field(default_factory=dict)
    inputs: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    shapes: dict[bytes, int] = field(default_factory=dict)
    layouts: dict[Layout, int] = field(default_factory=dict)
    columns: dict[str, array[int]] = field(default_factory=lambda: {name: array("q") for name in _COLUMNS})
    tensors: dict[str, array[int]] = field(default_factory=lambda: {name: array("q") for name in _OF_TENSOR})

    def add(self, node: dict[str, Any]) -> None:
        attributes = {entry["name"]: entry["value"] for entry in node["attrs"]}
        name, given, schema = node["name"], node["inputs"], attributes.get("op_schema") or ""
        values = zip(given["values"], given["types"], strict=True)
        numbers = orjson.dumps([value for value, kind in values if "Tensor" not in kind])
        shapes = orjson.dumps([shape for shape in given["shapes"] if shape and type(shape[0]) is int])
        key = orjson.dumps([given["types"], given["shapes"], given.get("strides")])
        role = _MARK if _STEP.match(name) else _role(int(attributes["scope"]), name)
        row = (
            node["id"],
            node["ctrl_deps"],
            int(attributes["tid"]),
            self.names.setdefault(name, len(self.names)),
            self.inputs.setdefault((numbers, key), len(self.inputs)),
            self.shapes.setdefault(shapes, len(self.shapes)),
            _OP if schema else role,
            _draws(name, schema, given["values"]),
            int(attributes["seq_id"]),
        )
        for column, value in zip(_COLUMNS, row, strict=True):
            self.columns[column].append(value)
        if row[-3] in _WITH_TENSORS:
            written = written_arguments(schema)
            for access, listed in ((Access.READ, given), (Access.RESULT, node["outputs"])):
                columns = listed["values"], listed["shapes"], listed.get("strides") or (), listed["types"]
                for place, argument in enumerate(zip_longest(*columns)):
                    use = Access.WRITTEN if access == Access.READ and place in written else access
                    for (_, *where, device), layout in _tensors(*argument):
                        which = self.layouts.setdefault(layout, len(self.layouts))
                        tensor = (node["id"], place, use, *where, device == "cpu", which)
                        for column, value in zip(_OF_TENSOR, tensor, strict=True):
                            self.tensors[column].append(value)

    def finished(self, source: str) -> ExecutionTrace:
        """All ops, sorted by their start: ids count up."""
        column = {name: np.array(values, np.int64) for name, values in self.columns.items()}
        order = np.argsort(column["id"], kind="stable")
        column = {name: values[order] for name, values in column.items()}
        parent = np.searchsorted(column["id"], column["parent"])
        parent = np.where(np.append(column["id"], -1)[parent] == column["parent"], parent, -1)
        # The root is in itself.
        parent[parent == np.arange(len(parent))] = -1
        # Nodes whose hook calls backward are no nodes, as in `Nesting`: the hook runs forward ops there.
        engine = np.array([name.startswith(ENGINE) for name in self.names], bool)[column["name"]]
        op = inherited(parent, np.isin(column["role"], _WITH_TENSORS))
        column["role"][marked_right_around(parent, op, engine)] = _OTHER
        outer, backward = _nesting(column["role"], parent)
        step = np.cumsum(column["role"] == _MARK) - 1
        ops = np.flatnonzero(np.isin(column["role"], _WITH_TENSORS))
        function = inherited(parent, column["role"] == _FUNCTION)
        tensor = {name: np.array(values, np.int64) for name, values in self.tensors.items()}
        place = np.searchsorted(column["id"][ops], tensor["node"])
        sorted_tensors = np.argsort(place, kind="stable")
        tensor = {name: values[sorted_tensors] for name, values in tensor.items()}
        return ExecutionTrace(
            source=source,
            names=tuple(self.names),
            layouts=tuple(self.layouts),
            number_texts=tuple(numbers.decode() for numbers, _ in self.inputs),
            shape_texts=tuple(text.decode() for text in self.shapes),
            step=step[ops],
            outer=outer[ops],
            innermost=~np.isin(ops, parent[ops]),
            backward=backward[ops],
            function=np.where(function >= 0, column["sequence"][function], -1)[ops],
            op=place[sorted_tensors],
            random=column["draws"][ops].astype(bool),
            on_cpu=tensor["on_cpu"].astype(bool),
            **{name: column[name][ops] for name in ("name", "thread", "inputs", "shapes", "sequence")},
            **{name: tensor[name] for name in _OF_TENSOR if name not in ("node", "on_cpu")},
        )


def _role(scope: int, name: str) -> int:
    """Role of what has no schema: a function that Python derives from autograd's runs its forward ops like an op."""
    if scope == _OF_NODES or (scope == _OF_OPS and name.startswith(ENGINE)):
        return _NODE
    return _FUNCTION if scope == _OF_OPS else _OTHER


def _nesting(role: Rows, parent: Rows) -> tuple[Mask, Mask]:
    """(which are outermost ops, which lie in a node of autograd); parents come first."""
    kinds, parents = role.tolist(), parent.tolist()
    in_op, in_node = [False] * len(kinds), [False] * len(kinds)
    for place, around in enumerate(parents):
        if around >= 0:
            in_op[place] = in_op[around] or kinds[around] == _OP
            in_node[place] = in_node[around] or (kinds[around] == _NODE and not in_op[around])
    return (role == _OP) & ~np.array(in_op, bool), np.array(in_node, bool)
