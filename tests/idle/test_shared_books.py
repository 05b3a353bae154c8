"""Shared traces, every device, against the slow reference, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.idle import reference
from tests.idle.books import Books, check_against_reference
from tests.support.cached_reports import analysed
from tests.support.trace_selection import one_of_each_writer
from traceanalyzer.model import intervals
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import Busy
from traceanalyzer.timeline.names import STEP_MARK


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_the_books_are_exact(shared_trace: Path) -> None:
    events = reference.raw_events(shared_trace)
    work = reference.work_of(events)
    analysis = analysed(shared_trace)
    if not work:
        with pytest.raises(Unavailable, match=r"no kernels|no device records"):
            Books.within(analysis)
        return
    books = Books.within(analysis)
    busy = books.analysis.index(Busy)
    for device in books.devices:
        mine = [member for member in work if member.device == device]
        assert intervals.length(busy.devices[device]) == reference.busy_ns(mine)
    begins = books.steps.cpu_start_ns.tolist()
    if books.steps.kind == "ProfilerStep":
        assert begins == sorted(
            reference.ns(event["ts"])
            for event in events
            if STEP_MARK.match(str(event.get("name"))) and is_cpu(event)
        )
    check_against_reference(books, work, begins)


def is_cpu(event: dict[str, object]) -> bool:
    """On the CPU lane; the GPU lane repeats annotations."""
    return event.get("ph") == "X" and event.get("cat") != "gpu_user_annotation"
