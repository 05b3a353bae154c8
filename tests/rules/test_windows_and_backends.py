"""The same program gets the same findings through another backend, in windows and again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cached_reports import reported
from tests.support.cupti_monitor import converted
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import load_bytes
from traceanalyzer import Report, Trace, diagnose, load
from traceanalyzer.model.finding import Status

Said = dict[tuple[object, ...], tuple[object, ...]]
CONVERTED = ["exposed-copy", "hidden-dtod-copy", "host-gap", "implicit-sync", "launch-bound", "no-tensor-cores"]


def said(report: Report) -> Said:
    return {(f.rule, f.cause, f.by): (f.severity, f.count, f.cost_ns, f.saving) for f in report.findings}


@pytest.mark.parametrize("slug", CONVERTED)
def test_the_newer_backend_gets_the_same_findings(slug: str) -> None:
    path = FIXTURES / slug / "bad.json.gz"
    assert said(diagnose(load_bytes(converted(path)))) == said(reported(path))


def test_two_windows_of_one_trace_and_what_is_loaded_late(shared: Callable[[str], Path]) -> None:
    trace = load(shared("pairs/item_sync.bad"))
    assert isinstance(trace, Trace)
    whole = diagnose(trace)
    middle = whole.traces[0].window.length_ns // 2
    parts = [diagnose(trace, window=window) for window in ((None, middle), (middle, None))]
    for part in parts:
        assert [one for one in part.outcomes if one.status is Status.FAILED] == []
        assert "implicit-sync" in {found.rule for found in part.findings}
        assert part.traces[0].window.length_ns < whole.traces[0].window.length_ns
    assert len(trace.python) == whole.traces[0].meta.rows["python"]["python_function"]
    assert said(diagnose(trace, window=(None, middle))) == said(parts[0])
    assert said(diagnose(trace)) == said(whole)
