"""What an author of rules gets wrong raises a sentence, instead of a number."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.rules.loops import Loop, loop_of
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Status
from traceanalyzer.rule import Calls, IdleTime, LostTime, Work


def pauses(loop: Loop, number: int) -> None:
    loop.pause(50_000 * number)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return Analysis(loop_of(pauses))


@pytest.mark.parametrize("view", [Calls, Work, IdleTime])
def test_a_mask_of_another_length_is_refused(analysis: Analysis, view: type) -> None:
    rows = analysis.index(view)
    for length in (len(rows) - 1, len(rows) + 1, 1):
        with pytest.raises(IndexError, match=rf"a mask of {length:,} rows cannot choose of {len(rows):,}"):
            rows[np.ones(length, bool)]
    assert len(rows[np.ones(len(rows), bool)]) == len(rows)


def test_rows_are_chosen_as_of_an_array(analysis: Analysis) -> None:
    work = analysis.index(Work)
    starts = work.start_ns.tolist()
    assert work[1].start_ns.tolist() == starts[1:2]
    assert work[-1].start_ns.tolist() == starts[-1:]
    assert work[0:2].start_ns.tolist() == starts[:2]
    assert work[[1, 0]].start_ns.tolist() == [starts[1], starts[0]]
    assert len(work[[]]) == 0
    with pytest.raises(IndexError, match="positions from 99 to 99 cannot choose of"):
        work[99]
    with pytest.raises(TypeError, match="by a mask, positions or a slice, not by float64"):
        work[np.array([0.0])]


def test_lost_time_without_owner_is_refused(analysis: Analysis) -> None:
    idle = analysis.index(IdleTime)
    owner = np.full(len(idle), -1)
    with pytest.raises(ValueError, match=rf"{len(idle)} of {len(idle)} lost stretches have no owner"):
        LostTime.all_of(idle, owner)
    with pytest.raises(ValueError, match=rf"{len(idle) + 1} owners of {len(idle)} lost stretches"):
        LostTime.all_of(idle, np.zeros(len(idle) + 1, np.int64))


@pytest.mark.parametrize("fault", ["import no_such_package", "raise ZeroDivisionError('at import')", "def ("])
def test_a_file_of_rules_that_cannot_be_imported_is_left_out_and_named(tmp_path: Path, fault: str) -> None:
    shutil.copytree(REPOSITORY / "traceanalyzer", tmp_path / "traceanalyzer")
    (tmp_path / "traceanalyzer" / "rules" / "host" / "my_rule.py").write_text(f"{fault}\n")
    trace = REPOSITORY / "fixtures" / "exposed-copy" / "bad.json.gz"
    code = (
        "import traceanalyzer as ta\n"
        f"report = ta.diagnose({str(trace)!r})\n"
        "print(report.findings[0].rule)\n"
        "print([(o.rule, o.why) for o in report.outcomes if o.status == 'failed'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    finding, failed = done.stdout.splitlines()
    assert finding == "exposed-copy"
    assert "my-rule" in failed
    assert "host/my_rule.py cannot be imported: " in failed
    assert str(Status.FAILED) == "failed"
