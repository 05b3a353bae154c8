"""Sides that are kept: all that a snapshot says comes back, and a timed step is what was timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from traceanalyzer import BadOption
from traceanalyzer.comparison.baseline import baseline_bytes, baseline_path, load_baseline
from traceanalyzer.comparison.compare import timed
from traceanalyzer.comparison.sides import Side
from traceanalyzer.comparison.snapshot import TABLES, KnownFault, Snapshot, StepTime


def kept(rank: int | None, *, step: StepTime | None, **more: Any) -> Snapshot:
    tables = {
        name: pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in columns.items()})
        for name, columns in TABLES.items()
    }
    totals = pd.DataFrame([(f"of {rank}", 1.0, 1.0, 1.0)], columns=[*TABLES["totals"]])
    told: dict[str, Any] = {"gpus": ("H100", "H200"), "versions": {"torch": "2.11"}, "recorded": ("shapes",)}
    told |= {
        "step_kind": "ProfilerStep",
        "phase": "decode",
        "batch": 8,
        "steps": 3,
        "waiting_ns": 7,
        "faults": (),
    } | more
    return Snapshot("a.json", rank, step=step, tables={**tables, "totals": totals}, **told)


STEP = StepTime(100, 90, 120, 150, True, 60, "cpu", ((0.5, 70.0), (2.0, 180.0)), (140, 160))


def test_all_that_a_snapshot_says_comes_back(tmp_path: Path) -> None:
    fault = KnownFault("k", ("a", "b"), "a: x", "high", 0.2, 0.1, 0.3, 20)
    first, second = (
        kept(0, step=STEP, faults=(fault,)),
        kept(3, step=None, phase=None, batch=None, culprit=True),
    )
    path = tmp_path / "job.parquet"
    path.write_bytes(baseline_bytes([{0: first, 3: second}]))
    (found,) = load_baseline(str(path))
    assert list(found) == [0, 3]
    plain = [name for name in Snapshot.__slots__ if name not in ("tables", "strip", "functions")]
    for one, loaded in ((first, found[0]), (second, found[3])):
        assert [getattr(loaded, name) for name in plain] == [getattr(one, name) for name in plain]
        assert loaded.tables["totals"]["counter"].tolist() == [f"of {one.rank}"]


@pytest.mark.parametrize("name", ["a b", "a/b", "", "../a"])
def test_a_name_with_other_letters_is_none(name: str) -> None:
    with pytest.raises(BadOption, match="not a name"):
        baseline_path(name)


def test_timed_step_has_its_time_and_no_interval() -> None:
    """Of each rank that has a step; 0.0000996 ms are 100 ns."""
    ranks: Side = [{0: kept(0, step=STEP), 1: kept(1, step=None)}]
    (found,) = timed(ranks, 0.0000996)
    step = found[0].step
    assert step is not None
    assert (step.ns, step.low_ns, step.high_ns, step.measured, step.recorded_ns) == (100, 100, 100, True, 150)
    assert found[1].step is None
    assert timed(ranks, None) is ranks
