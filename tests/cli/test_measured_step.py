"""The step that the recorder measured: taken, doubted where the trace or its two timings are against it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.commands import call
from traceanalyzer.model.step_times import RECORDING, measured_step

TRACE = Path(__file__).parents[2] / "fixtures" / "exposed-copy" / "bad.json.gz"  # 3.39 ms a step, 3.29 ms busy


def recorded(folder: Path, before: Any, after: Any) -> Path:
    """The trace as the recorder would have written it."""
    document = json.loads(gzip.decompress(TRACE.read_bytes()))
    told = {"before_ms": before, "after_ms": after, "unit": "optimizer step"}
    path = folder / "trace.json"
    path.write_text(json.dumps({RECORDING: told, **document}))
    return path


def said(text: str) -> str:
    return " ".join(text.split())


def test_it_is_the_step_without_the_profiler(tmp_path: Path) -> None:
    trace = recorded(tmp_path, [3.2, 3.21, 3.19], [3.2, 3.22, 3.18])
    result = call("diagnose", trace)
    assert "3.39 ms recorded, 3.20 ms without the profiler, as the recorder measured it" in said(result.stdout)
    assert "warning" not in result.stderr
    own = call("diagnose", trace, "--step-ms", "3.3")
    assert "3.30 ms without the profiler, as you measured it" in said(own.stdout)
    assert "warning" not in own.stderr
    read = json.loads(call("diagnose", trace, "--format", "json").stdout)["traces"][0]
    assert read["step"]["unprofiled_ns"] == 3_200_000
    assert read["measured"] == {
        "ms": 3.2,
        "before_ms": [3.2, 3.21, 3.19],
        "after_ms": [3.2, 3.22, 3.18],
        "unit": "optimizer step",
        "unused": None,
        "waiting_ms": 0.0,
    }


def test_times_that_differ_are_said_and_the_first_is_taken(tmp_path: Path) -> None:
    result = call("diagnose", recorded(tmp_path, [3.2, 3.21, 3.19], [3.6, 3.61, 3.62]))
    assert "as the recorder measured it (3.2 ms before the recorded steps, 3.61 ms after them)" in said(result.stdout)
    assert "a step took 3.2 ms before the recorded steps and 3.61 ms after them" in said(result.stderr)


@pytest.mark.parametrize("before", [[40.0], [0.4]])
def test_a_time_that_cannot_be_of_this_trace_is_not_used(before: list[float], tmp_path: Path) -> None:
    result = call("diagnose", recorded(tmp_path, before, []))
    assert "as the recorder measured it" not in said(result.stdout)
    assert f"its measured step of {before[0]:.3g} ms is not used" in said(result.stderr)


def test_a_job_takes_the_time_that_all_its_ranks_were_timed_at(shared: Callable[[str], Path], tmp_path: Path) -> None:
    """Predicted from the traces alone are 15.4 ms: one of the ranks waits for the other most of the time."""
    for rank, told in enumerate(([14.66, 14.82], [14.7, 14.88])):
        document = json.loads(gzip.decompress(shared(f"ranks2/slow_gpu.bad.rank{rank}").read_bytes()))
        timed = {RECORDING: {"before_ms": told, "after_ms": [], "unit": "optimizer step"}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(timed | document))
    result = call("diagnose", tmp_path)
    assert "14.8 ms without the profiler, as the recorder measured it" in said(result.stdout)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(before=JSON, after=JSON, unit=JSON, whole=JSON)
def test_anything_in_its_place_is_read_or_ignored(before: Any, after: Any, unit: Any, whole: Any) -> None:
    assert measured_step({RECORDING: whole}) is None or isinstance(whole, dict)
    read = measured_step({RECORDING: {"before_ms": before, "after_ms": after, "unit": unit}})
    if read is not None:
        assert 0 < read.ms < 86_400_000
        assert isinstance(read.differ, bool)
