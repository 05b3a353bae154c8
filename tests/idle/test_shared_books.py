"""Every shared trace and device against the slow reference, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.idle import reference
from tests.idle.books import Books, check_against_reference
from tests.loaded import loaded
from traceanalyzer.model import intervals
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.busy import Busy
from traceanalyzer.timeline.names import STEP_MARK


def test_the_books_are_exact(shared_trace: Path) -> None:
    events = reference.raw_events(shared_trace)
    work = reference.work_of(events)
    trace = loaded(shared_trace)
    if not work:
        with pytest.raises(Unavailable, match=r"no kernels|no device records"):
            Books.of(trace)
        return
    books = Books.of(trace)
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
