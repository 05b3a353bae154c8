"""What holds for every finding of every rule, on every trace."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import orjson
import pytest

from tests.loaded import reported as _report
from tests.rules.test_fixtures import TRACES, _id
from traceanalyzer.read.text.source import Source
from traceanalyzer.rule.registry import Rule, all_rules

BAD = [path for path in TRACES if path.name == "bad.json.gz"]


@pytest.mark.parametrize("path", TRACES, ids=_id)
def test_event_ids_are_ordinals_of_the_file_and_lie_where_the_finding_says(path: Path) -> None:
    document = orjson.loads(b"".join(Source(path).blocks()))
    for found in _report(path).findings:
        assert found.event_ids, found
        for occurrence in found.occurrences:
            for number in occurrence.event_ids:
                event = document["traceEvents"][number]
                assert event["ph"] in "Xi", event
        named = [document["traceEvents"][number]["name"] for number in found.event_ids]
        culprit = found.evidence.get("kernel") or found.evidence.get("sync") or found.evidence.get("gemm")
        assert culprit is None or culprit in named


@pytest.mark.parametrize("path", TRACES, ids=_id)
def test_costs_lie_within_the_window_and_messages_are_complete(path: Path) -> None:
    report = _report(path)
    window = report.traces[0].window
    for found in report.findings:
        assert 0 <= found.cost_ns <= window.length_ns
        assert found.cost_share == pytest.approx(found.cost_ns / window.length_ns)
        assert found.cost_ns <= sum(occurrence.cost_ns for occurrence in found.occurrences)
        assert found.count == len(found.occurrences)
        assert not re.search(r"[{}]|None|nan", found.message), found.message
        assert found.advice.endswith(".")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)
def test_the_page_of_a_rule_says_all_that_a_page_must_say(rule: Rule) -> None:
    headings = ("What it looks for", "Why it costs", "Bad", "Good", "How sure", "When it is wrong", "Source")
    assert [heading for heading in headings if f"{heading}:" not in rule.page] == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)
def test_every_limit_says_where_it_comes_from(rule: Rule) -> None:
    names = [field.name for field in fields(rule.limits)]
    source = inspect.getsource(type(rule.limits))
    stretches = re.split(r"\n    (?=\w+: )", source)[1:]
    assert [stretch.split(":")[0] for stretch in stretches if "#" in stretch] == names
