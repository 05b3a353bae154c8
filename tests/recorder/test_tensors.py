"""The execution trace of real steps: its ops and those of the profiler have the same ids."""

import gzip
import json
from pathlib import Path

import pytest

from tests.recorder.programs import LOOP, left_in, needs_torch, recorded


@needs_torch
@pytest.mark.slow
def test_every_op_joins_a_node_of_the_execution_trace(tmp_path: Path) -> None:
    done = recorded(tmp_path, LOOP.format(steps=40, after="pass"), "--tensors")
    assert done.returncode == 0, done.stderr
    assert left_in(tmp_path) == ["trace.et.json.gz", "trace.json.gz"]
    document = json.loads(gzip.decompress((tmp_path / "trace.et.json.gz").read_bytes()))
    names = {
        attribute["value"]: node["name"]
        for node in document["nodes"]
        for attribute in node["attrs"]
        if attribute["name"] == "rf_id"
    }
    ops = [event for event in document["ops"] if event.get("cat") == "cpu_op"]
    assert len(ops) > 20
    assert all(names[op["args"]["Record function id"]] == op["name"] for op in ops)
