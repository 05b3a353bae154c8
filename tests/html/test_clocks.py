"""Timelines of ranks whose clocks differ: on the page they have one axis."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.html.test_timeline import packed
from tests.job.ranks import REDUCES, Recording, Reductions
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.report.diagnosis import analyses_of, report_of

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


def test_the_waits_of_a_rank_are_those_in_which_it_waits_in_time() -> None:
    """Rank 1 comes later in the second and in the fourth step, rank 0 in the third."""
    made = Reductions({0: (1_000, 1_000, 1_600, 1_000), 1: (1_000, 1_200, 1_000, 1_500)})
    analyses = analyses_of({rank: trace.load() for rank, trace in made.traces().items()})
    lines = [one.timeline for one in page_of(report_of(analyses), analyses).traces]
    waits = [[] if line is None else [(ns, last) for _, ns, last in line.waits] for line in lines]
    assert [[last for _, last in own] for own in waits] == [[1, 1], [0]]
    assert [ns for own in waits for ns, _ in own] == pytest.approx([200_000, 500_000, 600_000], rel=0.05)
    assert all(list(line.waits) == sorted(line.waits) for line in lines if line is not None)
