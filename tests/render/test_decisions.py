"""Decisions of what is shown, each by an example at either side of it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from traceanalyzer.cli.app import run
from traceanalyzer.cli.open import _origin
from traceanalyzer.cli.output import ascii_only
from traceanalyzer.comparison.ledger import _row
from traceanalyzer.read.job_ranks import _apart
from traceanalyzer.render.html.plots import _CURVE_HEIGHT, _stairs
from traceanalyzer.render.html.timeline_data import _FIRST, _marks
from traceanalyzer.render.perfetto.address import View


@pytest.mark.parametrize(
    ("start", "end", "low", "high"),
    [(1_000, 1_100, 800, 1_300), (1_000, 1_001, 980, 1_021), (10, 110, 0, 310), (9_800, 9_900, 9_600, 9_950)],
)
def test_viewer_shows_twice_the_occurrence_on_each_side(start: int, end: int, low: int, high: int) -> None:
    finding: Any = SimpleNamespace(start_ns=1_000 * start, end_ns=1_000 * end)
    assert View(finding, "", (0, 9_950_000), (), 7).bounds_ns == (1_000 * low + 7, 1_000 * high + 7)


def test_curve_is_stepped_from_floor_to_just_below_top() -> None:
    heights = [_CURVE_HEIGHT, _CURVE_HEIGHT * 0.52, _CURVE_HEIGHT * 0.04]
    low, half, high = (f"{height:.1f}" for height in heights)
    assert _stairs([0, 500, 1_000], [-3, 50, 100], 100) == f"M0.0,{low} H500.0 V{half} H1000.0 V{high}"


@pytest.mark.parametrize(
    ("page", "origin"),
    [
        ("http://a.org:80/x", "http://a.org"),
        ("http://a.org:443/", "http://a.org:443"),
        ("https://a.org:443/", "https://a.org"),
        ("https://a.org:80/", "https://a.org:80"),
        ("http://[::1]:9001/?y", "http://[::1]:9001"),
    ],
)
def test_origin_has_only_an_unusual_port(page: str, origin: str) -> None:
    assert _origin(page) == origin


@pytest.mark.parametrize(("encoding", "plain"), [("UTF-8", False), ("utf-8-sig", False), ("cp1252", True)])
def test_blocks_are_drawn_where_the_stream_can_show_them(
    encoding: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert ascii_only() is plain


def test_options_show_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--help"]) == 0
    assert "[default: 10; x>=1]" in " ".join(capsys.readouterr().out.split())


def test_jobs_differ_by_folder_or_else_by_name() -> None:
    assert _apart("a/x.rank0.json", "b/x.rank0.json") == ("a", "b")
    assert _apart("a/x.rank0.json", "a/y.rank0.json") == ("a/x.rank*.json", "a/y.rank*.json")
    assert _apart("a/x.rank0.json", "a/x.rank1.json") == ("a/x.rank0.json", "a/x.rank1.json")


@pytest.mark.parametrize(("real_ns", "kind"), [(-50, "work"), (-49, "host"), (50, "host")])
def test_a_fix_is_one_of_work_from_half_of_the_difference_on(real_ns: int, kind: str) -> None:
    step = SimpleNamespace(base_ns=300, new_ns=200, base_bound="gpu", measured=True)
    base = SimpleNamespace(names=["a.json"], gpus=[], recorded=())
    found: Any = SimpleNamespace(
        axes=SimpleNamespace(device=SimpleNamespace(real_ns=real_ns), step=step), base=base
    )
    fault: Any = SimpleNamespace(
        said_share=0.1, low_share=0, high_share=1, got_share=0.2, rules=["x"], title="x"
    )
    assert _row(found, found.axes.step, fault, None)["kind"] == kind


def test_page_keeps_first_typical_and_costliest_occurrences() -> None:
    every = [SimpleNamespace(start_ns=at, end_ns=at + 1, cost_ns=at, event_ids=()) for at in range(300)]
    finding: Any = SimpleNamespace(occurrences=every, start_ns=150)
    columns: Any = SimpleNamespace(event_id=())
    kept = {share: _marks(0, finding, columns, (), share).position for share in (1, 102, 300)}
    assert kept[1] == (*range(_FIRST), 150)
    assert kept[102] == (*range(_FIRST), *sorted({150, *range(300 - (102 - _FIRST), 300)}))
    assert kept[300] == tuple(range(300))
