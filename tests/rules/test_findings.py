"""What holds for every finding of every rule, on every trace."""

import re
from pathlib import Path

import orjson
import pytest

from tests.rules.shares import excesses
from tests.support.cached_reports import reported as _report
from tests.support.fixtures import TRACES, name_of
from traceanalyzer.model.finding import MAX_OCCURRENCES
from traceanalyzer.read.text.source import Source
from traceanalyzer.rule.registry import Rule, all_rules, limits_of


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_event_ids_are_file_positions_of_the_finding(path: Path) -> None:
    document = orjson.loads(b"".join(Source(path).blocks()))
    for found in _report(path).findings:
        assert found.event_ids, found
        for occurrence in found.occurrences:
            for number in occurrence.event_ids:
                event = document["traceEvents"][number]
                assert event["ph"] in "Xi", event
            assert len(occurrence.event_ids) == len(set(occurrence.event_ids))


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_costs_lie_within_the_window_and_messages_are_complete(path: Path) -> None:
    report = _report(path)
    window = report.traces[0].window
    for found in report.findings:
        assert 0 <= found.cost_ns <= window.length_ns
        assert found.cost_share == pytest.approx(found.cost_ns / window.length_ns)
        told = sum(occurrence.cost_ns for occurrence in found.occurrences)
        assert told == found.cost_ns or (told < found.cost_ns and found.count > MAX_OCCURRENCES)
        assert len(found.occurrences) == min(found.count, MAX_OCCURRENCES)
        assert found.steps <= found.count
        assert not re.search(r"[{}]|None|nan", found.message), found.message
        assert found.advice.endswith(".")


@pytest.mark.parametrize("path", TRACES, ids=name_of)
def test_no_share_exceeds_what_it_is_a_share_of(path: Path) -> None:
    assert excesses(_report(path)) == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)
def test_the_page_of_a_rule_says_all_that_a_page_must_say(rule: Rule) -> None:
    headings = ("What it looks for", "Why it costs", "Bad", "Good", "How sure", "When it is wrong", "Source")
    page = rule.page.replace("Why it matters:", "Why it costs:")  # what is no fault costs nothing
    assert [heading for heading in headings if f"{heading}:" not in page] == []


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)
def test_every_limit_says_where_it_comes_from(rule: Rule) -> None:
    assert [one.name for one in limits_of(rule.limits) if len(one.source) < 10] == []
