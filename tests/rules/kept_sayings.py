"""What rules say of the traces that tests build, whole: each number, not only those that a test asks for.

While a test of rules runs, what each rule yields for a trace that was built in memory is compared with what it yielded
when sayings.json was written. `pytest tests/rules --update-findings -n 0 -m ""` adds what is new or has changed; remove
the file before, and what no test builds any more goes, too. Unknown traces, and what was empty, are left alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.rules import changed_copies
from tests.rules.limit_cases import said_by
from tests.support.trace_builder import content_of
from traceanalyzer.job.ranks import JobView
from traceanalyzer.model.analysis import Analysis, GivenByJob
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import Rule, find_rule

PATH = Path(__file__).parent.parent / "snapshots/rules/sayings.json"
Said = dict[str, str]
"""Trace and rule -> digest of what it yields"""


@cache
def known() -> Said:
    """What was written."""
    return dict(json.loads(PATH.read_text(encoding="utf-8"))) if PATH.exists() else {}


def write(said: Said) -> None:
    """What is known by now, and this."""
    known.cache_clear()
    whole = known() | said
    text = json.dumps({name: whole[name] for name in sorted(whole)}, indent=0)
    PATH.write_text(text + "\n", encoding="utf-8")


def listening(
    hits_of: changed_copies.HitsOf, heard: Said, of_copies: changed_copies.Said | None, failed: list[str]
) -> changed_copies.HitsOf:
    """`Rule.hits` that also notes what it yields, and where wanted what it yields for changed copies."""

    def hits(rule: Rule, analysis: Analysis) -> Iterator[Hits]:
        yielded = list(hits_of(rule, analysis))
        name, content = _name_of(rule, analysis), content_of(analysis.trace)
        if name and yielded:
            heard[name] = said_by(yielded, sentences=False)[2]
        if name and of_copies is not None and _is_usual(rule, analysis):
            told = changed_copies.told(hits_of, rule, content, bool(yielded), failed)
            of_copies.setdefault(rule.slug, {})[changed_copies.name_of(content)] = told
        return iter(yielded)

    return hits


def _is_usual(rule: Rule, analysis: Analysis) -> bool:
    """Whether it is asked about a whole trace that is not too large, with the limits that it has."""
    small = len(content_of(analysis.trace)) < changed_copies.MOST_BYTES
    return small and analysis.window.asked_ns is None and rule == find_rule(rule.slug)


def _name_of(rule: Rule, analysis: Analysis) -> str:
    """Nothing where the trace was not built here, or others tell of it: ranks of its job, or the user."""
    content, shared = content_of(analysis.trace), list(analysis._shared.values())
    if not content or any(isinstance(index, GivenByJob | JobView) for index in shared):
        return ""
    forecast = analysis._own.get(Forecast)
    if isinstance(forecast, Forecast) and forecast.step.low_ns == forecast.step.high_ns:
        return ""  # the step may have been given
    about = repr((analysis.window.asked_ns, rule.limits, rule.min_share)).encode()
    return f"{rule.slug}/{hashlib.sha256(content + about).hexdigest()[:8]}"
