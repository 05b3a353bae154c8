"""Every rule over every recorded fixture: a change shows whom else a rule accuses.

`findings.json` beside the traces holds what is found and how much; tests/snapshots/rules has the sentences of all of
them in texts.json, and which rules do not apply, and why, in outcomes.json. So a new sentence changes one file, and a
new rule that finds nothing in a folder leaves the findings.json of that folder alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cached_reports import reported as _report
from tests.support.cached_reports import selected
from tests.support.fixtures import FIXTURES, FOLDERS, HEALTHY, RECORDED, TRACES, UNRECORDED, name_of
from tests.support.paths import REPOSITORY
from traceanalyzer import Finding
from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.rule.registry import all_rules

SAID = ("rule", "cause", "by", "device", "severity", "count", "steps", "event_ids")
TEXTS, OUTCOMES = (REPOSITORY / "tests/snapshots/rules" / f"{name}.json" for name in ("texts", "outcomes"))

Snapshot = dict[str, dict[str, list[str]]]  # rule -> what it says -> where: "folder/trace"


def _short(found: Finding) -> dict[str, Any]:
    """What a finding is and how much, without its sentences; shares to the percent, times to three digits."""
    short = {name: getattr(found, name) for name in SAID} | {"cost_ns": float(f"{found.cost_ns:.3g}")}
    if found.saving is not None:
        shares = (found.saving.low_share, found.saving.share, found.saving.high_share)
        short["saving"] = [round(share, 2) + 0.0 for share in shares]
    return {name: value for name, value in short.items() if value not in (None, "")}


def _written(short: dict[str, list[dict[str, Any]]]) -> str:
    """As JSON, a line per finding: short enough to be read in a diff."""
    traces = [
        f"{json.dumps(name)}: ["
        + ",".join(f"\n {json.dumps(f, ensure_ascii=False)}" for f in findings)
        + "\n]"
        for name, findings in short.items()
    ]
    return "{\n" + ",\n".join(traces) + "\n}\n"


def _by_rule(items: Iterable[tuple[str, str, str]]) -> Snapshot:
    """rule -> sentence -> traces, of (rule, sentence, trace)."""
    made: Snapshot = {}
    for rule, sentence, trace in items:
        made.setdefault(rule, {}).setdefault(sentence, []).append(trace)
    return made


def _of(snapshot: Snapshot, wanted: Callable[[str], bool]) -> Snapshot:
    """What the snapshot says of these traces."""
    chosen = {
        rule: {sentence: [trace for trace in traces if wanted(trace)] for sentence, traces in said.items()}
        for rule, said in snapshot.items()
    }
    return {
        rule: kept
        for rule, said in chosen.items()
        if (kept := {sentence: sorted(traces) for sentence, traces in said.items() if traces})
    }


def _joined(one: Snapshot, other: Snapshot) -> Snapshot:
    """Both, sorted."""
    items = [
        (rule, sentence, trace)
        for snapshot in (one, other)
        for rule, said in snapshot.items()
        for sentence, traces in said.items()
        for trace in traces
    ]
    return _by_rule(sorted(items))


def _compare(path: Path, traces: Collection[str], said: Snapshot, *, update: bool) -> None:
    """With what the snapshot of all rules says of these traces."""
    known: Snapshot = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if update:
        known = _joined(_of(known, lambda trace: trace not in traces), said)
        rules = (
            f"{json.dumps(rule)}: {{"
            + ",".join(
                f"\n {json.dumps(s, ensure_ascii=False)}: {json.dumps(t)}" for s, t in sentences.items()
            )
            + "\n}"
            for rule, sentences in known.items()
        )
        path.parent.mkdir(exist_ok=True)
        path.write_text("{\n" + ",\n".join(rules) + "\n}\n", encoding="utf-8")
    assert _of(said, lambda _: True) == _of(known, lambda trace: trace in traces)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_rules_find_in_every_fixture_what_they_found(folder: Path, request: pytest.FixtureRequest) -> None:
    paths = [path for path in TRACES if path.parent == folder]
    short = {name_of(path).split("/")[1]: [_short(f) for f in _report(path).findings] for path in paths}
    expected = folder / "findings.json"
    if request.config.getoption("--update-findings"):
        expected.write_text(_written(short), encoding="utf-8")
    assert json.loads(json.dumps(short)) == json.loads(expected.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_rules_say_of_every_fixture_what_they_said(folder: Path, request: pytest.FixtureRequest) -> None:
    reports = {name_of(path): _report(path) for path in TRACES if path.parent == folder}
    texts = [(f.rule, f.message, name) for name, report in reports.items() for f in report.findings]
    outcomes = [
        (one.rule, f"{one.status}: {one.why}", name)
        for name, report in reports.items()
        for one in report.outcomes
        if one.status not in (Status.CLEAR, Status.FOUND)
    ]
    update = bool(request.config.getoption("--update-findings"))
    _compare(TEXTS, reports, _by_rule(texts), update=update)
    _compare(OUTCOMES, reports, _by_rule(outcomes), update=update)


@pytest.mark.parametrize("slug", RECORDED)
def test_every_rule_finds_its_bad_fixture_and_clears_its_good_one(slug: str) -> None:
    bad, good = (FIXTURES / slug / f"{name}.json.gz" for name in ("bad", "good"))
    assert _status(bad, slug) is Status.FOUND
    accusations = [found for found in _report(good).findings if found.rule == slug]
    assert all(found.severity is Severity.INFO for found in accusations), accusations


def test_what_is_said_to_have_no_pair_has_none() -> None:
    assert UNRECORDED.isdisjoint(folder.name for folder in FOLDERS)
    assert {rule.slug for rule in all_rules()} >= UNRECORDED


@pytest.mark.parametrize("path", HEALTHY, ids=name_of)
def test_nobody_is_accused_on_a_healthy_trace(path: Path) -> None:
    assert [found for found in _report(path).findings if found.severity is not Severity.INFO] == []


def test_a_gap_that_happens_once_is_said_to_be_a_hiccup() -> None:
    path = FIXTURES / "scheduler-gap" / "once.json.gz"
    (once,) = (found for found in _report(path).findings if found.cause == "once")
    assert (once.rule, once.severity) == ("host-gap", Severity.INFO)
    assert "this pause does not recur" in once.message
    (alone,) = (found for found in selected(path, "scheduler-gap").findings if found.cause.endswith("-once"))
    assert alone.severity is Severity.INFO
    assert "in one step only" in alone.message


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_no_rule_fails(path: Path) -> None:
    assert [outcome for outcome in _report(path).outcomes if outcome.status is Status.FAILED] == []


def _status(path: Path, slug: str) -> Status:
    return next(outcome.status for outcome in _report(path).outcomes if outcome.rule == slug)
