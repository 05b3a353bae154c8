"""What copies are called by newer profilers: Memcpy, with the way and the kinds of memory beside it."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.views import Work

US = 1_000


def copied(name: str, **args: str) -> Work:
    trace = TraceBuilder()
    trace.launch("cudaMemcpyAsync", 0, 5 * US, 1)
    trace.memcpy(10 * US, 5 * US, 1, name=name, **args)
    return Analysis(trace.load()).index(Work)


@pytest.mark.parametrize(
    ("name", "args", "kind", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", {}, "copy_h2d", True),
        ("Memcpy DtoH (Device -> Pinned)", {}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}, "copy_h2d", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pageable"}, "copy_d2h", True),
        ("Memcpy", {"copy kind": "DtoH", "src kind": "device", "dst kind": "pinned"}, "copy_d2h", False),
        ("Memcpy", {"copy kind": "DtoD", "src kind": "device", "dst kind": "device"}, "copy_d2d", False),
        ("Memcpy", {}, "copy_other", False),
    ],
)
def test_way_and_memory_of_a_copy(name: str, args: dict[str, str], kind: str, pageable: bool) -> None:
    work = copied(name, **args)
    assert (work.kind[0], bool(work.pageable[0])) == (kind, pageable)
