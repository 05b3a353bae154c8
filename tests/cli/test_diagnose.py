"""`diagnose`: what is refused, read and judged, and which findings fail a run."""

import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, written
from tests.job.ranks import Reductions
from traceanalyzer import BadOption, diagnose
from traceanalyzer.cli import loading, report_output
from traceanalyzer.cli.report_output import baseline_severities
from traceanalyzer.model.finding import Severity
from traceanalyzer.report import diagnosis


def test_ranks_that_should_be_like_their_peers_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [
        made.write(tmp_path / f"rank{rank}.json")
        for rank, made in Reductions({0: (500,) * 5, 1: (900,) * 5}).traces().items()
    ]
    asked: list[object] = []
    whole = diagnosis.report_of_ranks

    def report_of_ranks(*given: Any) -> Any:
        asked.extend(given[3:])
        return whole(*given)

    monkeypatch.setattr(diagnosis, "report_of_ranks", report_of_ranks)
    call("diagnose", *traces, "--as-peers", 1, "--as-peers", 0)
    assert asked == [(1, 0)]


def test_a_group_whose_rule_is_shown_does_not_point_to_it_again() -> None:
    """data-movement is of the group copies and has a cause of that name; hotspots are of another group."""
    page = call("explain", "copies").stdout
    assert "see traceanalyzer explain hotspot" in page
    assert "see traceanalyzer explain data-movement" not in page


def test_what_comes_before_progress_comes_once() -> None:
    done: list[str] = []
    told = loading._after(lambda: done.append("first"), lambda *said: done.append("told"))
    for at in range(3):
        told(at, 3, at)
    assert done == ["first", "told", "told", "told"]


def test_the_start_is_before_what_the_process_worked_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 10 s by the clock after 4 s of work: at 6 s."""
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 10_000_000_000)
    monkeypatch.setattr(time, "process_time_ns", lambda: 4_000_000_000)
    assert runpy.run_path(str(report_output.__file__))["_STARTED_NS"] == 6_000_000_000


TIMED = Path(__file__).parents[2] / "fixtures" / "exposed-copy" / "bad.json.gz"  # 3.39 ms a step, 3.29 ms busy


def test_a_step_longer_than_the_recorded_one_is_doubted(tmp_path: Path) -> None:
    doubt = "warning: --step-ms 18.3: a step takes only 3.39 ms even with the profiler; is it in ms"
    assert doubt in call("diagnose", TIMED, "--step-ms", "18.3").stderr
    page = tmp_path / "report.html"
    assert doubt in call("report", TIMED, "-o", page, "--step-ms", "18.3").stderr


@pytest.mark.parametrize("given", ["0.25", "0.25:3.3", "3.3,0.25"])
def test_a_step_shorter_than_the_gpu_is_busy_is_refused(given: str) -> None:
    with pytest.raises(BadOption, match=r"ms: the GPU alone is busy for 3\.26 ms of each step"):
        diagnose(TIMED, step_ms=given)


@pytest.mark.parametrize("given", ["3.2:3.4", "3.2,3.4,3.3"])
def test_several_times_of_a_step_give_a_range(given: str) -> None:
    said = " ".join(call("diagnose", TIMED, "--step-ms", given).stdout.split())
    assert "3.30 ms without the profiler, as you measured it (3.20 to 3.40)" in said


def test_a_step_that_can_be_is_told_as_measured() -> None:
    result = call("diagnose", TIMED, "--step-ms", "3.2")
    said = " ".join(result.stdout.split())
    assert "Step 3.39 ms recorded, 3.20 ms without the profiler, as you measured it" in said
    assert "as you measured it Limit the GPU" in said
    assert "--step-ms" not in result.stderr
    assert "--step-ms" not in call("diagnose", TIMED).stderr


ONE = {"rule": "exposed-copy", "cause": "pageable", "by": None, "severity": "low", "evidence": {}}


def test_every_finding_of_a_baseline_is_known_with_its_severity(tmp_path: Path) -> None:
    """By what they name, too; one without evidence is one."""
    told = [
        {**ONE, "severity": severity, "by": by, "evidence": None}
        for severity, by in (("info", "aten::mm"), ("high", "aten::to"), ("medium", None))
    ]
    (path := tmp_path / "known.json").write_text(json.dumps({"findings": told}))
    assert list(baseline_severities(path).values()) == [Severity(one["severity"]).rank for one in told]
    del told[1]["evidence"]
    path.write_text(json.dumps({"findings": told}))
    assert len(baseline_severities(path)) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "bad"},
        {"severity": None},
        {"severity": ["low"]},
        {"evidence": 3},
        {"rule": ...},
        {"cause": ...},
        {"severity": ...},
    ],
)
def test_one_finding_that_cannot_be_read_is_enough(changes: dict[str, Any], tmp_path: Path) -> None:
    odd = {key: value for key, value in {**ONE, **changes}.items() if value is not ...}
    (path := tmp_path / "known.json").write_text(json.dumps({"findings": [ONE, odd]}))
    with pytest.raises(BadOption, match="one of its findings cannot be read"):
        baseline_severities(path)


_AT_READING = """
import sys
from traceanalyzer.cli.app import run
import traceanalyzer.read.load as reader
reader.load_layout = lambda *_, **__: print(*sys.modules)
run(["diagnose", sys.argv[1]])
"""


def test_reading_begins_before_the_analysis_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json")
    done = subprocess.run([sys.executable, "-c", _AT_READING, path], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "traceanalyzer.read.load" in imported
    assert imported.isdisjoint({"pandas", "traceanalyzer.rule.registry", "traceanalyzer.report.diagnosis"})


def test_what_is_done_meanwhile_is_done_once(tmp_path: Path) -> None:
    paths = [written(tmp_path / name) for name in ("rank0.json", "rank1.json")]
    done: list[str] = []
    loading.load_all(paths, quiet=True, meanwhile=lambda: done.append("once"))
    assert done == ["once"]
