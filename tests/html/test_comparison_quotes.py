"""The page of a comparison quotes its JSON, names what it draws, and keeps to what it has room for."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed, quotes, wrong
from tests.html.test_comparison_drawings import BASE, NEW, rows_of, shown, strips, whole
from tests.render.test_comparison_text import SOURCE, STEP, VERDICT, WORK, counted, fault, row
from tests.report.report_samples import MS
from traceanalyzer.comparison.result import Axes, Comparison, DeviceAxis, Word
from traceanalyzer.comparison.snapshot import Piece
from traceanalyzer.render.data.comparison import comparison_json
from traceanalyzer.render.html.comparison import (
    difference_flame,
    fall_drawing,
    render_comparison_page,
    strips_drawing,
)
from traceanalyzer.version import __version__


def comparison(**changes: Any) -> Comparison:
    sides = (SOURCE, replace(SOURCE, names=("b.json",)))
    plain = Comparison(*sides, VERDICT, Axes((), None, None), None, (), (), (), {}, (), ())
    return replace(plain, **{"strips": (None, None), **changes})


def page_of(**changes: Any) -> Parsed:
    return parsed(render_comparison_page(comparison(**changes)))


def test_all_that_the_page_quotes_is_at_its_place_in_the_json() -> None:
    """Also behind what has no row: counters that are the same, work within noise."""
    exact = (
        counted("waits", 1, 1, Word.SAME),
        counted("launches", 3, 5),
        counted("copies", 7, 2, Word.FEWER),
    )
    found = comparison(
        verdict=replace(VERDICT, because=("first", "second"), settle="record again"),
        axes=Axes(exact, DeviceAxis(8 * MS, 6 * MS, -MS, Word.FASTER, {}), STEP),
        waterfall=whole(100, 3, -2, 0),
        rows=(
            row("aten::same", Word.SAME),
            row("aten::mm", Word.SLOWER, new=replace(WORK, ns=3e6), note="kernel a -> b"),
            row("aten::add", Word.GONE, new=None, delta_ns=-2_000_000),
            row("aten::mul", Word.NEW, base=None),
        ),
        faults=(fault("gone", got_share=0.15), fault("new", said_share=None), fault("worse", said_share=0.0)),
        rungs={"op": 0.9, "rest": 0.0, "name": 0.1},
        notes=("note one", "note two"),
    )
    said = quotes(parsed(render_comparison_page(found)))
    assert wrong(said, {"compare": json.loads(comparison_json(found))}) == []
    paths = [path.removeprefix("compare#/") for path, *_ in said]
    assert len(paths) == len({*paths})
    assert {*paths} >= {
        *(f"axes/{axis}/{what}" for axis in ("step", "device") for what in ("base_ns", "new_ns", "word")),
        *(f"axes/exact/{at}/{what}" for at in (1, 2) for what in ("base", "new", "word")),
        *(f"waterfall/parts/{at}/{what}_ns" for at in (0, 1, 2) for what in ("base", "new", "delta")),
        *("rows/1/base/ns", "rows/1/new/ns", "rows/1/note", "rows/2/base/ns", "rows/3/new/ns"),
        *(f"faults/{at}/{what}" for at in (0, 1, 2) for what in ("status", "title")),
        *("faults/0/said_share", "faults/0/got_share", "faults/2/said_share"),
        *("rungs/op", "rungs/name", "notes/0", "notes/1", "verdict/because/1", "verdict/settle"),
    }
    assert not {*paths} & {"axes/exact/0/base", "rows/0/delta_ns", "rungs/rest", "faults/1/said_share"}


def test_tables_have_a_head_for_each_column() -> None:
    page = page_of(
        axes=Axes((counted("launches", 3, 5),), None, None),
        waterfall=whole(100, 3),
        rows=(row("aten::mm", Word.SLOWER, new=replace(WORK, ns=3e6)),),
        faults=(fault("gone"),),
    )
    heads = [one.text for one in page.elements if one.name == "th"]
    assert heads == [
        *("a step", "BASE", "NEW", "verdict", "where"),
        *("group", "part", "BASE", "NEW", "difference"),
        *("work", "in", "verdict", "BASE a step", "NEW a step", "of the step", "what else"),
        *("status", "fault", "said", "got"),
    ]
    for line in (one for one in page.elements if one.name == "tr" and "tbody" in one.parents):
        assert line.text
    assert rows_of(page, "axes") == ["launches35moreaten::mm"]


def test_unnamed_side_is_a_recording_and_any_name_is_shown() -> None:
    bare = page_of(base=replace(SOURCE, names=()), new=replace(SOURCE, names=("caf\udce9.json", "c.json")))
    (title,) = [one.text for one in bare.elements if one.name == "title"]
    assert title == r"slower: recording and caf\udce9.json, traceanalyzer compare"
    assert __version__ in bare.elements[0].text
    assert "has no step to draw" in bare.elements[0].text
    drawn = page_of(strips=(BASE, None))
    assert "has no step to draw" not in drawn.elements[0].text
    assert "BASE, recorded 10.0 ms" in drawn.elements[0].text


def test_a_verdict_without_reasons_has_no_list() -> None:
    page = page_of(verdict=replace(VERDICT, because=(), settle=""))
    assert [one for one in page.elements if one.name in ("ul", "li")] == []
    (strong,) = [one.text for one in page.elements if one.name == "strong"]
    assert strong == "NEW is slower."


def test_waterfall_line_has_name_left_and_value_right() -> None:
    """24 px a line; a part that does not change has none."""
    page = shown(fall_drawing(whole(100, 0, 5)))
    texts = [one for one in page.elements if one.name == "text"]
    assert [(one.text, *(one.attributes[key] for key in ("x", "y", "text-anchor"))) for one in texts] == [
        ("BASE", "0.0", "13.0", "start"),
        ("100 ms", "1000.0", "13.0", "end"),
        ("compute: part 1", "0.0", "37.0", "start"),
        ("+5.00 ms", "1000.0", "37.0", "end"),
        ("NEW", "0.0", "61.0", "start"),
        ("105 ms", "1000.0", "61.0", "end"),
    ]
    assert [one.attributes["y"] for one in page.elements if one.name == "rect"] == ["0.0", "24.0", "48.0"]
    (svg,) = [one for one in page.elements if one.name == "svg"]
    assert svg.attributes["viewbox"] == "0 0 1000 72"
    assert svg.attributes["aria-label"] == "waterfall from the step of BASE to that of NEW"


@pytest.mark.parametrize(("letters", "cut"), [(44, False), (45, True)])
def test_a_long_name_of_the_waterfall_is_cut(letters: int, cut: bool) -> None:
    """320 px have room for 50 letters, six of which are the group's; the title has all of it."""
    made = whole(100, 5)
    long = replace(made, parts=(replace(made.parts[0], group="idle", name="x" * letters),))
    page = shown(fall_drawing(long))
    name = next(one.text for one in page.elements if one.name == "text" and one.text.startswith("idle"))
    assert ("…" in name) is cut
    assert len(name) == 50
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[1] == f"idle: {'x' * letters}: +5.00 ms"


def test_step_piece_is_labelled_and_lies_on_its_stream() -> None:
    """A stream without work keeps its line."""
    made = replace(NEW, pieces=(Piece(2, MS, 2 * MS, "memset", "fill"),), left_out=0)
    page = shown(strips_drawing(strips(made, None)))
    rects = [one.attributes for one in page.elements if one.name == "rect"]
    assert [(one["class"], one["y"], one["height"]) for one in rects] == [
        ("ground", "18.0", "72"),
        ("b b-memset", "66.0", "18"),
    ]
    assert [one.text for one in page.elements if one.name == "title"] == ["the step", "fill, 2.00 ms"]
    empty = shown(strips_drawing(strips(replace(made, pieces=()), None)))
    assert [one.attributes["height"] for one in empty.elements if one.name == "rect"] == ["24"]


def flame(*rows: Any) -> list[str]:
    """Names of what is drawn."""
    found: Any = SimpleNamespace(rows=rows)
    titles = [one.text for one in shown(difference_flame(found)).elements if one.name == "title"]
    return [title.partition(":")[0] for title in titles]


def test_largest_sixty_callers_and_ops_are_drawn() -> None:
    names = [f"op {at:02}" for at in range(61)]
    one = row("k", Word.SAME, base=None, new=replace(WORK, ns=2.0), outer="")
    apart = [replace(one, op=name) for name in reversed(names)]
    assert flame(*apart) == [name for name in names[:60] for _ in range(2)]
    assert flame(*(replace(each, outer="all") for each in apart)) == ["all", *names[:60]]
    larger = replace(one, op=names[60], new=replace(WORK, ns=3.0))
    assert flame(*apart[1:], larger)[0] == names[60]


def test_caller_changes_by_the_sum_of_its_ops() -> None:
    """3 and 5 ms were 4 and 2: in all it takes longer, though the one beyond noise is faster."""
    rows = (
        row("aten::mm", Word.FASTER, base=replace(WORK, ns=4e6), new=replace(WORK, ns=3e6)),
        row("aten::add", Word.SAME, base=replace(WORK, ns=2e6), new=replace(WORK, ns=5e6)),
    )
    found: Any = SimpleNamespace(rows=rows)
    page = shown(difference_flame(found))
    looks = [str(one.attributes["class"]) for one in page.elements if one.name == "rect"]
    assert looks == ["change-slower", "change-same", "change-faster"]
    titles = [one.text for one in page.elements if one.name == "title"]
    assert titles[0] == "aten::linear: 6.00 ms -> 8.00 ms a step, slower"
