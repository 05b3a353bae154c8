"""Files of ExecutionTraceObserver: what is read, where they are found, and what is refused."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.support.execution_traces import Call, Tensor, document, written
from traceanalyzer import UnreadableTrace, load
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.execution_trace import Access
from traceanalyzer.read.execution_trace import read_execution_trace, written_arguments

A, B, C = (Tensor(storage) for storage in (10, 20, 30))
STEPS = [[Call("aten::mul", (A, B), (C,)), Call("aten::add_", (C, A), (C,), writes=(0,), numbers=(2.0,))]] * 2


def test_ops_have_their_steps_shapes_and_tensors(tmp_path: Path) -> None:
    written(tmp_path, STEPS)
    trace = read_execution_trace(tmp_path / "built.et.json")
    assert [trace.names[name] for name in trace.name] == ["aten::mul", "aten::add_"] * 2
    assert trace.step.tolist() == [0, 0, 1, 1]
    assert trace.outer.all()
    assert {trace.shape_texts[shapes] for shapes in trace.shapes} == {"[[64],[64]]"}
    first = trace.op == 0
    assert trace.storage[first].tolist() == [10, 20, 30]
    assert trace.access[first].tolist() == [Access.READ, Access.READ, Access.RESULT]
    assert trace.access[trace.op == 1].tolist() == [Access.WRITTEN, Access.READ, Access.RESULT]
    assert trace.inputs[0] == trace.inputs[2] != trace.inputs[1]


@pytest.mark.parametrize(
    ("schema", "positions"),
    [
        ("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", {0}),
        ("aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", {3}),
        ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, int[2] x=[1, 2]) -> ()", {0}),
        ("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", set()),
        ("", set()),
    ],
)
def test_the_schema_marks_written_arguments(schema: str, positions: set[int]) -> None:
    assert written_arguments(schema) == positions


@pytest.mark.parametrize("name", ["built.et.json", "built.et.json.gz"])
def test_the_file_beside_a_trace_is_read(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, STEPS)
    content = (tmp_path / "built.et.json").read_bytes()
    (tmp_path / "built.et.json").unlink()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    trace = load(path)
    assert trace.tensors is not None
    assert len(trace.tensors) == 4


def test_another_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, STEPS)
    other = (tmp_path / "built.et.json").rename(tmp_path / "elsewhere.json")
    assert load(path).tensors is None
    assert load(path, tensors=other).tensors is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (json.dumps(document(STEPS))[:900], "incomplete"),
        ('{"traceEvents": []}', "holds no nodes"),
        ('{"nodes": [{"id": 1, "name": "a"}]}', "unknown form"),
        ('{"nodes": []}', "no nodes of ops"),
        ("", "empty"),
    ],
)
def test_damaged_or_foreign_files_become_a_note(tmp_path: Path, content: str, problem: str) -> None:
    path = written(tmp_path, STEPS)
    (tmp_path / "built.et.json").write_text(content)
    trace = load(path)
    assert trace.tensors is None
    (note,) = (note for note in trace.meta.damage if note.kind == "execution trace")
    assert "the execution trace built.et.json is not used: " in note.message
    assert problem in note.message
    with pytest.raises(TraceAnalyzerError):
        read_execution_trace(tmp_path / "built.et.json")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTrace):
        read_execution_trace(tmp_path / "none.json")
    path = written(tmp_path, STEPS)
    result = call("diagnose", path, "--tensors", tmp_path / "none.json")
    assert result.exit_code == 2


def test_the_command_reads_the_named_file(tmp_path: Path) -> None:
    path = written(tmp_path, [[Call("aten::mul", (A, B), (C,)), Call("mine::read", (C,))] * 4] * 4)
    other = (tmp_path / "built.et.json").rename(tmp_path / "elsewhere.json")
    options = ["diagnose", str(path), "--select", "computed-again", "--format", "json", "--tensors", str(other)]
    result = call(*options)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["findings"][0]["cause"] == "loop-invariant"
