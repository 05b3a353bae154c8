"""Data flow of a few ops."""

from pathlib import Path

from tests.support.execution_traces import Call, Tensor, written
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.tensors.flow import Flow

X, W, Y, Z, OUT = (Tensor(storage) for storage in (1, 2, 3, 4, 5))
HOST = Tensor(9, device="cpu")


def flow(folder: Path, *steps: list[Call]) -> Flow:
    return Analysis(load(written(folder, steps))).index(Flow)


def mul(left: Tensor, right: Tensor, result: Tensor) -> Call:
    return Call("aten::mul", (left, right), (result,))


def reader_of(*calls: Call) -> Call:
    """An op of a library that reads all results."""
    return Call("mine::read", tuple({one.storage: one for call in calls for one in call.results}.values()))
