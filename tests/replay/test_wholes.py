"""What fixing everything saves, as said, against a measured fix and what the fixed program's report says is left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import together


def _write(folder: Path, variant: str, steps_ms: list[float], share: float | None) -> None:
    whole = None if share is None else {"unprofiled_ns": 1_000 * (1 - share)}
    trace = {"step": {"unprofiled_ns": 1_000}, "together": whole}
    (folder / f"lm.{variant}.json").write_text(json.dumps({"traces": [trace]}))
    (folder / f"lm.{variant}.meta.json").write_text(json.dumps({"unprofiled_step_ms": steps_ms}))


def test_what_the_fix_leaves_is_fixed_too(tmp_path: Path) -> None:
    _write(tmp_path, "bad", [30, 10, 20], 0.7)  # median 20
    _write(tmp_path, "fixed", [8, 7, 10], 0.25)  # median 8: 60 % saved, and a quarter of the other 40 %
    (row,) = together.record("here", tmp_path, tmp_path, "c0ffee")
    assert (row.program, row.source, row.commit, row.named) == ("lm", "here", "c0ffee", False)
    assert (row.true, row.said, row.left) == pytest.approx((0.6, 0.7, 0.25))
    assert row.error == pytest.approx(100 * (0.6 + 0.1 - 0.7), abs=1e-6)


def test_what_was_not_replayed_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "bad", [20], 0.7)
    _write(tmp_path, "fixed", [8], None)
    assert together.record("here", tmp_path, tmp_path, "c0ffee") == []


def test_named_programs_are_those_of_the_ledger() -> None:
    found = together.rows()
    sources = {row.source for row in found}
    for source in sources:
        named = {row.program for row in together.ledger.rows() if row.source == source}
        assert {row.program for row in found if row.source == source and row.named} == named
    errors = np.abs([row.error for row in found if row.named])
    assert len(errors) > 40
    assert np.mean(errors <= 10) >= 0.7
