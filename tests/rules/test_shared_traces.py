"""What the rules must and must not say of the shared traces, whose truth is known by how they were made."""

from pathlib import Path

import orjson
import pytest

from tests.rules.shares import excesses
from tests.support.cached_reports import reported as _report
from tests.support.trace_selection import one_of_each_kind
from traceanalyzer import Finding
from traceanalyzer.model.finding import Status
from traceanalyzer.read.text.source import Source


def _found(path: Path, rule: str) -> list[Finding]:
    return [found for found in _report(path).findings if found.rule == rule]


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_no_rule_fails(shared_trace: Path) -> None:
    assert [outcome for outcome in _report(shared_trace).outcomes if outcome.status is Status.FAILED] == []


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_no_share_exceeds_what_it_is_a_share_of(shared_trace: Path) -> None:
    assert excesses(_report(shared_trace)) == []


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_buffer_requests_need_profiler_rows(shared_trace: Path) -> None:
    if not _found(shared_trace, "activity-buffer-request"):
        return
    content = b"".join(Source(shared_trace).blocks())
    assert b'"Activity Buffer Request"' in content or b'"Buffer Flush"' in content


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_the_profilers_own_synchronisation_is_never_blamed(shared_trace: Path) -> None:
    """It is the last whole-device synchronisation, behind every op and annotation."""
    if not _found(shared_trace, "long-device-sync"):
        return
    document = orjson.loads(b"".join(Source(shared_trace).blocks()))
    events = document if isinstance(document, list) else document["traceEvents"]
    cats = ("cpu_op", "user_annotation", "Operator")
    last_op = max((e["ts"] for e in events if e.get("cat") in cats), default=0)
    own = {i for i, e in enumerate(events) if "DeviceSynchronize" in e.get("name", "") and e["ts"] > last_op}
    for found in _found(shared_trace, "long-device-sync"):
        assert own.isdisjoint(i for occurrence in found.occurrences for i in occurrence.event_ids)
