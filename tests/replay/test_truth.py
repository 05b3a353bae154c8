"""The replay against programs whose steps are known without the profiler; see docs/accuracy.md."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import accuracy, diagnoses
from benchmarks import calibrate_replay as calibrate
from benchmarks.ledger import calibrating, judging, rows
from benchmarks.replay_case import Case
from benchmarks.replay_fixes import graph, item
from benchmarks.replay_truth import HEALTHY, forecast
from tests.support.paths import SHARED
from tests.support.xdist_groups import with_the_truth
from traceanalyzer import load
from traceanalyzer.replay import calibration

WRITE_PAGE = "run: python -m benchmarks.accuracy TRACES --write"
pytestmark = [pytest.mark.skipif(not SHARED.exists(), reason="no shared traces"), with_the_truth]


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, float, float]]:
    return calibrate.step_residuals(SHARED)


@pytest.mark.slow
def test_the_stored_residuals_are_those_of_the_ledger(steps: list[tuple[str, float, float]]) -> None:
    text = Path(calibration.__file__).read_text(encoding="utf-8")
    every = rows()
    written = calibrate.written(calibrating(every), steps, calibrate.interval_parts(judging(every)))
    assert written == text, "run: python -m benchmarks.calibrate_replay TRACES --write"


@pytest.mark.slow
def test_the_page_says_what_is_measured(steps: list[tuple[str, float, float]]) -> None:
    text = accuracy.PAGE.read_text(encoding="utf-8")
    assert accuracy.page(rows(), steps, diagnosed_part()) == text, WRITE_PAGE


def diagnosed_part() -> str:
    """What the page says of the diagnosis, which is too slow to be made anew here."""
    text = accuracy.PAGE.read_text(encoding="utf-8")
    part = text.partition(diagnoses.TITLE)[2].partition(accuracy.LIMITS)[0]
    return f"{diagnoses.TITLE}{part}"


@pytest.mark.parametrize("name", ["pairs/clean_gemm.fixed", "real/resnet50.eager", "noise/resnet.item"])
def test_page_shows_findings_in_unmodified_programs(name: str) -> None:
    said = [line for line in diagnosed_part().splitlines() if line.startswith(f"| {name} |")]
    found = diagnoses.alarms(SHARED / f"{name}.json.gz")
    assert len(said) == len(found)
    assert all(line.startswith(row) for line, row in zip(said, found, strict=True)), WRITE_PAGE


@pytest.mark.slow
def test_steps_without_the_profiler_are_near_the_truth(steps: list[tuple[str, float, float]]) -> None:
    errors = np.abs([error for _, error, _ in steps])
    assert np.median(errors) <= 0.05
    assert np.mean(errors <= 0.2) >= 0.9


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_to_be_had_from_a_busy_gpu(name: str) -> None:
    case = Case.of(load(SHARED / f"{name}.json.gz"))
    known = forecast(case)
    assert known.step.bound == "gpu"
    for edits in (graph, item):
        assert abs(known.saving(edits(case)).share) <= 0.03


def test_the_same_program_four_times_saves_the_same() -> None:
    for program in ("gemm", "resnet"):
        cases = [Case.of(load(SHARED / f"noise/{program}.a{i}.json.gz")) for i in (1, 2, 3, 4)]
        known = [forecast(case) for case in cases]
        assert {one.step.bound for one in known} == {"gpu"}
        savings = [one.saving(graph(case)) for one, case in zip(known, cases, strict=True)]
        assert max(s.low_share for s in savings) <= min(s.high_share for s in savings)
