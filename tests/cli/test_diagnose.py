"""`diagnose`: what is refused, read and judged, and which findings fail a run."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, diagnosed, written
from tests.job.ranks import Reductions
from tests.report import report_samples as samples
from traceanalyzer import BadOption, diagnose
from traceanalyzer.cli import loading, ranks, report_output
from traceanalyzer.cli.report_output import baseline_severities, failing
from traceanalyzer.model.finding import Severity
from traceanalyzer.render.data.ci import fingerprint
from traceanalyzer.report import diagnosis


@pytest.mark.parametrize(
    ("given", "rules"),
    [((), ["launch-bound"]), (("--select", "host-gap"), ["host-gap"]), (("--no-config",), None)],
)
def test_rules_of_the_command_line_override_the_project(
    given: tuple[str, ...], rules: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.traceanalyzer]\nselect = ["launch-bound"]\n')
    monkeypatch.chdir(tmp_path)
    trace = written(tmp_path / "trace.json")
    report = json.loads(diagnosed(trace, "--format", "json", *given))
    ran = [outcome["rule"] for outcome in report["outcomes"]]
    assert (len(ran) > 2) if rules is None else (ran == rules)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((), {"cache": False, "jobs": None, "quiet": False, "scheduler": None}),
        (("--cache",), {"cache": True, "jobs": None, "quiet": False, "scheduler": None}),
        (("--jobs", "3", "--quiet"), {"cache": False, "jobs": 3, "quiet": True, "scheduler": None}),
    ],
)
def test_reading_is_asked_for_as_the_options_say(
    given: tuple[str, ...], asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}

    def with_ranks(traces: object, window: object, say: object, **options: Any) -> bool:
        found.update(options)
        return False

    monkeypatch.setattr(ranks, "with_ranks", with_ranks)
    assert call("diagnose", "absent.json", *given).exit_code == 0
    assert {name: found[name] for name in asked} == asked


def test_ranks_that_should_be_like_their_peers_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(("free", "processes"), [(300, 2), (299, 1), (900, 3), (1, 1)])
def test_each_process_has_memory_for_the_largest_file(
    free: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files of 10, 20 and 50 bytes, three times as large in memory, however large they are together."""
    files = [tmp_path / f"{size}.json" for size in (10, 20, 50)]
    for path in files:
        path.write_bytes(b" " * int(path.stem))
    limits = {"WORTH_BYTES": 1, "_RANK_BYTES": 3, "_BEGUN_BYTES": 0, "_SHARE": 1.0, "_HERE_BYTES": 0}
    for name, value in limits.items():
        monkeypatch.setattr(ranks, name, value)
    monkeypatch.setattr(ranks, "free_bytes", lambda: free)
    monkeypatch.setattr(ranks, "cores", lambda: 8)
    assert ranks._processes(files, None) == (processes, free // processes)


TIMED = (
    Path(__file__).parents[2] / "fixtures" / "exposed-copy" / "bad.json.gz"
)  # 3.39 ms a step, 3.29 ms busy


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


EVERY = tuple(replace(samples.finding(0), rule=str(severity), severity=severity) for severity in Severity)
REPORT = samples.report(findings=EVERY)
NAMES = [str(severity) for severity in Severity]


@pytest.mark.parametrize(
    ("fail_on", "count"), [("never", 0), ("high", 1), ("medium", 2), ("low", 3), ("info", 4)]
)
def test_what_is_as_severe_as_was_asked_for_fails(fail_on: str, count: int) -> None:
    assert [one.rule for one in failing(REPORT, fail_on, None)] == NAMES[:count]
    assert [one.rule for one in failing(REPORT, fail_on, {})] == NAMES[:count]


@pytest.mark.parametrize(
    ("known", "fails"), [("high", False), ("medium", False), ("low", True), ("info", True)]
)
def test_baselined_finding_fails_only_if_more_severe(known: str, fails: bool) -> None:
    medium = EVERY[1]
    told = {fingerprint(medium): Severity(known).rank}
    found = failing(REPORT, "medium", told)
    assert [one.rule for one in found] == ["high", "medium"][: 1 + fails]
    assert failing(REPORT, "never", told) == []


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


def test_json_that_is_nested_too_deep_to_be_read_is_none(tmp_path: Path) -> None:
    (path := tmp_path / "known.json").write_text("[" * 100_000)
    with pytest.raises(BadOption, match="is no JSON"):
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
    done = subprocess.run(
        [sys.executable, "-c", _AT_READING, path], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "traceanalyzer.read.load" in imported
    assert imported.isdisjoint({"pandas", "traceanalyzer.rule.registry", "traceanalyzer.report.diagnosis"})


def test_what_is_done_meanwhile_is_done_once(tmp_path: Path) -> None:
    paths = [written(tmp_path / name) for name in ("rank0.json", "rank1.json")]
    done: list[str] = []
    loading.load_all(paths, quiet=True, meanwhile=lambda: done.append("once"))
    assert done == ["once"]
