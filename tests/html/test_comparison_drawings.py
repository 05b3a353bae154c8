"""The page of a comparison: its drawings are as long as what they show, its tables quote the JSON."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.html.pages import Parsed, parsed, quotes, shown, wrong
from tests.report.report_samples import MS
from tests.support.comparison_samples import SOURCE, STEP, VERDICT, WORK, compared, counted, fall, fault, row
from traceanalyzer.comparison.result import Axes, Comparison, DeviceAxis, Waterfall, Word
from traceanalyzer.comparison.snapshot import Piece, StepStrip
from traceanalyzer.render.data.comparison import comparison_json
from traceanalyzer.render.html.comparison import difference_flame, fall_drawing, render_comparison_page, strips_drawing
from traceanalyzer.version import __version__

EXACT = (counted("launches", 3, 5), counted("copies", 7, 2, Word.FEWER))
ROWS = (
    row("aten::same", Word.SAME),
    row("aten::mm", Word.SLOWER, new=replace(WORK, ns=3e6), note="kernel a -> b"),
    row("aten::add", Word.GONE, new=None, outer="aten::add", delta_ns=-2_000_000),
    row("aten::mul", Word.NEW, base=None, outer=""),
)
FAULTS = (fault("gone", got_share=0.15), fault("new", said_share=None), fault("worse", said_share=0.0))


def comparison(**changes: Any) -> Comparison:
    return compared(**{"new": replace(SOURCE, names=("b.json",)), **changes})


def page_of(**changes: Any) -> Parsed:
    return parsed(render_comparison_page(comparison(**changes)))


def test_all_that_the_page_quotes_is_at_its_place_in_the_json() -> None:
    """Also behind what has no row: counters that are the same, work within noise."""
    exact = (counted("waits", 1, 1, Word.SAME), *EXACT)
    found = comparison(
        verdict=replace(VERDICT, because=("first", "second"), settle="record again"),
        axes=Axes(exact, DeviceAxis(8 * MS, 6 * MS, -MS, Word.FASTER, {}), STEP),
        waterfall=whole(100, 3, -2, 0),
        rows=ROWS,
        faults=FAULTS,
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
    axes = Axes(EXACT[:1], None, None)
    page = page_of(axes=axes, waterfall=whole(100, 3), rows=ROWS[1:2], faults=FAULTS[:1])
    assert page.texts("th") == [
        *("a step", "BASE", "NEW", "verdict", "where"),
        *("group", "part", "BASE", "NEW", "difference"),
        *("work", "in", "verdict", "BASE a step", "NEW a step", "of the step", "what else"),
        *("status", "fault", "said", "got"),
    ]
    assert all(page.texts("tr", "tbody"))
    assert rows_of(page, "axes") == ["launches35moreaten::mm"]


def test_unnamed_side_is_a_recording_and_any_name_is_shown() -> None:
    bare = page_of(base=replace(SOURCE, names=()), new=replace(SOURCE, names=("caf\udce9.json", "c.json")))
    assert bare.texts("title") == [r"slower: recording and caf\udce9.json, traceanalyzer compare"]
    assert __version__ in bare.elements[0].text
    assert "has no step to draw" in bare.elements[0].text
    drawn = page_of(strips=(BASE, None))
    assert "has no step to draw" not in drawn.elements[0].text
    assert "BASE, recorded 10.0 ms" in drawn.elements[0].text


def test_a_verdict_without_reasons_has_no_list() -> None:
    page = page_of(verdict=replace(VERDICT, because=(), settle=""))
    assert page.named("ul") == page.named("li") == []
    assert page.texts("strong") == ["NEW is slower."]


def test_waterfall_line_has_name_left_and_value_right() -> None:
    """24 px a line; a part that does not change has none."""
    page = shown(fall_drawing(whole(100, 0, 5)))
    assert page.texts("text") == ["BASE", "100 ms", "compute: part 1", "+5.00 ms", "NEW", "105 ms"]
    places = [[one.attributes[key] for key in ("x", "y", "text-anchor")] for one in page.named("text")]
    assert places[::2] == [["0.0", y, "start"] for y in ("13.0", "37.0", "61.0")]
    assert places[1::2] == [["1000.0", y, "end"] for y in ("13.0", "37.0", "61.0")]
    assert [one.attributes["y"] for one in page.named("rect")] == ["0.0", "24.0", "48.0"]
    (svg,) = page.named("svg")
    assert svg.attributes["viewbox"] == "0 0 1000 72"
    assert svg.attributes["aria-label"] == "waterfall from the step of BASE to that of NEW"


@pytest.mark.parametrize(("letters", "cut"), [(44, False), (45, True)])
def test_a_long_name_of_the_waterfall_is_cut(letters: int, cut: bool) -> None:
    """320 px have room for 50 letters, six of which are the group's; the title has all of it."""
    made = whole(100, 5)
    long = replace(made, parts=(replace(made.parts[0], group="idle", name="x" * letters),))
    page = shown(fall_drawing(long))
    name = next(text for text in page.texts("text") if text.startswith("idle"))
    assert (len(name), "…" in name) == (50, cut)
    assert page.texts("title")[1] == f"idle: {'x' * letters}: +5.00 ms"


def test_step_piece_is_labelled_and_lies_on_its_stream() -> None:
    """A stream without work keeps its line."""
    made = replace(NEW, pieces=(Piece(2, MS, 2 * MS, "memset", "fill"),), left_out=0)
    page = shown(strips_drawing(strips(made, None)))
    rects = [one.attributes for one in page.named("rect")]
    assert [(one["class"], one["y"], one["height"]) for one in rects] == [
        ("ground", "18.0", "72"),
        ("b b-memset", "66.0", "18"),
    ]
    assert page.texts("title") == ["the step", "fill, 2.00 ms"]
    empty = shown(strips_drawing(strips(replace(made, pieces=()), None)))
    assert [one.attributes["height"] for one in empty.named("rect")] == ["24"]


def flame(*rows: Any) -> list[str]:
    """Names of what is drawn."""
    found: Any = SimpleNamespace(rows=rows)
    titles = shown(difference_flame(found)).texts("title")
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
    looks = [str(one.attributes["class"]) for one in page.named("rect")]
    assert looks == ["change-slower", "change-same", "change-faster"]
    assert page.texts("title")[0] == "aten::linear: 6.00 ms -> 8.00 ms a step, slower"


Box = tuple[str, float, float]


def boxes(page: Parsed) -> list[Box]:
    """(class, x, width) of each."""
    rects = [one.attributes for one in page.named("rect")]
    return [(str(one["class"]), float(str(one["x"])), float(str(one["width"]))) for one in rects]


def whole(base_ms: int, *deltas_ms: int) -> Waterfall:
    made = fall(*(ms * MS for ms in deltas_ms))
    return replace(made, base_ns=base_ms * MS, new_ns=(base_ms + sum(deltas_ms)) * MS)


STEP_BAR, LONGER, SHORTER = "whole-step", "longer", "shorter"


@pytest.mark.parametrize(
    ("drawn", "looks", "places", "note"),
    [
        # 580 px from 80 to 110 ms: twice what changed is drawn before it
        (
            whole(100, 10, -4),
            [STEP_BAR, LONGER, SHORTER, STEP_BAR],
            [(330, 386.67), (716.67, 193.33), (832.67, 77.33), (330, 502.67)],
            True,
        ),
        (whole(20, 10), [STEP_BAR, LONGER, STEP_BAR], [(330, 386.67), (716.67, 193.33), (330, 580)], False),
        (whole(10), [STEP_BAR, STEP_BAR], [(330, 580), (330, 580)], False),
        # from -2 to 10 ms
        (
            whole(10, -12, 4),
            [STEP_BAR, SHORTER, LONGER, STEP_BAR],
            [(426.67, 483.33), (330, 580), (330, 193.33), (426.67, 96.67)],
            False,
        ),
    ],
)
def test_waterfall_starts_at_zero_if_much_changed(
    drawn: Waterfall, looks: list[str], places: list[tuple[float, float]], note: bool
) -> None:
    page = shown(fall_drawing(drawn))
    assert [look for look, *_ in boxes(page)] == looks
    assert np.array([place for _, *place in boxes(page)]) == pytest.approx(np.array(places), abs=0.02)
    assert page.texts_of("note") == ["The axis does not begin at zero."] * note


@pytest.mark.parametrize(("count", "last"), [(14, "idle: part 0: +1.00 ms"), (16, "2 other parts: +2.00 ms")])
def test_fourteen_parts_have_a_bar_and_the_others_one(count: int, last: str) -> None:
    page = shown(fall_drawing(whole(100, *[1] * count)))
    titles = page.texts("title")
    assert titles[:2] == ["BASE: 100 ms", "idle: part 0: +1.00 ms"]
    assert titles[-1] == f"NEW: {100 + count} ms"
    assert len(titles) == min(count, 15) + 2
    assert (titles[-2] if count > 14 else titles[1]) == last


def strips(*of: StepStrip | None) -> Any:
    return SimpleNamespace(strips=of)


BASE = StepStrip(10 * MS, (Piece(0, 0, 4 * MS, "compute", "gemm"), Piece(1, 5 * MS, 5 * MS, "copy_h2d", "Memcpy")), 2)


NEW = StepStrip(5 * MS, (Piece(0, MS, 4 * MS, "compute", "gemm"),), 3)


def test_both_steps_are_on_the_axis_of_the_longer_one() -> None:
    page = shown(strips_drawing(strips(BASE, NEW)))
    assert boxes(page) == [
        ("ground", 0, 1000),
        ("b b-compute", 0, 400),
        ("b b-copy", 500, 500),
        ("ground", 0, 500),
        ("b b-compute", 100, 400),
    ]
    rects = [one.attributes for one in page.named("rect")]
    assert [one["y"] for one in rects] == ["18.0", "18.0", "42.0", "102.0", "102.0"]  # below 2 lines, and 36 px
    assert [one["height"] for one in rects] == ["48", "18", "18", "24", "18"]
    (svg,) = page.named("svg")
    assert svg.attributes["viewbox"] == "0 0 1000 144"
    assert page.texts("text") == ["BASE, recorded 10.0 ms", "NEW, recorded 5.00 ms"]
    assert page.of_class("note")[0].text.endswith("one line a stream. 5 short pieces are not drawn.")


def test_a_step_that_is_not_kept_is_not_drawn() -> None:
    page = shown(strips_drawing(strips(None, replace(NEW, left_out=0))))
    assert boxes(page) == [("ground", 0, 1000), ("b b-compute", 200, 800)]
    assert page.texts("text") == ["NEW, recorded 5.00 ms"]
    assert page.of_class("note")[0].text.endswith("one line a stream.")
    assert strips_drawing(strips(None, None)) is None


def test_work_is_as_wide_as_its_longer_side() -> None:
    """Of 8 ms on 1000 px: 4 ms are new, 3 ms were 2, 1 ms is the same."""
    rows = (
        row("aten::add", Word.SAME, base=replace(WORK, ns=1e6), new=replace(WORK, ns=0.5e6)),
        row("aten::mm", Word.SLOWER, new=replace(WORK, ns=3e6)),
        row("aten::copy_", Word.NEW, base=None, new=replace(WORK, ns=4e6), outer=""),
    )
    page = shown(difference_flame(SimpleNamespace(rows=rows)))  # type: ignore[arg-type]
    assert boxes(page) == [
        ("change-slower", 0, 500),
        ("change-new", 0, 500),
        ("change-slower", 500, 500),
        ("change-slower", 500, 375),
        ("change-same", 875, 125),
    ]
    titles = page.texts("title")
    assert titles[0] == "aten::copy_: 0 ns -> 4.00 ms a step, slower"
    assert titles[2] == "aten::linear: 3.00 ms -> 3.50 ms a step, slower"
    assert page.texts("text") == ["aten::copy_", "aten::copy_", "aten::linear", "aten::mm", "aten::add"]


def test_what_takes_most_is_drawn_first() -> None:
    rows = [
        row(f"kernel {at}", Word.SAME, base=None, new=replace(WORK, ns=float(at)), outer=f"op {at % 2}")
        for at in range(1, 5)
    ]
    page = shown(difference_flame(SimpleNamespace(rows=rows)))  # type: ignore[arg-type]
    titles = [one.text.partition(":")[0] for one in page.named("title")]
    assert titles == ["op 0", "kernel 4", "kernel 2", "op 1", "kernel 3", "kernel 1"]
    assert boxes(page)[3][1:] == (600, 400)
    gone = row("a", Word.GONE, base=replace(WORK, ns=3.0), new=None)
    new = replace(rows[0], outer="aten::linear")
    page = shown(difference_flame(SimpleNamespace(rows=(gone, new))))  # type: ignore[arg-type]
    assert [one[1:] for one in boxes(page)] == [(0, 1000), (0, 750), (750, 250)]


@pytest.mark.parametrize(
    ("new_ns", "word", "said"),
    [(1e6, Word.FASTER, "faster"), (3e6, Word.SLOWER, "slower"), (3e6, Word.SAME, "same"), (3e6, Word.UNKNOWN, "same")],
)
def test_what_is_within_noise_is_the_same(new_ns: float, word: Word, said: str) -> None:
    rows = (row("aten::mm", word, new=replace(WORK, ns=new_ns)),)
    page = shown(difference_flame(SimpleNamespace(rows=rows)))  # type: ignore[arg-type]
    assert boxes(page)[0][0] == f"change-{said}"


@pytest.mark.parametrize(("width", "name"), [(25, None), (26, "k…0"), (40, "ke…_0")])
def test_a_box_has_as_much_of_its_name_as_has_room(width: int, name: str | None) -> None:
    small = row("kernel_0", Word.SAME, base=None, new=replace(WORK, ns=float(width)), outer="")
    large = row("b", Word.SAME, base=None, new=replace(WORK, ns=1000.0 - width), outer="")
    page = shown(difference_flame(SimpleNamespace(rows=(small, large))))  # type: ignore[arg-type]
    names = [text for text in page.texts("text") if text.startswith("k")]
    assert names == [name] * 2 * (name is not None)


def rows_of(page: Parsed, label: str) -> list[str]:
    """Texts of the rows of a table, without its head."""
    inside: list[str] = []
    at = next(i for i, one in enumerate(page.elements) if one.attributes.get("aria-label") == label)
    depth = len(page.elements[at].parents)
    for one in page.elements[at + 1 :]:
        if len(one.parents) <= depth:
            break
        if one.name == "tr":
            inside.append(one.text)
    return inside[1:]


def test_the_heading_and_the_title_name_both_sides() -> None:
    page = page_of(verdict=replace(VERDICT, because=("first",), settle="record again"))
    assert page.texts("title") == ["slower: a.json and b.json, traceanalyzer compare"]
    text = page.elements[0].text
    assert "From a.json to b.json" in text
    named = {one.text: str(one.attributes["data-path"]) for one in page.having("data-path") if ".json" in one.text}
    assert named == {"a.json": "compare#/base/names/0", "b.json": "compare#/new/names/0"}
    assert "To settle it: record again." in text
    assert "To settle it" not in page_of().elements[0].text


def test_axes_are_a_row_each_and_counters_that_differ() -> None:
    same = counted("waits", 1, 1, Word.SAME)
    page = page_of(axes=Axes((*EXACT, same), DeviceAxis(8 * MS, 6 * MS, -MS, Word.FASTER, {}), STEP))
    assert rows_of(page, "axes") == [
        "Step10.0 ms12.0 msslower",
        "GPU work8.00 ms6.00 msfaster",
        "launches35moreaten::mm",
        "copies72feweraten::mm",
    ]
    assert "No counter differs" not in page.elements[0].text
    assert "No counter differs" in page_of(axes=Axes((same,), None, None)).elements[0].text


def test_twenty_parts_of_the_step_have_a_row() -> None:
    page = page_of(waterfall=whole(100, *[1] * 21))
    rows = rows_of(page, "parts of the step")
    assert len(rows) == 20
    assert rows[0] == "idlepart 00 ns1.00 ms1.00 ms"
    assert "1 smaller parts are in the JSON." in page.elements[0].text
    assert "100 ms and all differences are 121 ms." in page.elements[0].text
    assert "smaller parts" not in page_of(waterfall=whole(100, *[1] * 20)).elements[0].text
    assert "One side has no step." in page_of().elements[0].text


def test_rows_beyond_noise_have_both_sides_and_where_they_are() -> None:
    assert rows_of(page_of(rows=ROWS), "rows") == [
        "aten::mmaten::linearslower2.00 ms3.00 ms900 µskernel a -> b",
        "aten::addgone2.00 ms-2.00 ms",
        "aten::mulnew2.00 ms900 µs",
    ]
    assert len(rows_of(page_of(rows=ROWS[1:2] * 41), "rows")) == 40
    assert "None, beyond noise." in page_of(rows=ROWS[:1]).elements[0].text


def test_faults_have_what_was_said_and_what_came() -> None:
    assert rows_of(page_of(faults=FAULTS), "faults") == [
        "gonetitle of gone17.0 %15.0 %",
        "newtitle of new",
        "worsetitle of worse0 %",
    ]
    assert "None on either side." in page_of().elements[0].text


def test_how_work_was_matched_and_notes_stand_last() -> None:
    page = page_of(rungs={"op": 0.9, "name": 0.004, "rest": 0.0}, notes=("first", "second"))
    text = page.elements[0].text
    assert "GPU time matched by op 90.0 %; name 0.40 %; " in text
    assert "rest" not in text.partition("GPU time matched by")[2].partition("first")[0]
    assert page.texts("li")[-2:] == ["first", "second"]
