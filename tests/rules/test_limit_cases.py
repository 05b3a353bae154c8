"""Each limit just below and just above the value at which a program decides it: see limit_cases.py."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import groupby
from typing import Any

import pytest

from tests.rules.limit_cases import TABLE, analysis_of, said, with_limit
from traceanalyzer.rule.registry import all_rules, find_rule

CASES: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
BY_TRACE = {
    trace: list(names)
    for trace, names in groupby(
        sorted(CASES, key=lambda name: CASES[name]["trace"]), lambda n: CASES[n]["trace"]
    )
}


@pytest.mark.parametrize("trace", BY_TRACE)
def test_a_rule_says_other_things_on_either_side_of_its_limit(trace: str) -> None:
    analysis, alike = analysis_of(trace), []
    for name in BY_TRACE[trace]:
        slug, _, limit = name.partition(".")
        rule, (below, above) = find_rule(slug), CASES[name]["sides"]
        one, other = (said(with_limit(rule, limit, side), analysis) for side in (below, above))
        assert said(with_limit(rule, limit, below), analysis) == one, "the digest is not of what is said"
        if one == other:
            alike.append(f"{name}: with {below} and {above} the same {one}")
    assert not alike, "\n".join(alike)


def test_limits_are_those_that_the_table_was_made_with() -> None:
    """A limit that changes on purpose changes the table, too, where one sees it."""
    now = {
        f"{rule.slug}.{one.name}": getattr(rule.limits, one.name)
        for rule in all_rules()
        if rule.limits is not None
        for one in fields(rule.limits)
    }
    assert {name: case["limit"] for name, case in CASES.items()} == {name: now.get(name) for name in CASES}
    missing = sorted(set(now) - set(CASES))
    assert not missing, (
        f"run python -m tests.rules.limit_cases, or first build a case in limit_programs.py: {missing}"
    )
