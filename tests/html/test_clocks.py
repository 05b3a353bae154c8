"""Timelines of ranks whose clocks differ: on the page they have one axis."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.html.test_timeline import packed
from tests.job.ranks import REDUCES, Recording, Reductions
from traceanalyzer.render.html.document import render_html
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.report.page.page import page_of

AHEAD_NS = 3_000_000


def test_ranks_meet_at_their_collectives_on_one_axis() -> None:
    """One clock is 3 ms ahead, which is more than two steps."""
    compute = (1_000, 1_010, 1_000, 990)
    made = Reductions({0: compute, 1: compute}, recordings={1: Recording(ahead_ns=AHEAD_NS)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    drawn = packed(render_html(page_of(report_of(analyses), analyses)))
    ends = []
    for data in drawn:
        columns = data["ev"]
        for _, _, _, _, first, size in data["tracks"]:
            starts = accumulate(columns["s"][first : first + size])
            rows = zip(
                starts, columns["n"][first : first + size], columns["d"][first : first + size], strict=True
            )
            found = [data["shift"] + at + dur for at, name, dur in rows if data["texts"][name] == REDUCES]
            ends += [found] if found else []
    first, second = ends
    assert len(first) == len(compute)
    assert second == pytest.approx(first, abs=50_000)
    assert min(data["shift"] for data in drawn) == 0
