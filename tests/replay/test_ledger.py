"""The ledger of measured pairs: what README says of it, what the package was calibrated with, and what is said now."""

import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks import calibrate_replay as calibrate
from benchmarks import ledger
from benchmarks.diagnoses import FIXTURES
from benchmarks.faults import FAULTS
from traceanalyzer.replay import calibration

README = Path(__file__).parents[2] / "README.md"


def test_readme_says_what_the_ledger_says() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert ledger.sentence(ledger.rows()) in text


def test_intervals_are_made_of_rows_that_nothing_was_fitted_on() -> None:
    known = ledger.calibrating(ledger.rows())
    assert not any(row.fitted for row in known)
    assert len(known) == calibration.PAIRS
    for group, sides in calibrate.residuals(known).items():
        assert calibration.RESIDUAL[group] == pytest.approx(sides, abs=1e-3)


def test_every_row_is_of_a_fault_whose_rules_are_known() -> None:
    for row in ledger.rows():
        assert row.rule in FAULTS[f"{row.source}/{row.program}"]
        assert row.low <= row.said <= row.high <= 1
        assert row.commit


@pytest.mark.parametrize(("of_rounds", "mean", "median"), [(False, 4, 3), (True, 6.5, 4.5)])
def test_fitted_pairs_are_near_the_truth(of_rounds: bool, mean: float, median: float) -> None:
    """They show that edits do what they were made for; of whole rounds not each pair had one made for it."""
    whole = {f"round{number}" for number in range(5, 13)}
    known = [row for row in ledger.fitted(ledger.rows()) if (row.source in whole) == of_rounds]
    errors = np.abs([row.error for row in known])
    assert len(errors) > 40
    assert errors.mean() <= mean
    assert np.median(errors) <= median


def test_the_judging_rounds_were_fitted_on_by_nobody() -> None:
    found = ledger.judging(ledger.rows())
    assert found
    assert not any(row.fitted for row in found)
    assert statistics.mean(row.held for row in found) >= 0.7


@pytest.mark.parametrize("program", ["exposed-copy", "implicit-sync", "strided-copy"])
def test_the_ledger_says_what_is_said(program: str) -> None:
    (now,) = list(ledger.record("fixtures", FIXTURES, "now", None, False, only=(program,)))
    (was,) = [row for row in ledger.unfitted(ledger.rows()) if (row.source, row.program) == ("fixtures", program)]
    assert now.said == pytest.approx(was.said, abs=0.01)
    # Intervals are made anew with each calibration, and end since where the device still has to work.
    assert now.low == pytest.approx(was.low, abs=0.1)
    assert now.said <= now.high <= was.high + 0.1
